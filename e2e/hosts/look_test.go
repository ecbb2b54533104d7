package hosts_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The shapes of -o json, as far as the stories look at them.

type counts struct{ Total, Moved, Lost, Skipped int64 }

type drainView struct {
	Phase  string
	Blocks counts
}

type agentStatus struct {
	Notice *struct {
		Kind     string
		Deadline *time.Time
	}
	Drain    *drainView
	Manifest *manifestView
	Peers    []struct{ Node string }

	HeldBytes   int64 `json:"held_bytes"`
	Incarnation string
	Coordinator struct{ Trouble string }
}

type nodeView struct {
	State       string
	SubState    string `json:"sub_state"`
	Deadline    *time.Time
	ID          string
	Incarnation string
}

type manifestView struct {
	Incident struct {
		Kind, Source string
		Deadline     *time.Time
	}
	Blocks  counts
	Bytes   counts
	Entries []struct{ ID, Outcome, Peer, Reason string }
}

type memberView struct {
	Name            string
	Leader, Reached bool
}

type eventView struct {
	Type, Node string
	Data       map[string]string
}

// status is what the agent says on its socket; empty while it starts.
func (n *node) status() (s agentStatus) {
	n.f.t.Helper()
	if said := n.verb("status", "-o", "json"); said.code == 0 {
		s = decode[agentStatus](said)
	}
	return s
}

// seen is what the leader says of the node. While there is no leader, or it does not know the node, State has the
// error.
func (n *node) seen() nodeView {
	n.f.t.Helper()
	s := n.f.verb("node", n.host, "-o", "json")
	if s.code != 0 {
		return nodeView{State: fmt.Sprintf("exit code %d: %s", s.code, strings.TrimSpace(s.stderr))}
	}
	return decode[nodeView](s)
}

func (n *node) is(state string) func() error {
	return func() error {
		if got := n.seen().State; got != state {
			return fmt.Errorf("%s is %s at the coordinator, want %s", n.host, got, state)
		}
		return nil
	}
}

// underWay waits until that many of the node's blocks have moved. It fails the story if the drain is over: the story
// needs it to go on.
func (n *node) underWay(moved int64) {
	n.f.t.Helper()
	n.f.until(func() error {
		switch d := n.status().Drain; {
		case d == nil || d.Blocks.Moved < moved:
			return fmt.Errorf("%s: drain %+v, want %d blocks moved", n.host, d, moved)
		case d.Phase == "drained":
			n.f.t.Fatalf("%s: the drain was over before the story began: %+v", n.host, d)
		}
		return nil
	})
}

// drained waits until the agent says that its drain has ended.
func (n *node) drained() *manifestView {
	n.f.t.Helper()
	var m *manifestView
	n.f.until(func() error {
		s := n.status()
		if s.Drain == nil || s.Drain.Phase != "drained" || s.Manifest == nil {
			return fmt.Errorf("%s is not drained: %+v", n.host, s.Drain)
		}
		m = s.Manifest
		return nil
	})
	return m
}

// allMoved fails the story unless the node's last account says of every block that it moved.
func (n *node) allMoved() (m manifestView) {
	n.f.t.Helper()
	m = decode[manifestView](n.f.verb("manifest", n.host, "-o", "json").exits(0))
	moved := map[string]bool{}
	for _, e := range m.Entries {
		moved[e.ID] = e.Outcome == "moved" && e.Peer != n.host
	}
	for id := range n.blocks {
		if !moved[id] {
			n.f.t.Errorf("manifest of %s: %s did not move: %+v", n.host, id, m.Blocks)
		}
	}
	return m
}

// readBack reads every block of the node from its holder, and compares it with what was made.
func (n *node) readBack() {
	n.f.t.Helper()
	dir := n.f.t.TempDir()
	for id, want := range n.blocks {
		file := filepath.Join(dir, "block")
		if s := n.f.verb("get", id, "-o", file); s.code != 0 {
			n.f.t.Errorf("%s of %s: got exit code %d: %s", id, n.host, s.code, s.stderr)
			continue
		}
		if got := sha256Of(n.f.t, file); got != want {
			n.f.t.Errorf("%s of %s: got the sum %s, want %s", id, n.host, got, want)
		}
		if err := os.Remove(file); err != nil {
			n.f.t.Fatal(err)
		}
	}
}

// events are all events of the fleet.
func (f *town) events() (all []eventView) {
	f.t.Helper()
	for line := range strings.Lines(f.verb("events", "-o", "json").exits(0).stdout) {
		var e eventView
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			f.t.Fatalf("events: %v\n%s", err, line)
		}
		all = append(all, e)
	}
	return all
}

// count is how often an event of that type came for a node; with no node, for any.
func count(events []eventView, kind, node string) (n int) {
	for _, e := range events {
		if e.Type == kind && (node == "" || e.Node == node) {
			n++
		}
	}
	return n
}

// nobodyLost fails the story if a node was declared lost.
func (f *town) nobodyLost() {
	f.t.Helper()
	for _, e := range f.events() {
		if e.Type == "NodeLost" {
			f.t.Errorf("%s was declared lost: %v", e.Node, e.Data)
		}
	}
}

// sameInstant fails the story when a deadline is more than a second outside the moment.
func (f *town) sameInstant(what string, got *time.Time, want moment) {
	f.t.Helper()
	if got == nil {
		f.t.Errorf("%s: got no deadline, want one from %s to %s", what, want.first, want.last)
	} else if got.Before(want.first.Add(-time.Second)) || got.After(want.last.Add(time.Second)) {
		f.t.Errorf("%s: the deadline moved to %s, want it from %s to %s", what, got, want.first, want.last)
	}
}
