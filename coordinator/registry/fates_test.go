package registry

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"
)

// The registry decides by its state at the time of the decision: a node may be back since the operator asked to forget it.
func TestWhoIsBackIsNotForgotten(t *testing.T) {
	s := newStory(t)
	s.register("a", "i1")
	forget := Command{Do: DoForget, Named: true, Nodes: []string{"a"}}
	if err := s.do(forget); !errors.Is(err, ErrNotAway) {
		t.Errorf("got %v, want %v", err, ErrNotAway)
	}
	s.is("a", Active, 0)
	s.plain(DoLose, "a")
	if err := s.do(forget); err != nil {
		t.Fatal(err)
	}
	if _, known := s.Nodes["a"]; known {
		t.Error("node a is still there")
	}
}

// The event of a dropped or replaced node has the state that the list of nodes showed: GONE, not DECOMMISSIONED.
func TestWhoIsDroppedWasInTheStateThatWasShown(t *testing.T) {
	for _, end := range []Command{
		{Do: DoForget, Named: true, Nodes: []string{"a"}},
		{Do: DoRegister, Nodes: []string{"a"}, Facts: &Facts{Incarnation: "i2", PeerAddress: "a:7412"}},
	} {
		s := newStory(t)
		s.register("a", "i1")
		s.drain("a", time.Minute, true)
		s.at(60).plain(DoTimeout, "a")
		end.Version, end.At = CommandVersion, s.now
		if told, err := s.Apply(end); err != nil || told[0].Data["state"] != string(Gone) {
			t.Errorf("%s: got %v, %+v, want the state %s", end.Do, err, told, Gone)
		}
	}
}

// Only the nodes that went last are remembered.
func TestFatesAreBounded(t *testing.T) {
	var f fates
	for i := range 5 {
		var some []Node
		for j := range keptFates / 4 {
			some = append(some, Node{Name: fmt.Sprint(i, "-", j), State: Lost, Since: t0.Add(time.Duration(i) * time.Minute)})
		}
		before := maps.Clone(f)
		was := f
		f = f.with(some, t0)
		if !maps.Equal(was, before) {
			t.Fatal("what a snapshot may be reading is changed")
		}
	}
	if _, old := f["0-7"]; len(f) != keptFates || old || !f["4-7"].Equal(t0.Add(4*time.Minute)) {
		t.Errorf("%d are kept, of the first: %t", len(f), old)
	}
}
