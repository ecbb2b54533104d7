package e2e_test

import (
	"testing"
	"time"
)

// A peer's machine stands still, as one does that is gone without a word: its kernel takes bytes for a while, and no answer comes. What was
// sent there goes to another peer, and nothing is missing.
func TestPeerThatStandsStill(t *testing.T) {
	f := newFleet(t)
	a, b := f.agent("host-a", "drain: {max_bytes_per_second: 2MiB}"), f.agent("host-b")
	c := f.agent("host-c")
	a.fill(300, 6<<20)
	f.up()
	a.leavesThough("a peer stands still", b.halt)
	b.kill()
	b.back()
	a.kill()
	c.onSocket().serves(t, a.blocks)
}

// leavesThough has a node leave while something befalls another one. It fails the test unless all blocks move before the deadline.
func (n *node) leavesThough(reason string, befalls func()) {
	t := n.f.t
	t.Helper()
	began := time.Now()
	n.verb("decommission", "--self", "--timeout", drainLead.String(), "--reason", reason).exits(0)
	n.underWay(20)
	befalls()
	n.f.until(n.is("DECOMMISSIONED"))
	took := time.Since(began)
	t.Logf("left after %s", took)
	if took > drainLead {
		t.Errorf("the node was done after %s, its deadline was %s", took, drainLead)
	}
	n.allMoved(n.manifest())
}
