package coordinator

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
)

// drain orders a node away as an operator's drain does.
func (s *story) drain(name string, timeout time.Duration, gone bool) {
	s.t.Helper()
	s.must(command{Do: doDecommission, Nodes: []string{name}, Drain: true, Order: &order{Timeout: timeout, Gone: gone}})
}

func (s *story) comes(name, incarnation string, want error) {
	s.t.Helper()
	err := s.do(command{Do: doRegister, Nodes: []string{name}, Facts: &facts{Incarnation: incarnation, PeerAddress: name + ":7412"}})
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
			s.plain(doReactivate, "a")
			s.tells("NodeRegistered NodeDeactivated NodeDecommissioning NodeDecommissioned NodeReturned NodeReactivated")
		},
		"reactivated at once": func(s *story) {
			s.register("a", "i1")
			s.drain("a", time.Minute, false)
			s.plain(doReactivate, "a")
			s.is("a", Active, 0)
			s.drain("a", time.Minute, false)
			s.goodbye("a", "inc1", 0)
			s.plain(doReactivate, "a") // it is there still
			s.must(command{Do: doRegister, Nodes: []string{"a"}, Reattach: true, Facts: &facts{Incarnation: "i1", PeerAddress: "a:7412"}})
			s.is("a", Active, 0)
		},
		"what somebody else ordered is not taken back": func(s *story) {
			s.register("a", "i1")
			s.order(time.Minute, "a")
			s.drain("a", time.Minute, false)
			s.plain(doReactivate, "a")
			s.is("a", Decommissioning, 60)
		},
		"gone for ever": func(s *story) {
			s.register("a", "i1")
			s.drain("a", time.Minute, true)
			s.is("a", Decommissioning, 60)
			s.goodbye("a", "inc1", 0)
			s.comes("a", "i1", errGone)
			if err := s.do(command{Do: doRecommission, Nodes: []string{"a"}}); !errors.Is(err, errGone) {
				s.t.Errorf("recommissioned: got %v", err)
			}
			s.announce("a", "inc2", "terminate", time.Minute)
			s.plain(doReactivate, "a")
			s.refresh(lists(nil, "a"), false, 60)
			s.refresh(lists(nil), false, 60)
			s.comes("a", "i1", errGone)
			s.must(command{Do: doRegister, Nodes: []string{"a"}, Reattach: true, Facts: &facts{Incarnation: "i1", PeerAddress: "a:7412"}}) // to be read from while it is there
			if n := s.Nodes["a"]; n.shown() != Gone {
				s.t.Errorf("it is %s", n.shown())
			}
			s.at(1e6).must(command{Do: doForget, Nodes: []string{"a"}})
			s.comes("a", "i1", errGone) // the list of nodes has forgotten it
			s.comes("b", "i1", errGone)
			s.comes("a", "i2", nil) // another machine
		},
		"timed out, it is gone as well": func(s *story) {
			s.register("a", "i1")
			s.drain("a", time.Minute, true)
			s.at(60).plain(doTimeout, "a")
			s.comes("a", "i1", errGone)
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
			s.at(120).plain(doTimeout, "a")
			s.comes("a", "i-a", errGone)
			s.comes("b", "i-b", errGone)
		},
		"one that is away is gone at once where it has no time": func(s *story) {
			s.register("a", "i1")
			s.plain(doLose, "a")
			s.drain("a", 0, true)
			s.comes("a", "i1", errGone)
		},
		"one that is away is gone once it is back and has left": func(s *story) {
			s.register("a", "i1")
			s.plain(doLose, "a")
			s.drain("a", time.Minute, true)
			s.at(9).register("a", "i1")
			s.is("a", Decommissioning, 69)
			s.goodbye("a", "inc1", 0)
			s.comes("a", "i1", errGone)
			s.tells("NodeRegistered NodeLost NodeDeactivated NodeDecommissioning NodeReturned NodeDecommissioned NodeGone")
		},
		"gone when the host files end it before its time": func(s *story) {
			for _, n := range []string{"a", "b"} {
				s.register(n, "i-"+n)
				s.drain(n, time.Minute, true)
			}
			s.refresh(lists([]string{"a"}, "a"), false, 60) // b is in neither list
			s.refresh(lists(nil), false, 60)
			s.comes("a", "i-a", errGone)
			s.comes("b", "i-b", errGone)
		},
		"one that was taken back and is still away": func(s *story) {
			s.register("a", "i1")
			s.drain("a", time.Minute, false)
			s.goodbye("a", "inc1", 0)
			s.plain(doReactivate, "a") // it may come, and has not
			s.drain("a", time.Minute, true)
			s.comes("a", "i1", errGone)
		},
		"taken back before it had left": func(s *story) {
			s.register("a", "i1")
			s.drain("a", time.Minute, true)
			s.plain(doRecommission, "a")
			s.is("a", Active, 0)
			s.drain("a", time.Minute, false)
			s.goodbye("a", "inc1", 0)
			s.comes("a", "i1", nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			tell(s)
			if err := checkMachine(s.machine); err != nil {
				t.Error(err)
			}
		})
	}
}

// The bound forgets who was banned first.
func TestBanned(t *testing.T) {
	m := newMachine()
	for i := range keptBanned + 2 {
		m.ban(node{Gone: true, facts: facts{Incarnation: "i" + time.Duration(i).String()}})
	}
	m.ban(node{Gone: true, facts: facts{Incarnation: m.Banned[0]}})
	m.ban(node{facts: facts{Incarnation: "there"}})
	if n := len(m.Banned); n != keptBanned || m.Banned[0] != "i2ns" {
		t.Errorf("got %d from %s", n, m.Banned[0])
	}
}

// What an operator is told, by the calls.
func TestOperatorDrains(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.beat()
		ask := func(r *api.DecommissionRequest) error {
			r.Nodes = []string{"a"}
			_, err := v.operator().Decommission(v.Context(), r)
			return err
		}
		v.refused(ask(&api.DecommissionRequest{MarkGone: true, LeavingOnly: true}), codes.InvalidArgument, "leaving_only")
		if err := ask(&api.DecommissionRequest{Drain: true, MarkGone: true, Timeout: durationpb.New(time.Minute)}); err != nil {
			v.Fatal(err)
		}
		if n := v.seen("a"); n.State != string(Decommissioning) || !n.Deactivated {
			v.Errorf("got %v", n)
		}
		a.goodbye("inc-1")
		if n := v.seen("a"); n.State != string(Gone) || n.Schedulable {
			v.Errorf("got %v", n)
		}
		v.refused(a.tryRegister(), codes.FailedPrecondition, "GONE")
		_, err := v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}})
		v.refused(err, codes.FailedPrecondition, "GONE")
		if r := v.audit(0, "")[0]; r.Asked != "drain" || r.Detail["mark_gone"] != "yes" {
			v.Errorf("the audit has %v", r)
		}
	})
}
