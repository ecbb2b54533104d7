package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// spread is how long one thing took each time, in ascending order.
type spread []time.Duration

func newSpread(took []time.Duration) spread { return slices.Sorted(slices.Values(took)) }

func (s spread) mean() time.Duration {
	if len(s) == 0 {
		return 0
	}
	var sum time.Duration
	for _, d := range s {
		sum += d
	}
	return sum / time.Duration(len(s))
}

// quantile returns the shortest time that the share q of all, from 0 to 1, does not exceed.
func (s spread) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	const hair = 1e-9 // 0.07 x 100 is a little more than 7 in floating point
	rank := int(math.Ceil(q*float64(len(s)) - hair))
	return s[min(max(rank, 1), len(s))-1]
}

// stats are the statistics of a spread that tables and figures show.
func (s spread) stats() []stat {
	return []stat{{"mean", s.mean()}, {"p50", s.quantile(0.5)}, {"p99", s.quantile(0.99)}, {"max", s.quantile(1)}}
}

type stat struct {
	name string
	took time.Duration
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// delay is one line of a table of how long things took.
type delay struct {
	name string
	spread
	target map[string]time.Duration // by the name of the stat
}

// printDelays writes the table for people, at most 100 columns wide. What is over its target has an exclamation mark.
func printDelays(w io.Writer, title string, delays []delay) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s, ms\n%-30s %7s %8s %8s %8s %8s  %s\n",
		title, "", "samples", "mean", "p50", "p99", "max", "target")
	for _, d := range delays {
		fmt.Fprintf(&b, "%-30s %7d", d.name, len(d.spread))
		var targets []string
		for _, m := range d.stats() {
			limit, limited := d.target[m.name]
			mark := ""
			if limited {
				targets = append(targets, fmt.Sprintf("%s %.0f", m.name, milliseconds(limit)))
				if m.took > limit {
					mark = "!"
				}
			}
			fmt.Fprintf(&b, " %8s", number(milliseconds(m.took), 1)+mark)
		}
		b.WriteString("  " + strings.Join(targets, ", ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func delayFigures(suite string, delays []delay, command string) (all []figure) {
	for _, d := range delays {
		for _, m := range d.stats() {
			all = append(all, alone(suite, d.name+", "+m.name, "ms", milliseconds(m.took), command))
		}
	}
	return all
}

// alone is a figure without a peer to compare it with.
func alone(suite, name, unit string, value float64, command string) figure {
	return figure{Suite: suite, Name: name, Value: rounded(value), Unit: unit, Command: command}
}
