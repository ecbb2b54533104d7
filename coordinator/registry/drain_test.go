package registry

import (
	"errors"
	"testing"
	"time"
)

// drain orders a node away as an operator's drain does.
func (s *story) drain(name string, timeout time.Duration, gone bool) {
	s.t.Helper()
	s.must(Command{Do: DoDecommission, Nodes: []string{name}, Drain: true, Order: &Order{Timeout: timeout, Gone: gone}})
}

func (s *story) comes(name, incarnation string, want error) {
	s.t.Helper()
	err := s.do(Command{Do: DoRegister, Nodes: []string{name}, Facts: &Facts{Incarnation: incarnation, PeerAddress: name + ":7412"}})
	if !errors.Is(err, want) {
		s.t.Errorf("%s registers: got %v, want %v", name, err, want)
	}
}

func TestDrainStories(t *testing.T) {
	for name, tell := range map[string]func(*story){
		"drained, worked on, reactivated": func(s *story) {
			s.register("a", "i1")
			s.drain("a", time.Minute, false)
			s.is("a", Decommissioning, 60)
			s.at(9).goodbye("a", "inc1", 0)
			s.register("a", "i1") // it was booted
			s.is("a", Active, 0)
			if !s.Nodes["a"].Deactivated {
				s.t.Error("booted, it is given work before anybody says so")
			}
			s.plain(DoReactivate, "a")
			s.tells("NodeRegistered NodeDeactivated NodeDecommissioning NodeDecommissioned NodeReturned NodeReactivated")
		},
		"reactivated at once": func(s *story) {
			s.register("a", "i1")
			s.drain("a", time.Minute, false)
			s.plain(DoReactivate, "a")
			s.is("a", Active, 0)
			s.drain("a", time.Minute, false)
			s.goodbye("a", "inc1", 0)
			s.plain(DoReactivate, "a") // it is there still
			s.must(Command{Do: DoRegister, Nodes: []string{"a"}, Reattach: true, Facts: &Facts{Incarnation: "i1", PeerAddress: "a:7412"}})
			s.is("a", Active, 0)
		},
		"what somebody else ordered is not taken back": func(s *story) {
			s.register("a", "i1")
			s.order(time.Minute, "a")
			s.drain("a", time.Minute, false)
			s.plain(DoReactivate, "a")
			s.is("a", Decommissioning, 60)
		},
		"gone for ever": func(s *story) {
			s.register("a", "i1")
			s.drain("a", time.Minute, true)
			s.is("a", Decommissioning, 60)
			s.goodbye("a", "inc1", 0)
			s.comes("a", "i1", ErrGone)
			if err := s.do(Command{Do: DoRecommission, Nodes: []string{"a"}}); !errors.Is(err, ErrGone) {
				s.t.Errorf("recommissioned: got %v", err)
			}
			s.announce("a", "inc2", "terminate", time.Minute)
			s.plain(DoReactivate, "a")
			s.refresh(lists(nil, "a"), false, 60)
			s.refresh(lists(nil), false, 60)
			s.comes("a", "i1", ErrGone)
			s.must(Command{Do: DoRegister, Nodes: []string{"a"}, Reattach: true, Facts: &Facts{Incarnation: "i1", PeerAddress: "a:7412"}}) // to be read from while it is there
			if n := s.Nodes["a"]; n.Shown() != Gone {
				s.t.Errorf("it is %s", n.Shown())
			}
			s.at(1e6).must(Command{Do: DoForget, Nodes: []string{"a"}})
			s.comes("a", "i1", ErrGone) // the list of nodes has forgotten it
			s.comes("b", "i1", ErrGone)
			s.comes("a", "i2", nil) // another machine
		},
		"timed out, it is gone as well": func(s *story) {
			s.register("a", "i1")
			s.drain("a", time.Minute, true)
			s.at(60).plain(DoTimeout, "a")
			s.comes("a", "i1", ErrGone)
			s.tells("NodeRegistered NodeDeactivated NodeDecommissioning NodeDecommissioned NodeGone")
		},
		"a node that leaves, and one that has left, may be marked later": func(s *story) {
			for _, n := range []string{"a", "b"} {
				s.register(n, "i-"+n)
			}
			s.order(time.Minute, "a", "b")
			s.goodbye("b", "inc1", 0)
			s.drain("a", time.Minute, true)
			s.drain("b", time.Minute, true)
			s.is("a", Decommissioning, 60)
			s.drain("a", 2*time.Minute, false) // it stays marked
			s.is("a", Decommissioning, 120)
			s.at(120).plain(DoTimeout, "a")
			s.comes("a", "i-a", ErrGone)
			s.comes("b", "i-b", ErrGone)
		},
		"one that is away is gone at once where it has no time": func(s *story) {
			s.register("a", "i1")
			s.plain(DoLose, "a")
			s.drain("a", 0, true)
			s.comes("a", "i1", ErrGone)
		},
		"one that is away is gone once it is back and has left": func(s *story) {
			s.register("a", "i1")
			s.plain(DoLose, "a")
			s.drain("a", time.Minute, true)
			s.at(9).register("a", "i1")
			s.is("a", Decommissioning, 69)
			s.goodbye("a", "inc1", 0)
			s.comes("a", "i1", ErrGone)
			s.tells("NodeRegistered NodeLost NodeDeactivated NodeDecommissioning NodeReturned NodeDecommissioned NodeGone")
		},
		"gone when the host files end it before its time": func(s *story) {
			for _, n := range []string{"a", "b"} {
				s.register(n, "i-"+n)
				s.drain(n, time.Minute, true)
			}
			s.refresh(lists([]string{"a"}, "a"), false, 60) // b is in neither list
			s.refresh(lists(nil), false, 60)
			s.comes("a", "i-a", ErrGone)
			s.comes("b", "i-b", ErrGone)
		},
		"one that was taken back and is still away": func(s *story) {
			s.register("a", "i1")
			s.drain("a", time.Minute, false)
			s.goodbye("a", "inc1", 0)
			s.plain(DoReactivate, "a") // it may come, and has not
			s.drain("a", time.Minute, true)
			s.comes("a", "i1", ErrGone)
		},
		"taken back before it had left": func(s *story) {
			s.register("a", "i1")
			s.drain("a", time.Minute, true)
			s.plain(DoRecommission, "a")
			s.is("a", Active, 0)
			s.drain("a", time.Minute, false)
			s.goodbye("a", "inc1", 0)
			s.comes("a", "i1", nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			tell(s)
			if err := checkMachine(s.Registry); err != nil {
				t.Error(err)
			}
		})
	}
}

// When there are too many the first banned are forgotten.
func TestBanned(t *testing.T) {
	m := New()
	for i := range keptBanned + 2 {
		m.ban(Node{Gone: true, Facts: Facts{Incarnation: "i" + time.Duration(i).String()}})
	}
	m.ban(Node{Gone: true, Facts: Facts{Incarnation: m.Banned[0]}})
	m.ban(Node{Facts: Facts{Incarnation: "there"}})
	if n := len(m.Banned); n != keptBanned || m.Banned[0] != "i2ns" {
		t.Errorf("got %d from %s", n, m.Banned[0])
	}
}
