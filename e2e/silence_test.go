package e2e_test

import (
	"slices"
	"testing"
)

func TestStoppingIsNotLeaving(t *testing.T) {
	f := newFleet(t, "lease: 10s")
	a, b := f.agent("host-a", slow), f.agent("host-b")
	a.fill(30, 6<<20)
	f.up()
	a.stop()
	f.until(a.is("SHUTDOWN"))
	a.start()
	f.until(a.is("ACTIVE"))
	f.verb("manifest", "host-a").exits(3)

	// An agent that is stopped amid its drain goes on with it when it is started again.
	a.verb("decommission", "--self", "--timeout", "60s").exits(0)
	a.underWay(3)
	before := a.status().Notice
	a.stop()
	if s := a.seen().State; s != "DECOMMISSIONING" {
		t.Errorf("stopped amid its drain: got %s, want DECOMMISSIONING", s)
	}
	a.reconfigure()
	a.start()
	after := a.drained().Notice
	if after == nil || after.Incident != before.Incident {
		t.Errorf("after the restart: got %+v, want incident %s", after, before.Incident)
	}
	f.until(a.is("DECOMMISSIONED"))
	a.allMoved(a.manifest())
	b.onSocket().alone().serves(t, few(a.blocks, 6))
	f.coordinator.stop()
	f.coordinator.start()
	f.until(a.is("DECOMMISSIONED"))
}

func TestSilentNodeIsLostAndReturns(t *testing.T) {
	f := newFleet(t, "lease: 5s")
	a, b := f.agent("host-a"), f.agent("host-b")
	f.up()
	lived := len(f.events())
	a.kill()
	f.until(a.is("LOST"))
	f.until(b.knows(0))
	incarnation := a.seen().Incarnation
	a.start()
	f.until(a.is("ACTIVE"))
	if got := a.seen().Incarnation; got != incarnation {
		t.Errorf("the node came back as incarnation %s, was %s", got, incarnation)
	}
	var types []string
	for _, e := range f.events()[lived:] {
		if e.Node == "host-a" {
			types = append(types, e.Type)
		}
	}
	if want := []string{"NodeSuspect", "NodeLost", "NodeReturned"}; len(types) < len(want) || !slices.Equal(types[:len(want)], want) {
		t.Errorf("events of host-a since it fell silent: got %v, want %v", types, want)
	}
}
