package e2e_test

import (
	"slices"
	"testing"
	"time"
)

func TestStoppingIsNotLeaving(t *testing.T) {
	f := newFleet(t, "lease: 2s")
	a, b := f.agent("host-a", slow), f.agent("host-b")
	a.fill(30, 6<<20)
	f.up()
	a.stop()
	f.until(5*time.Second, a.is("SHUTDOWN"))
	a.start()
	f.until(10*time.Second, a.is("ACTIVE"))
	f.verb("manifest", "host-a").exits(3)

	// Stopped amid its drain it goes on when it is started again.
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
	f.until(10*time.Second, a.is("DECOMMISSIONED"))
	a.allMoved(a.manifest())
	b.onSocket().serves(t, few(a.blocks, 6))
	f.coordinator.stop()
	f.coordinator.start()
	f.until(10*time.Second, a.is("DECOMMISSIONED"))
}

func TestSilentNodeIsLostAndReturns(t *testing.T) {
	f := newFleet(t, "lease: 1s")
	a, b := f.agent("host-a"), f.agent("host-b")
	f.up()
	a.kill()
	f.until(10*time.Second, a.is("LOST"))
	f.until(5*time.Second, b.knows(0))
	incarnation := a.seen().Incarnation
	a.start()
	f.until(10*time.Second, a.is("ACTIVE"))
	if got := a.seen().Incarnation; got != incarnation {
		t.Errorf("the node came back as incarnation %s, was %s", got, incarnation)
	}
	var types []string
	for _, e := range f.events() {
		if e.Node == "host-a" {
			types = append(types, e.Type)
		}
	}
	if want := []string{"NodeRegistered", "NodeSuspect", "NodeLost", "NodeReturned"}; !slices.Equal(types, want) {
		t.Errorf("events of host-a: got %v, want %v", types, want)
	}
}
