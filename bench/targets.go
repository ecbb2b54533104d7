package main

import (
	"fmt"
	"strings"
)

// goal is the target of a corpus on a quiet machine. over has ratios of lifeboat's throughput to that of a
// table's line, by its label.
type goal struct {
	over   map[string]float64
	cpu    float64 // CPU s/GiB of both ends, 0: nothing is said of it
	rss    int     // MiB of either end
	blocks int     // a second
}

// The targets are what a prototype of the same design reached, and a little more.
var targets = map[string]goal{
	"a": {
		over: map[string]float64{"rsync daemon, not synced": 1.5, "rsync over ssh, not synced": 2.8,
			"tar over nc, plain, syncfs": 2.2, "grpc stream, not synced": 2},
		cpu: 1.9, rss: 24,
	},
	"b": {over: map[string]float64{"rsync daemon, not synced": 1}},
	"c": {over: map[string]float64{"rsync daemon, not synced": 0.85, "rsync over ssh, not synced": 2.5}, cpu: 1.6},
	"d": {
		over: map[string]float64{"rsync daemon, not synced": 5, "rsync over ssh, not synced": 7, "tar over nc, plain, syncfs": 4},
		rss:  48, blocks: 130_000,
	},
}

// wanted is the target of the ratio over the line with that label; 0: the line has none.
func (s size) wanted(label string) float64 { return targets[s.name].over[label] }

// goals are the other targets, in words.
func (s size) goals() string {
	g := targets[s.name]
	var words []string
	if g.cpu > 0 {
		words = append(words, fmt.Sprintf("CPU %.1f s/GiB", g.cpu))
	}
	if g.rss > 0 {
		words = append(words, fmt.Sprintf("RSS %d MiB at each end", g.rss))
	}
	if g.blocks > 0 {
		words = append(words, fmt.Sprintf("%d blocks/s", g.blocks))
	}
	return strings.Join(words, ", ")
}
