package registry

import (
	"testing"
	"time"
)

// A node that was drained is reactivated, and ordered away again before it has come back: the newest word counts.
func TestOrderForANodeThatMayComeBack(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"at once": 0, "with a limit": time.Hour, "without one": -1} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.register("a", "i1")
			s.must(Command{Do: DoDecommission, Nodes: []string{"a"}, Order: &Order{Timeout: time.Hour}, Drain: true})
			s.goodbye("a", "inc1", 0)
			s.at(10).plain(DoReactivate, "a")
			if !s.Nodes["a"].MayReturn() {
				t.Fatal("the order stands")
			}
			s.told = nil
			s.at(11).order(timeout, "a")
			s.tells(EventDecommissioning)
			n := s.Nodes["a"]
			if n.State != Decommissioned || n.Wish() == nil || !n.Accounted() {
				t.Errorf("got %s with %+v, want it to stay out by the order, with its manifest", n.State, n.Decommission)
			}
			s.register("a", "i1", func(c *Command) { c.Reattach = true })
			s.is("a", Decommissioned, 0)
			s.at(20).plain(DoRecommission, "a")
			s.is("a", Active, 0)
		})
	}
}
