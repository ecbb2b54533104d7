package heartbeat

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/api"
)

func TestFence(t *testing.T) {
	var f fence
	now := time.Unix(0, 0)
	for _, c := range []struct {
		after  time.Duration
		term   uint64
		passes bool
	}{
		{0, 5, true}, {time.Second, 5, true}, {time.Second, 4, false}, {time.Second, 0, true}, {0, 7, true}, {0, 5, false},
		{fenceFor - time.Millisecond, 5, false}, {time.Millisecond, 5, true}, // term 7 has not been heard for fenceFor
		{0, 1, false}, {fenceFor, 1, true}, {0, 2, true},
	} {
		now = now.Add(c.after)
		if err := f.admit(c.term, now); (err == nil) != c.passes {
			t.Errorf("term %d, %s later: got %v, want passes %t", c.term, c.after, err, c.passes)
		}
	}
}

// A leader that slept through its successor's election wakes and says what it was about to say.
func TestDeposedLeaderIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, book := newNetwork(), &logbook{}
		deposed := &coordinator{interval: time.Second, term: 4, known: true, version: 9,
			directive: &api.Directive{Decommission: "dec-old"}, peers: []*api.Peer{{Node: "old", Address: "10.0.0.8:1"}}}
		leader := &coordinator{interval: time.Second, term: 5, version: 3, peers: []*api.Peer{{Node: "new", Address: "10.0.0.7:1"}}}
		stop := n.serve(t, addrA, leader)
		n.serve(t, addrB, deposed)
		cfg := config(n, addrA, addrB)
		cfg.Log = book.log()
		c := newClient(t, cfg)
		start(t, c)
		time.Sleep(5 * time.Second)
		stop()
		time.Sleep(5 * time.Second)
		if got := c.Peers(); len(got) != 1 || got[0].Node != "new" {
			t.Errorf("got peers %v of a deposed leader, want those of its successor", got)
		}
		if d := read(deposed, func() int { return len(deposed.beats) }); d == 0 {
			t.Fatal("the deposed leader was never asked")
		}
		if book.count("answers as the leader of term 4, and one of term 5 was heard") == 0 {
			t.Error("nothing is logged about it")
		}
		n.serve(t, addrA, leader)
		time.Sleep(5 * time.Second)
		if addr, _, trouble := c.Health(); addr != addrA || trouble != "" {
			t.Errorf("got %s in use with trouble %q, want the leader", addr, trouble)
		}
	})
}

// A coordinator that was restored from a snapshot, or begins with nothing, counts its terms from one.
func TestCoordinatorMadeAnewIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, first, anew := newNetwork(), &coordinator{term: 40}, &coordinator{term: 1}
		stop := n.serve(t, addrA, first)
		start(t, newClient(t, config(n, addrA)))
		time.Sleep(5 * time.Second)
		stop()
		n.serve(t, addrA, anew)
		time.Sleep(fenceFor + backoffMost)
		if got := read(anew, func() int { return len(anew.registered) }); got == 0 {
			t.Fatalf("got no registration %v after the coordinator was made anew", fenceFor+backoffMost)
		}
		before := anew.beatCount()
		time.Sleep(10 * time.Second)
		if got := anew.beatCount() - before; got < 8 {
			t.Errorf("got %d beats in ten seconds, want one a second", got)
		}
	})
}
