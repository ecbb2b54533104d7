package coordinator

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/registry"
)

const (
	// burstSingly is how many nodes have a log line of their own within burstEvery.
	burstSingly = 5
	// burstEvery is how often further nodes share a line.
	burstEvery = 5 * time.Second
	// burstNames is how many nodes such a line names.
	burstNames = 5
)

// burst logs nodes to which the same happens: a few of them one by one, and the rest together. A switch that breaks silences a
// thousand nodes, and a line for each would hide the line that says which brake holds.
type burst struct {
	level     slog.Level
	one, many string

	mu    sync.Mutex // guards what follows
	since time.Time  // said counts from here
	said  int        // lines for single nodes
	more  []string   // nodes that no line has named yet
}

// bursts are the bursts of a fleet.
type bursts struct {
	log                         *slog.Logger
	silent, heard               burst
	clockOn, clockOff, clockFar burst
}

func newBursts(log *slog.Logger) *bursts {
	return &bursts{
		log: log,
		silent: burst{level: slog.LevelWarn,
			one:  "a node is silent: nothing is sent there until it is heard again",
			many: "many nodes are silent: nothing is sent there until they are heard again"},
		heard:   burst{one: "a node is heard again", many: "many nodes are heard again"},
		clockOn: burst{one: "a node's clock is right again", many: "the clocks of many nodes are right again"},
		clockOff: burst{level: slog.LevelWarn,
			one:  "a node's clock is off: its logs mislead; look at its time service",
			many: "the clocks of many nodes are off by about a second or more, or this coordinator's is: look at the time service here, and then there"},
		clockFar: burst{level: slog.LevelError,
			one:  "a node's clock is far off: it may misread the deadline of its cloud's notices; look at its time service",
			many: "the clocks of many nodes are far off, or this coordinator's is: look at the time service here, and then there"},
	}
}

// clock logs a change of a node's clock.
func (b *bursts) clock(node string, is astray, ahead time.Duration) {
	of := map[astray]*burst{onTime: &b.clockOn, offTime: &b.clockOff, farOff: &b.clockFar}[is]
	of.saw(b.log, node, "ahead", ahead.Round(time.Millisecond))
}

// tell writes the shared lines that are due, or all of them.
func (b *bursts) tell(all bool) {
	for _, one := range []*burst{&b.silent, &b.heard, &b.clockOn, &b.clockOff, &b.clockFar} {
		one.tell(b.log, all)
	}
}

func (b *burst) saw(log *slog.Logger, node string, words ...any) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.more) == 0 && now.Sub(b.since) >= burstEvery {
		b.since, b.said = now, 0
	}
	if b.said < burstSingly {
		b.said++
		log.Log(context.Background(), b.level, b.one, append([]any{"node", node}, words...)...)
		return
	}
	b.more = append(b.more, node)
}

func (b *burst) tell(log *slog.Logger, all bool) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(b.more) == 0 || !all && now.Sub(b.since) < burstEvery:
		return
	case len(b.more) == 1:
		log.Log(context.Background(), b.level, b.one, "node", b.more[0])
	default:
		log.Log(context.Background(), b.level, b.many, "nodes", len(b.more), "some", some(b.more))
	}
	b.since, b.more = now, nil
}

// some are the first of many names.
func some(names []string) string {
	return strings.Join(slices.Sorted(slices.Values(names))[:min(len(names), burstNames)], ", ")
}

// tellChanges logs a command's events: a line each, or for many of one type one line with the data that they have in common.
func tellChanges(log *slog.Logger, events []registry.Event) {
	kinds := map[string][]registry.Event{}
	for _, e := range events {
		kinds[e.Type] = append(kinds[e.Type], e)
	}
	for _, e := range events {
		words, same := []any{"event", e.Type, "node", e.Node, "index", e.Index}, e.Data
		if all := kinds[e.Type]; len(all) > burstSingly && levelOf(e) > slog.LevelDebug {
			if e.Index != all[0].Index {
				continue
			}
			var nodes []string
			same = maps.Clone(same)
			for _, other := range all {
				nodes = append(nodes, other.Node)
				maps.DeleteFunc(same, func(k, v string) bool { return other.Data[k] != v })
			}
			words = []any{"event", e.Type, "nodes", len(nodes), "some", some(nodes), "index", e.Index}
		}
		for _, k := range slices.Sorted(maps.Keys(same)) {
			words = append(words, k, same[k])
		}
		log.Log(context.Background(), levelOf(e), "fleet changed", words...)
	}
}

func levelOf(e registry.Event) slog.Level {
	switch {
	case e.Type == registry.EventExecutor: // there may be a thousand, and their node has a line too
		return slog.LevelDebug
	case e.Type == registry.EventLost, e.Type == registry.EventExcluded, e.Type == registry.EventHostsRefused, e.Data["outcome"] == string(registry.TimedOut), e.Data["outcome"] == string(registry.Forced),
		e.Data["lost"] != "" && e.Data["lost"] != "0":
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
