package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The shapes of -o json, as far as the stories look at them.

type agentStatus struct {
	Notice    *noticeView
	Drain     *drainView
	Manifest  *manifestView
	Held      int64 `json:"held_blocks"`
	Unpacking struct{ Blocks int64 }
	Index     struct{ Blocks int }
	Peers     []struct{ Node, Address string }
}

type noticeView struct {
	Kind, Source, Incident, Reason string
	Deadline                       *time.Time
}

type counts struct{ Total, Moved, Lost, Skipped int64 }

type drainView struct {
	Phase      string
	Blocks     counts
	BytesTotal int64 `json:"bytes_total"`
	BytesMoved int64 `json:"bytes_moved"`
}

type nodeView struct {
	Name, State   string
	SubState      string   `json:"sub_state"`
	WaitsFor      []string `json:"waits_for"`
	Schedulable   bool
	Excluded      bool
	Disks         []diskView
	Deadline      *time.Time
	Notice        *noticeView
	Drain         *drainView
	Manifest      *manifestView
	Incarnation   string
	Decommission  string
	LastHeartbeat *float64 `json:"last_heartbeat_seconds"`
}

type manifestView struct {
	Node     string
	Incident struct {
		ID, Kind, Source string
		Deadline         *time.Time
	}
	Blocks, Bytes counts
	Entries       []entryView
}

type entryView struct {
	ID, Outcome, Peer, Reason string
	Bytes                     int64
}

type locationView struct {
	ID, State string
	Holders   []struct{ Node, Address string }
}

type blockView struct {
	ID, State, From string
	Bytes           int64
	Holders         []string
}

type eventView struct {
	Index, Soft uint64
	Type, Node  string
}

// decode reads JSON that a verb printed.
func decode[T any](s said) (v T) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.stdout), &v); err != nil {
		s.t.Fatalf("%s: %v\n%s", s.line, err, s.stdout)
	}
	return v
}

// status is what the agent says on its socket; empty while it starts.
func (n *node) status() agentStatus {
	n.f.t.Helper()
	s := n.verb("status", "-o", "json")
	if s.code != 0 {
		return agentStatus{}
	}
	return decode[agentStatus](s)
}

// seen is what the coordinator says of the node. While the coordinator starts, or does not know the node, State has the
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

// underWay waits until that many of the node's blocks have moved. It fails the test if the drain is over: the story needs
// it to go on.
func (n *node) underWay(moved int64) drainView {
	n.f.t.Helper()
	var d drainView
	n.f.until(func() error {
		s := n.status()
		if s.Drain == nil || s.Drain.Blocks.Moved < moved {
			return fmt.Errorf("%s: drain %+v, want %d blocks moved", n.host, s.Drain, moved)
		}
		d = *s.Drain
		return nil
	})
	if d.Phase == "drained" {
		n.f.t.Fatalf("%s: the drain was over before the story began: %+v", n.host, d)
	}
	return d
}

// drained waits until the agent says that its drain has ended.
func (n *node) drained() agentStatus {
	n.f.t.Helper()
	var s agentStatus
	n.f.until(func() error {
		s = n.status()
		if s.Drain == nil || s.Drain.Phase != "drained" || s.Manifest == nil {
			return fmt.Errorf("%s is not drained: %+v", n.host, s.Drain)
		}
		return nil
	})
	return s
}

// manifest is the coordinator's account of the node's last drain.
func (n *node) manifest() manifestView {
	n.f.t.Helper()
	return decode[manifestView](n.f.verb("manifest", n.host, "-o", "json").exits(0, 4))
}

// allMoved fails the test unless the manifest says of every block of the node, exactly once, that it moved.
func (n *node) allMoved(m manifestView) {
	n.f.t.Helper()
	want := n.wholes()
	if m.Blocks.Moved != int64(len(want)) || m.Blocks.Lost != 0 {
		n.f.t.Errorf("manifest of %s: got %+v, want %d moved and none lost", n.host, m.Blocks, len(want))
	}
	times := map[string]int{}
	for _, e := range m.Entries {
		if e.Outcome != "moved" {
			continue
		}
		if times[e.ID]++; times[e.ID] > 1 || !want[e.ID] || e.Peer == "" || e.Peer == n.host {
			n.f.t.Errorf("manifest of %s: unexpected entry %+v", n.host, e)
		}
	}
	if len(times) != len(want) {
		n.f.t.Errorf("manifest of %s: names %d moved blocks, want %d", n.host, len(times), len(want))
	}
}

// lost are the blocks that the manifest names as lost, with the reason.
func (m manifestView) lost() map[string]string {
	reasons := map[string]string{}
	for _, e := range m.Entries {
		if e.Outcome == "lost" {
			reasons[e.ID] = e.Reason
		}
	}
	return reasons
}

// receipted reads the agent's ledger: the blocks for which it had receipts when it was killed, and the peers that have
// them.
func (n *node) receipted() map[string]string {
	n.f.t.Helper()
	files, err := filepath.Glob(filepath.Join(n.data(), "incidents", "*", "moved.jsonl"))
	if err != nil || len(files) != 1 {
		n.f.t.Fatalf("%s: got ledgers %v (%v), want one", n.host, files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		n.f.t.Fatal(err)
	}
	peers := map[string]string{}
	for line := range strings.Lines(string(text)) {
		var e entryView
		if json.Unmarshal([]byte(line), &e) == nil {
			peers[e.ID] = e.Peer
		}
	}
	return peers
}

// held lists the landed blocks that the coordinator knows, by id.
func (f *fleet) held() map[string]blockView {
	f.t.Helper()
	all := map[string]blockView{}
	for _, b := range decode[[]blockView](f.verb("blocks", "-o", "json").exits(0)) {
		all[b.ID] = b
	}
	return all
}

// located waits until the coordinator names a holder for every block of the node.
func (n *node) located() map[string]blockView {
	n.f.t.Helper()
	var held map[string]blockView
	n.f.until(func() error {
		held = n.f.held()
		for id := range n.wholes() {
			if b := held[id]; b.State != "held" || len(b.Holders) == 0 {
				return fmt.Errorf("the coordinator says of %s: %+v", id, b)
			}
		}
		return nil
	})
	return held
}

// sameDeadline fails the test when a deadline moved by more than a second. Less may come from crossing the wire.
func (f *fleet) sameDeadline(what string, got, want *time.Time) {
	f.t.Helper()
	if got == nil || want == nil {
		f.t.Errorf("%s: got deadline %v, want %v", what, got, want)
	} else if d := got.Sub(*want).Abs(); d > time.Second {
		f.t.Errorf("%s: the deadline moved by %s, from %s to %s", what, d, want, got)
	}
}

// sameNotice fails the test unless the notice is of the same incident and has the same deadline.
func (f *fleet) sameNotice(what string, got, want *noticeView) {
	f.t.Helper()
	if got == nil || got.Incident != want.Incident {
		f.t.Errorf("%s: got notice %+v, want incident %s", what, got, want.Incident)
		return
	}
	f.sameDeadline(what, got.Deadline, want.Deadline)
}

// comes fails the test unless a deadline is that long after a moment between from and now.
func (f *fleet) comes(what string, got *time.Time, from time.Time, lead time.Duration) {
	f.t.Helper()
	first, last := from.Add(lead-time.Second), time.Now().Add(lead+time.Second) // a second, as above
	if got == nil || got.Before(first) || got.After(last) {
		f.t.Errorf("%s: got deadline %v, want one from %s to %s", what, got, first, last)
	}
}

// decodeLines reads JSON that a verb printed an object a line.
func decodeLines[T any](s said) (all []T) {
	s.t.Helper()
	for line := range strings.Lines(s.stdout) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			s.t.Fatalf("%s: %v\n%s", s.line, err, line)
		}
		all = append(all, v)
	}
	return all
}
