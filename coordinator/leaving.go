package coordinator

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/registry"
)

const (
	// leavingEvery is how often the leaving nodes are logged. It is YARN's pace (DecommissioningNodesWatcher), which logs every node.
	leavingEvery = 20 * time.Second

	// leavingNamed is how many of them have a line of their own: those that have been leaving longest. A whole fleet may leave at once.
	leavingNamed = 10
)

// run logs, while nodes leave, how many do and what the ones that have been leaving longest wait for, until ctx ends.
func (w *leavers) run(ctx context.Context) error {
	return every(ctx, leavingEvery, func() {
		if term, _ := w.ledger.inOffice(); term != nil { // a follower hears no heartbeats
			w.tell(ctx, time.Now())
		}
	})
}

func (w *leavers) tell(ctx context.Context, now time.Time) {
	var leave []registry.Node
	w.ledger.view(func(m *registry.Registry) {
		for _, n := range m.Nodes {
			if n.Leaving() {
				leave = append(leave, n)
			}
		}
	})
	if len(leave) == 0 || !w.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	slices.SortFunc(leave, func(a, b registry.Node) int {
		return cmp.Or(a.Decommission.StartedAt.Compare(b.Decommission.StartedAt), strings.Compare(a.Name, b.Name))
	})
	counts := map[string]int{}
	var named [][]any
	for _, n := range leave {
		p := w.leases.read(n.Name)
		state, waitsFor := waits(n, p, w.elsewhere(n, now), now)
		counts[state]++
		if len(named) < leavingNamed {
			named = append(named, leavingWords(n, p, state, waitsFor, now))
		}
	}
	words := []any{"nodes", len(leave)}
	for _, state := range []string{waitsForWorkload, waitsForApp, migrating, ready, timeIsUp} {
		if counts[state] > 0 {
			words = append(words, strings.ToLower(state), counts[state])
		}
	}
	w.log.Info("nodes are leaving", words...)
	for _, words := range named {
		w.log.Info("a node is leaving", words...)
	}
}

// leavingWords are the log line of one node. It leaves out what is not known, and the time that is left if there is no deadline.
func leavingWords(n registry.Node, p pulse, state string, waitsFor []string, now time.Time) []any {
	words := []any{"node", n.Name, "sub_state", state, "took", now.Sub(n.Decommission.StartedAt).Round(time.Second)}
	if len(waitsFor) > 0 {
		words = append(words, "waits_for", strings.Join(waitsFor, ", "))
	}
	if d := p.status.GetDrain(); d != nil { // the total has what is moved and lost, and what waits; skipped blocks are beside it
		words = append(words, "blocks", max(0, d.BlocksTotal-d.BlocksMoved-d.BlocksLost))
	}
	if at := n.Decommission.Deadline(); !at.IsZero() {
		words = append(words, "left", at.Sub(now).Round(time.Second))
	}
	return words
}
