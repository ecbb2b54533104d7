package coordinator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

func TestOrderReachesNodeAndSurvivesRestart(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		if d := a.beat().Directive; d != nil {
			v.Errorf("got directive %v, want none", d)
		}
		v.order(90*time.Second, "a")
		d := a.live(1).Directive
		if got := d.GetRemaining().AsDuration(); d.GetDecommission() == "" || got != 89*time.Second || d.Reason != "kernel" {
			v.Fatalf("got directive %v with %s remaining, want 89s", d, got)
		}
		if n := v.seen("a"); n.SubState != "MIGRATING" || n.Schedulable || n.Remaining.AsDuration() != 89*time.Second {
			v.Errorf("got %v", n)
		}
		v.restart()
		spent := 90*time.Second - v.seen("a").Remaining.AsDuration()
		if spent < time.Second || spent > 4*time.Second {
			v.Errorf("got %s spent after a restart, want a little more than 1s", spent)
		}
		after := a.beat().Directive
		if after.GetDecommission() != d.Decommission {
			v.Errorf("got directive %v after a restart, want %s", after, d.Decommission)
		}
		// The node is silent from now on: the leader's clock ends the decommission, on time.
		left := after.Remaining.AsDuration()
		time.Sleep(left - time.Millisecond)
		v.is("a", registry.Decommissioning)
		time.Sleep(reapPace + time.Second)
		v.is("a", registry.Decommissioned)
		if n := v.seen("a"); n.SubState != "TIMEOUT" {
			v.Errorf("got sub-state %q, want TIMEOUT", n.SubState)
		}
	})
}

func TestOrderIsTakenBack(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		v.order(-time.Second, "a")
		if d := a.beat().Directive; d == nil || d.Remaining != nil {
			v.Errorf("got directive %v, want one without limit", d)
		}
		a.goodbye("inc1")
		if a.beat().Directive == nil {
			v.Error("the wish is gone once it was fulfilled: the node would take that for taken back")
		}
		if _, err := v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}}); err != nil {
			v.Fatal(err)
		}
		v.is("a", registry.Active)
		if d := a.beat().Directive; d != nil {
			v.Errorf("got directive %v, want none", d)
		}
	})
}

func TestLease(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		a.register()
		b.register()
		a.live(29)
		v.is("b", registry.Active)
		a.live(2)
		v.is("a", registry.Active)
		v.is("b", registry.Lost)
		r, err := b.Heartbeat(v.Context(), &api.HeartbeatRequest{Node: "b", Incarnation: b.incarnation})
		if err != nil || !r.Register {
			v.Errorf("a lost node beats: got %v, %v, want to be told to register", r, err)
		}
		b.beat()
		v.is("b", registry.Active)
	})
}

func TestRestartGrantsFullLease(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		time.Sleep(25 * time.Second)
		v.restart()
		if n := v.seen("a"); n.LastHeartbeat != nil {
			v.Errorf("got heartbeat age %v from a new process that heard none", n.LastHeartbeat)
		}
		time.Sleep(29 * time.Second)
		v.is("a", registry.Active)
		time.Sleep(2 * time.Second)
		v.is("a", registry.Lost)
	})
}

func TestHeldUpCoordinatorBlamesNobody(t *testing.T) {
	l := newLeases(0, []string{"a"}, t0)
	l.beat("a", nil, t0)
	l.regrant(t0.Add(time.Hour))
	if _, suspected := l.watch("a", t0.Add(time.Hour+14*time.Second), 15*time.Second); suspected {
		t.Error("the lease did not begin anew")
	}
	if _, suspected := l.watch("a", t0.Add(time.Hour+16*time.Second), 15*time.Second); !suspected {
		t.Error("the node is trusted for ever")
	}
}

func TestNodeLeavesOnItsOwnNotice(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		a.notice("inc1", 120*time.Second)
		a.beat()
		a.announce()
		a.announce()
		v.is("a", registry.Decommissioning)
		if n := v.seen("a"); n.Remaining.AsDuration() != 120*time.Second || n.Status.Notice.GetKind() != "terminate" {
			v.Errorf("got %v", n)
		}
		time.Sleep(10 * time.Second)
		for range 2 { // looking changes nothing
			if left := v.seen("a").Status.Notice.Remaining.AsDuration(); left > 110*time.Second || left < 109*time.Second {
				v.Errorf("got %s left of the notice, want 110s", left)
			}
		}
		a.notice("inc1", 110*time.Second)
		if d := a.beat().Directive; d != nil {
			v.Errorf("a node that leaves by itself is told to: %v", d)
		}
		_, err := v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}})
		v.refused(err, codes.FailedPrecondition, "run lifeboat cancel on the node")
		a.status.Drain = &api.DrainProgress{Phase: "drained"}
		a.beat()
		if n := v.seen("a"); n.SubState != "READY" {
			v.Errorf("got sub-state %q, want READY", n.SubState)
		}
		a.goodbye("inc1", &api.ManifestEntry{Id: "spark/app/x", Outcome: "moved", Peer: "b"})
		a.beat()
		v.is("a", registry.Decommissioned)
		_, err = v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}})
		v.refused(err, codes.FailedPrecondition, "run lifeboat cancel on the node")
		a.status.Notice, a.status.Drain = nil, nil
		if _, err := a.WithdrawDecommission(v.Context(), &api.WithdrawDecommissionRequest{Node: "a", Incarnation: a.incarnation, Incident: "inc1"}); err != nil {
			v.Fatal(err)
		}
		v.is("a", registry.Active)
	})
}

// What a node says only once must not be missed for good because no coordinator heard it.
func TestWordsThatNobodyHeard(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		a.notice("inc1", 60*time.Second)
		a.beat()
		v.is("a", registry.Decommissioning)
		if got := v.seen("a").Remaining.AsDuration(); got != 60*time.Second {
			v.Errorf("got %s remaining, want 60s", got)
		}
		a.status.Notice = nil
		a.live(unsaidBeats - 1)
		v.is("a", registry.Decommissioning)
		a.live(1)
		v.is("a", registry.Active)

		a.notice("inc2", 60*time.Second)
		a.announce()
		a.goodbye("inc2")
		a.live(10)
		v.is("a", registry.Decommissioned)
		a.status.Notice = nil
		a.live(unsaidBeats)
		v.is("a", registry.Active)
	})
}

func TestAnnouncedRestart(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		if _, err := a.ReportUnavailable(v.Context(), &api.ReportUnavailableRequest{Node: "a", Incarnation: a.incarnation}); err != nil {
			v.Fatal(err)
		}
		time.Sleep(v.cfg.RestartTimeout)
		v.is("a", registry.Shutdown)
		a.beat()
		v.is("a", registry.Active)
	})
}

func TestDrainedNodeAfterRestarts(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		v.order(time.Hour, "a")
		a.goodbye("inc1")
		v.restart()
		a.beat() // is told to register, and does
		v.is("a", registry.Decommissioned)
		if a.beat().Directive == nil {
			v.Error("the wish is gone after a restart")
		}
		a.register() // of its own: its agent was started again
		v.is("a", registry.Active)
	})
}

func TestPeers(t *testing.T) {
	inTown(t, func(v *town) {
		a, b, c := v.agent("a"), v.agent("b"), v.agent("c")
		for _, x := range []*agent{a, b, c} {
			x.register()
		}
		names := func(r *api.HeartbeatReply) string {
			var names []string
			for _, p := range r.Peers {
				names = append(names, p.Node)
				if p.Address != p.Node+":7412" || p.RoomBytes == 0 {
					v.Errorf("got peer %v", p)
				}
			}
			slices.Sort(names)
			return strings.Join(names, " ")
		}
		r := a.live(1)
		if got := names(r); got != "b c" || r.PeersVersion == 0 {
			v.Fatalf("got peers %q, version %d, want b and c", got, r.PeersVersion)
		}
		a.version = r.PeersVersion
		if r := a.beat(); len(r.Peers) != 0 || r.PeersVersion != a.version {
			v.Errorf("got %d peers of version %d, want none anew", len(r.Peers), r.PeersVersion)
		}
		b.status.RoomBytes -= b.status.RoomBytes / 8
		b.beat()
		if r := a.live(1); r.PeersVersion != a.version {
			v.Error("an eighth of room less is another list")
		}

		v.restart()
		for range 3 { // only this node is back: its list of peers stands
			if r := a.live(1); r.PeersVersion != a.version || len(r.Peers) != 0 {
				v.Errorf("right after a restart: got %d peers of version %d, want what it has", len(r.Peers), r.PeersVersion)
			}
		}
		b.beat()
		c.beat()
		if r := a.live(1); names(r) == "" && r.PeersVersion != a.version {
			v.Errorf("all are back: got peers %q of version %d", names(r), r.PeersVersion)
		}

		c.status.Notice = &api.Notice{Incident: "i", Kind: "rebalance", Stance: "watch"}
		c.beat()
		if r := a.live(1); names(r) != "b c" || !r.Peers[1].Advised || r.Peers[0].Advised {
			v.Errorf("got peers %v, want b, and c as one that is advised to go", r.Peers)
		}
		c.status.Notice.Stance = "drain"
		c.beat()
		if r := a.live(1); names(r) != "b" {
			v.Errorf("got peers %q, want b: c leaves", names(r))
		}
		v.order(time.Hour, "b")
		if r := a.live(1); names(r) != "" || r.PeersVersion == 0 {
			v.Errorf("got peers %q of version %d, want an empty list", names(r), r.PeersVersion)
		}
	})
}
