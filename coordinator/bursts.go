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
	// burstSingly is how many nodes have a line each.
	burstSingly = 5
	// burstEvery is how often those that are more share one.
	burstEvery = 5 * time.Second
	// burstNames is how many such a line names.
	burstNames = 5
)

// burst tells the log of nodes to which the same happens: of a few one by one, and of all that are more together. A switch
// that breaks silences a thousand, and a line for each would hide the one that says which brake holds.
type burst struct {
	level     slog.Level
	one, many string

	mu    sync.Mutex // guards what follows
	since time.Time  // from when on those that have a line each are counted
	said  int
	more  []string // they have had none yet
}

// bursts are those of a fleet.
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

// clock says what a node's clock has become.
func (b *bursts) clock(node string, is astray, ahead time.Duration) {
	of := map[astray]*burst{onTime: &b.clockOn, offTime: &b.clockOff, farOff: &b.clockFar}[is]
	of.saw(b.log, node, "ahead", ahead.Round(time.Millisecond))
}

// tell says what is to be said together and due, or all of it.
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

// tellChanges logs what a command came to: an event each, or one line for many of a kind with what is the same of all.
func (f *fleet) tellChanges(events []registry.Event) {
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
		f.log.Log(context.Background(), levelOf(e), "fleet changed", words...)
	}
}

func levelOf(e registry.Event) slog.Level {
	switch {
	case e.Type == registry.EventExecutor: // there may be a thousand, and their node is told of as well
		return slog.LevelDebug
	case e.Type == registry.EventLost, e.Type == registry.EventExcluded, e.Type == registry.EventHostsRefused, e.Data["outcome"] == string(registry.TimedOut), e.Data["outcome"] == string(registry.Forced),
		e.Data["lost"] != "" && e.Data["lost"] != "0":
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
