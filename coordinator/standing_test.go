package coordinator

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/api"
)

// A node that was lost while an order stood gives its account before it beats: its link is back, and what it said last is said again.
func TestGoodbyeOfALostNodeKeepsTheOrder(t *testing.T) {
	for name, o := range map[string]order{"without a limit": {Timeout: -1}, "for ever": {Timeout: -1, Gone: true}} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.register("a", "i1")
			s.must(command{Do: doDecommission, Nodes: []string{"a"}, Order: &o})
			s.announce("a", "inc1", echo, 0)
			s.at(60).plain(doLose, "a")
			s.is("a", Lost, 0)
			s.at(70).goodbye("a", "inc1", 0)
			n := s.Nodes["a"]
			if want := map[bool]State{false: Decommissioned, true: Gone}[o.Gone]; n.shown() != want || n.Decommission.Order == nil || directive(n, s.now) == nil {
				t.Errorf("got %s with %+v, want %s, and the order", n.shown(), n.Decommission, want)
			}
		})
	}
}

// A node was sent away at once while it could not be heard, and has a notice of its own, which is withdrawn.
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

// A machine is in the middle of a report, for its disk is slow, when another comes under its name and tells all that it has.
func TestReportOfAMachineThatWasReplaced(t *testing.T) {
	for name, ends := range map[string]bool{"it says more": false, "it is at its end": true} {
		t.Run(name, func(t *testing.T) {
			inTown(t, func(v *town) {
				old, is := v.agent("a"), v.agent("a")
				is.incarnation = "another machine"
				old.register()
				stream, err := old.ReportBlocks(v.Context())
				if err != nil {
					v.Fatal(err)
				}
				say := func(r *api.ReportBlocksRequest) {
					r.Node, r.Incarnation = "a", old.incarnation
					_ = stream.Send(r) // the answer says whether it was heard
				}
				say(&api.ReportBlocksRequest{Full: true})
				was := &api.ReportBlocksRequest{Landed: []*api.HeldBlock{{Id: "spark/app/old", Bytes: 7, From: "b"}}}
				if ends {
					say(was)
				}
				time.Sleep(time.Second)
				is.register()
				is.report(true, "spark/app/new")
				if !ends {
					say(was)
				}
				if _, err := stream.CloseAndRecv(); err == nil {
					v.Error("it was taken")
				}
				v.located("spark/app/new", "held", "a")
				v.located("spark/app/old", "unknown")
			})
		})
	}
}
