package registry

import (
	"testing"
	"time"
)

// A node that became LOST while an order stood delivers its manifest before a heartbeat: its link is back, and it repeats its last call.
func TestGoodbyeOfALostNodeKeepsTheOrder(t *testing.T) {
	for name, o := range map[string]Order{"without a limit": {Timeout: -1}, "for ever": {Timeout: -1, Gone: true}} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.register("a", "i1")
			s.must(Command{Do: DoDecommission, Nodes: []string{"a"}, Order: &o})
			s.announce("a", "inc1", Echo, 0)
			s.at(60).plain(DoLose, "a")
			s.is("a", Lost, 0)
			s.at(70).goodbye("a", "inc1", 0)
			n := s.Nodes["a"]
			if want := map[bool]State{false: Decommissioned, true: Gone}[o.Gone]; n.Shown() != want || n.Decommission.Order == nil || n.Wish() == nil {
				t.Errorf("got %s with %+v, want %s, and the order", n.Shown(), n.Decommission, want)
			}
		})
	}
}

// A silent node was ordered away at once. It has a notice of its own, which is withdrawn: the order stands.
func TestNoticeOfANodeThatWasSentAwayKeepsTheOrder(t *testing.T) {
	s := newStory(t)
	s.register("a", "i1")
	s.order(0, "a")
	s.at(10).announce("a", "inc1", "terminate", 2*time.Minute)
	s.at(20).withdraw("a", "inc1")
	s.is("a", Decommissioned, 0)
	if s.Nodes["a"].Decommission.Order == nil {
		t.Error("the order is forgotten")
	}
}
