package coordinator

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// A cut link held back heartbeats from before the notice. They arrive after it, and must not undo it.
func TestBeatsFromBeforeANoticeDoNotUndoIt(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		say := func(sequence uint64) *api.HeartbeatReply {
			t.Helper()
			r := &api.HeartbeatRequest{Node: "a", Incarnation: a.incarnation, Status: &api.Status{RoomBytes: 1}, Sequence: sequence, PeersVersion: 7}
			reply, err := a.Heartbeat(a.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			return reply
		}
		say(1)
		a.notice("inc-1", 2*time.Minute)
		if _, err := a.WorkerDecommission(a.Context(), &api.WorkerDecommissionRequest{Node: "a", Incarnation: a.incarnation, Notice: a.status.Notice, Sequence: 100}); err != nil {
			t.Fatal(err)
		}
		for i := range uint64(2 * unsaidBeats) {
			if r := say(2 + i); r.PeersVersion != 7 || len(r.Peers) > 0 {
				t.Errorf("got %d peers of version %d, want the list left as it is: a drain needs it now", len(r.Peers), r.PeersVersion)
			}
		}
		if got := v.seen("a").State; got != string(registry.Decommissioning) {
			t.Errorf("after beats from before the notice: got %s, want %s", got, registry.Decommissioning)
		}
		for i := range uint64(unsaidBeats) {
			say(101 + i)
		}
		if got := v.seen("a").State; got != string(registry.Active) {
			t.Errorf("after beats from after the notice, without it: got %s, want %s", got, registry.Active)
		}
		// A withdrawal that was held back does not count either, and its sender must not take it for heard.
		if _, err := a.WorkerDecommission(a.Context(), &api.WorkerDecommissionRequest{Node: "a", Incarnation: a.incarnation, Notice: a.status.Notice, Sequence: 200}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.WithdrawDecommission(a.Context(), &api.WithdrawDecommissionRequest{Node: "a", Incarnation: a.incarnation, Incident: "inc-1", Sequence: 150}); status.Code(err) != codes.Aborted {
			t.Errorf("a withdrawal from before: got %v, want it refused", err)
		}
		if got := v.seen("a").State; got != string(registry.Decommissioning) {
			t.Errorf("after a withdrawal from before: got %s, want %s", got, registry.Decommissioning)
		}
	})
}

// The reply to a beat that a newer message overtook asks for the same broken blocks as the others: a node that hears of none
// forgets which of them it has carried again, and begins anew with the next reply.
func TestReplyToABeatFromBeforeANoticeAsksForWhatIsBroken(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		for _, n := range []*agent{a, b} {
			n.register()
			n.report(true)
		}
		word := []*api.HeldBlock{{Id: "cache/-/broken", From: "a", Bytes: 7}}
		for _, r := range []*api.ReportBlocksRequest{{Landed: word}, {Broken: word}} {
			r.Node, r.Incarnation = "b", b.incarnation
			if err := reports(b, r); err != nil {
				v.Fatal(err)
			}
		}
		a.notice("inc-a", time.Hour)
		if _, err := a.WorkerDecommission(a.Context(), &api.WorkerDecommissionRequest{Node: "a", Incarnation: a.incarnation, Notice: a.status.Notice, Sequence: 100}); err != nil {
			t.Fatal(err)
		}
		for _, sequence := range []uint64{101, 99} {
			reply, err := a.Heartbeat(a.Context(), &api.HeartbeatRequest{Node: "a", Incarnation: a.incarnation, Status: a.status, Sequence: sequence})
			if err != nil || len(reply.Again) != 1 {
				t.Errorf("beat %d after message 100: asked for %v, %v, want the broken block", sequence, reply.GetAgain(), err)
			}
		}
	})
}

// The announcement of a restart, which a cut link held back, arrives when the node is back: it stays ACTIVE.
func TestRestartAnnouncedLateIsOver(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		says := func(sequence uint64) error {
			_, err := a.ReportUnavailable(v.Context(), &api.ReportUnavailableRequest{Node: "a", Incarnation: a.incarnation, Sequence: sequence})
			return err
		}
		if err := says(100); err != nil {
			v.Fatal(err)
		}
		v.is("a", registry.Shutdown)
		r := &api.RegisterRequest{Node: "a", Incarnation: a.incarnation, PeerAddress: "a:7412", Status: &api.Status{RoomBytes: 1}, Began: 200, Sequence: 200}
		if _, err := a.Register(v.Context(), r); err != nil {
			v.Fatal(err)
		}
		v.is("a", registry.Active)
		v.refused(says(150), codes.Aborted, "newer word")
		v.is("a", registry.Active)
		if err := says(201); err != nil {
			v.Fatal(err)
		}
		v.is("a", registry.Shutdown)
	})
}

// A registration that a cut link held back arrives after the node's goodbye: the node stays DECOMMISSIONED. A new process may register
// whatever its clock says.
func TestRegistrationFromBeforeAGoodbyeDoesNotUndoIt(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		register := func(began, sequence uint64) {
			t.Helper()
			r := &api.RegisterRequest{Node: "a", Incarnation: a.incarnation, PeerAddress: "a:7412", Status: &api.Status{RoomBytes: 1}, Began: began, Sequence: sequence}
			if _, err := a.Register(a.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		register(100, 100)
		a.notice("inc-1", 2*time.Minute)
		if _, err := a.WorkerDecommission(a.Context(), &api.WorkerDecommissionRequest{Node: "a", Incarnation: a.incarnation, Notice: a.status.Notice, Sequence: 120}); err != nil {
			t.Fatal(err)
		}
		a.goodbye("inc-1")
		register(100, 110)
		v.is("a", registry.Decommissioned)
		register(50, 50)
		v.is("a", registry.Active)
	})
}

// A report gets stuck, and the node makes a new full report over another link. The rest of the old report arrives after that, and is
// refused.
func TestReportThatANewerOneOvertook(t *testing.T) {
	for name, begun := range map[string]bool{"it had begun": true, "nothing of it had come": false} {
		t.Run(name, func(t *testing.T) {
			inTown(t, func(v *town) {
				a := v.agent("a")
				a.register()
				stream, err := a.ReportBlocks(a.Context())
				if err != nil {
					t.Fatal(err)
				}
				say := func(sequence uint64, gone ...string) {
					_ = stream.Send(&api.ReportBlocksRequest{Node: "a", Incarnation: a.incarnation, Sequence: sequence, Gone: gone}) // the answer says whether it was heard
				}
				sequence := uint64(10)
				if begun {
					say(sequence)
					sequence = 0
					time.Sleep(time.Second)
				}
				a.sequence = 20
				a.report(true, "spark/app/x")
				say(sequence, "spark/app/x")
				if _, err := stream.CloseAndRecv(); status.Code(err) != codes.Aborted {
					t.Errorf("got %v, want it refused", err)
				}
				v.located("spark/app/x", "held", "a")
			})
		})
	}
}
