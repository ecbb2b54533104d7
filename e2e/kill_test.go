package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// capped makes a drain of a few megabytes last for seconds, so that a kill comes amid it. slow makes it last longer than its
// story: the agent must be started again without it before the drain ends.
const (
	capped = "drain: {max_bytes_per_second: 1MiB}"
	slow   = "drain: {max_bytes_per_second: 256KiB}"
)

func TestSourceKilledMidDrain(t *testing.T) {
	f := newFleet(t)
	a, b, c := f.agent("host-a", slow), f.agent("host-b"), f.agent("host-c")
	a.fill(40, 5<<20)
	a.shuffle(8, 2<<20)
	f.up()

	a.verb("decommission", "--self", "--timeout", "90s", "--reason", "the story's").exits(0).tells("inc-")
	a.underWay(5)
	before := a.status().Notice
	a.kill()
	receipted := a.receipted()
	if n := len(receipted); n == 0 || n >= len(a.wholes()) {
		t.Fatalf("%d of %d blocks were receipted before the kill: not amid the drain", n, len(a.wholes()))
	}

	a.reconfigure()
	a.start()
	after := a.drained()
	f.sameNotice("the agent after the restart", after.Notice, before)
	f.until(a.is("DECOMMISSIONED"))
	m := a.manifest()
	a.allMoved(m)
	f.sameDeadline("the manifest", m.Incident.Deadline, before.Deadline)
	if m.Incident.ID != before.Incident {
		t.Errorf("the manifest is of incident %s, want %s", m.Incident.ID, before.Incident)
	}

	// What was receipted before the kill was not sent again: each such block is at its one peer, and nowhere else.
	held := a.located()
	for id, peer := range receipted {
		if got := held[id].Holders; !slices.Equal(got, []string{peer}) {
			t.Errorf("%s was receipted by %s before the kill and is held by %v", id, peer, got)
		}
	}
	a.kill()
	f.gets(a.blocks)
	b.onSocket().serves(t, a.blocks)
	c.onSocket().serves(t, a.blocks)
}

func TestReceiverKilledMidDrain(t *testing.T) {
	f := newFleet(t)
	a, b, c := f.agent("host-a", "drain: {max_bytes_per_second: 512KiB}"), f.agent("host-b"), f.agent("host-c")
	a.fill(12, 5<<20)
	a.shuffle(12, 1<<20)
	f.up()

	a.verb("decommission", "--self", "--timeout", "90s").exits(0)
	a.underWay(4)
	b.kill()
	time.Sleep(300 * time.Millisecond) // long enough for the sender to notice
	b.start()
	a.drained()
	f.until(a.is("DECOMMISSIONED"))
	a.allMoved(a.manifest())
	held := a.located()
	a.kill()

	// A holder has the whole of a block, or nothing of it.
	for _, n := range []*node{b, c} {
		alone := n.onPeer().alone()
		for _, x := range a.blocks {
			got := alone.get(t, x.id, "")
			switch {
			case got.code == http.StatusOK && sum(got.body) == x.sha256:
			case got.code == http.StatusNotFound && !slices.Contains(held[x.whole].Holders, n.host):
			default:
				t.Errorf("%s serves %s with status %d, %d bytes of %d, sum right: %v; holders are %v",
					n.host, x.id, got.code, len(got.body), x.bytes, sum(got.body) == x.sha256, held[x.whole].Holders)
			}
		}
	}
	b.onSocket().serves(t, a.blocks)
	f.gets(few(a.blocks, 8))
}

// A peer that took blocks dies for good after the drain. The drained node still has the blocks and the time to send them to
// another peer. Its account, of which a peer has a copy too, then names the new places.
func TestReceiverKilledAfterTheDrain(t *testing.T) {
	f := newFleet(t, "lease: 3s")
	a, b, c := f.agent("host-a"), f.agent("host-b"), f.agent("host-c")
	a.fill(24, 256<<10)
	a.shuffle(6, 256<<10)
	f.up()

	a.verb("decommission", "--self", "--timeout", "100s").exits(0)
	a.drained()
	f.until(a.is("DECOMMISSIONED"))
	dead, live := b, c
	if c.status().Held > b.status().Held {
		dead, live = c, b
	}
	dead.kill()
	allThere := func() error {
		for _, e := range a.manifest().Entries {
			if e.Outcome == "moved" && e.Peer != live.host {
				return fmt.Errorf("%s is said to be at %s, want all of it at %s", e.ID, e.Peer, live.host)
			}
		}
		return nil
	}
	f.until(allThere)
	a.allMoved(a.manifest())
	f.until(func() error {
		if got := live.status().Held; got != int64(len(a.wholes())+1) {
			return fmt.Errorf("%s holds %d blocks, want %d and the account", live.host, got, len(a.wholes()))
		}
		return nil
	})
	time.Sleep(time.Second) // an older account may have been counted: give the newest one time to come
	a.kill()
	f.gets(a.blocks)

	f.coordinator.kill()
	if err := os.RemoveAll(filepath.Join(f.dir, "coordinator")); err != nil {
		t.Fatal(err)
	}
	f.coordinator.start()
	f.until(live.is("ACTIVE"))
	f.until(func() error {
		if said := f.verb("manifest", "host-a"); said.code != 0 {
			return fmt.Errorf("manifest: exit code %d: %s", said.code, said.stderr)
		}
		return nil
	})
	if err := allThere(); err != nil {
		t.Errorf("by the account at a peer: %v", err)
	}
	a.allMoved(a.manifest())
}

func TestCoordinatorKilledMidDrain(t *testing.T) {
	f := newFleet(t)
	a, b, _ := f.agent("host-a", slow), f.agent("host-b"), f.agent("host-c")
	a.fill(30, 6<<20)
	f.up()

	f.verb("decommission", "host-a", "--timeout", "80s", "--reason", "rack 7").exits(0)
	a.underWay(3)
	before := a.seen()
	if before.State != "DECOMMISSIONING" || before.Deadline == nil {
		t.Fatalf("amid the drain the coordinator says %+v", before)
	}
	told := f.decisions()
	f.coordinator.kill()
	time.Sleep(500 * time.Millisecond) // long enough for beats to fail
	f.coordinator.start()
	f.until(func() error {
		if s := a.seen(); s.State != "DECOMMISSIONING" && s.State != "DECOMMISSIONED" {
			return fmt.Errorf("after its restart the coordinator says %s", s.State)
		}
		return nil
	})
	after := a.seen()
	f.sameDeadline("the coordinator after its restart", after.Deadline, before.Deadline)
	if after.Decommission != before.Decommission {
		t.Errorf("after its restart the coordinator knows decommission %s, want %s", after.Decommission, before.Decommission)
	}
	if again := f.decisions(); len(again) < len(told) || !slices.Equal(again[:len(told)], told) {
		t.Errorf("events before the kill: %v\nand after: %v", told, again)
	}
	a.stop()
	a.reconfigure()
	a.start()
	a.drained()
	f.until(a.is("DECOMMISSIONED"))
	a.allMoved(a.manifest())
	for _, n := range f.nodes[1:] {
		if s := n.seen(); s.State != "ACTIVE" {
			t.Errorf("%s is %s, want ACTIVE", n.host, s.State)
		}
	}
	a.located()
	a.kill()
	f.gets(few(a.blocks, 8))
	b.onSocket().serves(t, a.blocks)
}

func TestCoordinatorDeadForTheWholeDrain(t *testing.T) {
	f := newFleet(t)
	a, b, c := f.agent("host-a"), f.agent("host-b"), f.agent("host-c")
	a.fill(30, 3<<20)
	a.shuffle(8, 1<<20)
	f.up()
	f.coordinator.kill()

	a.verb("decommission", "--self", "--timeout", "80s", "--wait").exits(0)
	s := a.drained()
	before := s.Notice.Deadline
	// The agent dies too, before the coordinator could hear of the drain.
	a.kill()
	a.start()
	f.coordinator.start()
	f.until(a.is("DECOMMISSIONED"))
	m := a.manifest()
	a.allMoved(m)
	f.sameDeadline("the manifest", m.Incident.Deadline, before)
	if m.Incident.ID != s.Notice.Incident {
		t.Errorf("the manifest is of incident %s, want %s", m.Incident.ID, s.Notice.Incident)
	}
	for _, n := range []*node{b, c} {
		f.until(n.is("ACTIVE"))
	}
	for id, x := range a.located() {
		if l := decode[locationView](f.verb("locate", id, "-o", "json").exits(0)); l.State != "held" || len(l.Holders) != len(x.Holders) {
			t.Errorf("locate %s: got %+v, want the holders %v", id, l, x.Holders)
		}
		break // one block will do: each takes a process
	}
	a.kill()
	f.gets(few(a.blocks, 8))
	c.onSocket().serves(t, a.blocks)
}

// decisions are the events of the log, which outlive the leader.
func (f *fleet) decisions() []eventView {
	f.t.Helper()
	return slices.DeleteFunc(f.events(), func(e eventView) bool { return e.Soft > 0 })
}

// events are all events that the coordinator has told so far.
func (f *fleet) events() (all []eventView) {
	f.t.Helper()
	s := f.verb("events", "-o", "json").exits(0)
	return decodeLines[eventView](s)
}
