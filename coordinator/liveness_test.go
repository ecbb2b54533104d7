package coordinator

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// crowd is many nodes of one pool.
type crowd []*agent

func (v *town) crowd(pool string, n int) (all crowd) {
	v.Helper()
	for i := range n {
		a := v.agent(fmt.Sprintf("%s-%02d", pool, i))
		r := &api.RegisterRequest{Node: a.name, Incarnation: a.incarnation, PeerAddress: a.name + ":7412", Pool: pool, Zone: "z" + pool, Status: a.status}
		if _, err := a.Register(v.Context(), r); err != nil {
			v.Fatal(err)
		}
		all = append(all, a)
	}
	return all
}

// beats has all nodes send heartbeats for some seconds, two in the time after which a silent node becomes a suspect.
func (v *town) beats(seconds int, all ...crowd) {
	v.Helper()
	for range (seconds + 4) / 5 {
		time.Sleep(5 * time.Second)
		for _, a := range slices.Concat(all...) {
			a.beat()
		}
	}
}

func (v *town) lost() (names []string) {
	v.Helper()
	reply, err := v.operator().ListNodes(v.Context(), &api.ListNodesRequest{})
	if err != nil {
		v.Fatal(err)
	}
	for _, n := range reply.Nodes {
		if n.State == string(registry.Lost) {
			names = append(names, n.Name)
		}
	}
	return names
}

func (v *town) brakes() string {
	v.Helper()
	s := v.status()
	var held []string
	for _, b := range s.Brakes {
		held = append(held, fmt.Sprintf("%s %s %d/%d", b.Scope, b.Name, b.Suspects, b.Nodes))
	}
	return strings.Join(held, ", ")
}

func (v *town) status() *api.CoordinatorStatus {
	v.Helper()
	s, err := v.operator().GetStatus(v.Context(), &api.GetStatusRequest{})
	if err != nil {
		v.Fatal(err)
	}
	return s
}

func TestSuspectIsNoPeerAndComesBackForNothing(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		a.register()
		b.register()
		a.live(2)
		if peers := a.beat().Peers; len(peers) != 1 {
			v.Fatalf("got peers %v, want b", peers)
		}
		before := v.status().LastIndex
		a.live(16)
		n := v.seen("b")
		if n.State != string(registry.Active) || n.SubState != "SUSPECT" || n.Schedulable || n.Suspect == nil {
			v.Errorf("got %s %q, schedulable %t, suspect %v after half of a lease, want an ACTIVE suspect", n.State, n.SubState, n.Schedulable, n.Suspect)
		}
		if got := v.status(); got.Suspects != 1 || len(got.Brakes) != 0 {
			v.Errorf("got %d suspects, brakes %v, want 1 and none", got.Suspects, got.Brakes)
		}
		if r := a.beat(); len(r.Peers) != 0 || r.PeersVersion == 0 {
			v.Errorf("got peers %v, want none: b is silent", r.Peers)
		}
		if _, page := v.get("/metrics", nil); !strings.Contains(page, "lifeboat_nodes_suspect 1\n") {
			v.Error("the metrics do not have the suspect")
		}
		b.beat()
		if n := v.seen("b"); n.SubState != "NONE" || !n.Schedulable || n.Suspect != nil {
			v.Errorf("got %q, schedulable %t, suspect %v once it was heard, want it as before", n.SubState, n.Schedulable, n.Suspect)
		}
		time.Sleep(rosterPace)
		if r := a.beat(); len(r.Peers) != 1 {
			v.Errorf("got peers %v, want b again", r.Peers)
		}
		if got := v.status().LastIndex; got != before {
			v.Errorf("got event %d, want %d still: suspicion is not for the log", got, before)
		}
		if _, page := v.get("/metrics", nil); !strings.Contains(page, "lifeboat_nodes_recovered_total 1\n") {
			v.Error("the metrics do not count the recovery")
		}
	})
}

func TestSmallFleetsLoseTheirDead(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 10} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inTown(t, func(v *town) {
				all := v.crowd("p", n)
				v.beats(25, all[1:])
				v.is("p-00", registry.Active)
				v.beats(10, all[1:])
				v.is("p-00", registry.Lost)
				if got := v.lost(); len(got) != 1 {
					v.Errorf("got %v lost, want one", got)
				}
			})
		})
	}
}

func TestMassSilenceIsHeldAndReleased(t *testing.T) {
	inTown(t, func(v *town) {
		p, q := v.crowd("p", 10), v.crowd("q", 10)
		dead, well := slices.Concat(p[:3], q[:3]), slices.Concat(p[3:], q[3:])
		v.beats(300, well)
		if got := v.lost(); len(got) != 0 {
			v.Errorf("got %v lost, want nobody while the brake holds", got)
		}
		want := "fleet  6/20, pool p 3/10, pool q 3/10, zone zp 3/10, zone zq 3/10"
		if got := v.brakes(); got != want {
			v.Errorf("got brakes %q, want %q", got, want)
		}
		if _, page := v.get("/metrics", nil); !strings.Contains(page, `lifeboat_brake_active{scope="pool"} 2`) {
			v.Error("the metrics do not show the brakes of the pools")
		}
		_, err := api.NewOperatorClient(v.conn(certs.RoleNode, "p-00")).ReleaseBrake(v.Context(), &api.ReleaseBrakeRequest{})
		v.refused(err, codes.PermissionDenied, "operator's certificate")
		v.beats(5, crowd{dead[0]}) // one of them comes back
		before := v.status().LastIndex
		reply, err := v.operator().ReleaseBrake(v.Context(), &api.ReleaseBrakeRequest{Reason: "rack burnt"})
		if err != nil {
			v.Fatal(err)
		}
		want = "p-01 p-02 q-00 q-01 q-02"
		if got := strings.Join(reply.Nodes, " "); got != want {
			v.Errorf("got %q released, want %q", got, want)
		}
		if got := strings.Join(v.lost(), " "); got != want || v.brakes() != "" {
			v.Errorf("got %q lost, brakes %q, want %q and none", got, v.brakes(), want)
		}
		if got := v.status().LastIndex; got != before+6 {
			v.Errorf("got %d events of the release, want the release and five losses", got-before)
		}
		_, err = v.operator().ReleaseBrake(v.Context(), &api.ReleaseBrakeRequest{})
		v.refused(err, codes.FailedPrecondition, "no brake holds")
		v.restart()
		if got := strings.Join(v.lost(), " "); got != want {
			v.Errorf("got %q lost after a restart, want %q", got, want)
		}
	})
}

func TestSilentPoolHoldsItselfOnly(t *testing.T) {
	inTown(t, func(v *town) {
		v.cfg.Loss.FleetPercent = noBrake
		v.restart()
		p, q := v.crowd("p", 15), v.crowd("q", 15)
		v.beats(60, p[3:], q[1:])
		if got := strings.Join(v.lost(), " "); got != "q-00" {
			v.Errorf("got %q lost, want the one of the pool that is well", got)
		}
		if got := v.brakes(); got != "pool p 3/15, zone zp 3/15" {
			v.Errorf("got brakes %q", got)
		}
		v.beats(60, p[1:], q[1:]) // two come back, and a lease later the third is lost
		if got := strings.Join(v.lost(), " "); got != "p-00 q-00" || v.brakes() != "" {
			v.Errorf("got %q lost and brakes %q, want the last one that is silent and none", got, v.brakes())
		}
	})
}

func TestAnnouncedSilenceMeetsNoBrake(t *testing.T) {
	inTown(t, func(v *town) {
		all := v.crowd("p", 20)
		for i, a := range all[:3] { // these leave without a goodbye
			a.notice(fmt.Sprint("inc-", i), 40*time.Second)
			a.announce()
		}
		for _, a := range all[3:6] { // these are under advice
			a.status.Notice = &api.Notice{Incident: "r", Kind: "rebalance", Source: "ec2", Stance: "pre-copy"}
			a.beat()
		}
		v.order(-time.Second, "p-06", "p-07", "p-08")
		for _, a := range all[9:12] { // and these restart
			if _, err := a.ReportUnavailable(v.Context(), &api.ReportUnavailableRequest{Node: a.name, Incarnation: a.incarnation}); err != nil {
				v.Fatal(err)
			}
		}
		v.beats(20, all[12:])
		if got := v.brakes(); got != "" {
			v.Errorf("got brakes %q, want none: all of this was announced", got)
		}
		v.beats(25, all[12:])
		if got := strings.Join(v.lost(), " "); got != "p-03 p-04 p-05 p-06 p-07 p-08" {
			v.Errorf("got %q lost, want those whose leases ended, all at once", got)
		}
		for i, want := range map[int]registry.State{0: registry.Decommissioned, 9: registry.Shutdown, 12: registry.Active} {
			v.is(all[i].name, want)
		}
	})
}

func TestUnannouncedLossesArePaced(t *testing.T) {
	inTown(t, func(v *town) {
		v.cfg.Loss.FleetPercent, v.cfg.Loss.PoolPercent = noBrake, noBrake
		v.restart()
		all := v.crowd("p", 10)
		v.beats(35, all[8:])
		if got := v.lost(); len(got) != 3 {
			v.Errorf("got %v lost, want 3 in the first minute", got)
		}
		if n := v.seen("p-07"); n.SubState != "SUSPECT" {
			v.Errorf("got %s %q for one that waits, want a suspect", n.State, n.SubState)
		}
		v.beats(60, all[8:])
		if got := v.lost(); len(got) != 6 {
			v.Errorf("got %v lost, want 6 by the second minute", got)
		}
	})
}

func TestHeldNodesComeBackForNothing(t *testing.T) {
	inTown(t, func(v *town) {
		all := v.crowd("p", 10)
		v.beats(120, all[5:])
		before := v.status().LastIndex
		if got := v.brakes(); got == "" {
			v.Fatal("no brake holds")
		}
		v.beats(5, all)
		time.Sleep(2 * reapPace) // at the first of them the clock may yet be looking
		if got := v.status(); len(got.Brakes) != 0 || got.Suspects != 0 || got.LastIndex != before {
			v.Errorf("got brakes %v, %d suspects, event %d after all came back, want none, none and %d", got.Brakes, got.Suspects, got.LastIndex, before)
		}
	})
}

// A new leader judges afresh: no node is a suspect before half a lease has passed since the take-over, and a brake that held must hold
// again.
func TestNewLeaderJudgesAfresh(t *testing.T) {
	inTown(t, func(v *town) {
		all := v.crowd("p", 10)
		v.beats(60, all[4:])
		v.restart()
		v.beats(10, all[4:])
		if got := v.status(); got.Suspects != 0 || len(got.Brakes) != 0 {
			v.Errorf("got %d suspects and brakes %v at once, want none", got.Suspects, got.Brakes)
		}
		v.beats(60, all[4:])
		if got := v.brakes(); !strings.HasPrefix(got, "fleet  4/10") || len(v.lost()) != 0 {
			v.Errorf("got brakes %q, lost %v, want the brake to hold again", got, v.lost())
		}
	})
}

// A coordinator that was stopped for a minute, or whose machine was, has heard no heartbeats, which says nothing about the nodes.
func TestStoppedCoordinatorSuspectsNobody(t *testing.T) {
	inTown(t, func(v *town) {
		v.crowd("p", 5)
		v.stop()
		f := opened(v.T, v.cfg)
		if err := f.takeOver(v.Context(), 0); err != nil {
			v.Fatal(err)
		}
		began := time.Now()
		f.reapOnce(began.Add(reapPace), reapPace)
		f.reapOnce(began.Add(time.Minute), time.Minute) // SIGSTOP, SIGCONT
		f.reapOnce(began.Add(time.Minute+14*time.Second), reapPace)
		if suspects, _, _ := f.leases.tally(); suspects != 0 || f.ledger.count().nodes[registry.Lost] != 0 {
			v.Errorf("got %d suspects and %d lost, want none", suspects, f.ledger.count().nodes[registry.Lost])
		}
		f.reapOnce(began.Add(time.Minute+16*time.Second), reapPace)
		if suspects, _, _ := f.leases.tally(); suspects != 5 {
			v.Errorf("got %d suspects half of a lease later, want all 5", suspects)
		}
		if len(f.silence.brake.holds) == 0 {
			v.Error("no brake holds with the whole fleet silent")
		}
		if err := f.takeOver(v.Context(), 0); err != nil { // elected again, after another led
			v.Fatal(err)
		}
		if suspects, _, _ := f.leases.tally(); suspects != 0 || len(f.silence.brake.holds) != 0 {
			v.Errorf("got %d suspects and brakes %v right after taking over, want none", suspects, f.silence.brake.holds)
		}
	})
}

// BenchmarkJudge is one look at 10,000 nodes: the reaper takes four in a second.
func BenchmarkJudge(b *testing.B) {
	for _, silent := range []int{0, 3000} {
		b.Run(fmt.Sprint(silent, " silent"), func(b *testing.B) {
			cfg, l := Default(), &ledger{fsm: newReplica(), office: newOffice(0), streams: new(streams)}
			heard, now := newLeases(cfg.Lease, nil, t0), t0.Add(cfg.Lease)
			s := newSilence(cfg, l, heard, &roster{stale: true}, &publisher{ledger: l}, nil, slog.New(slog.DiscardHandler))
			for i := range 10_000 {
				name := fmt.Sprintf("node-%05d", i)
				l.fsm.machine.Nodes[name] = registry.Node{Name: name, State: registry.Active, Facts: registry.Facts{Pool: fmt.Sprint("p", i%20), Zone: fmt.Sprint("z", i%3)}}
				heard.beat(name, &api.Status{}, now)
				if i < silent {
					heard.nodes[name].seen, heard.nodes[name].suspected = t0, t0
				}
			}
			l.raft = new(raft.Raft)
			for b.Loop() {
				s.judge(now)
			}
		})
	}
}

func TestReplacedIncarnationIsFenced(t *testing.T) {
	inTown(t, func(v *town) {
		old := v.agent("a")
		old.register()
		old.notice("inc-1", time.Minute)
		young := v.agent("a")
		young.incarnation = "another"
		young.register()
		young.report(true, "spark/app/young")

		r, err := old.Heartbeat(v.Context(), &api.HeartbeatRequest{Node: "a", Incarnation: old.incarnation, Status: old.status})
		if err != nil || !r.Register || r.Directive != nil || len(r.Peers) != 0 {
			v.Errorf("beat: got %v, %v, want to be told to register and nothing else", r, err)
		}
		_, err = old.WorkerDecommission(v.Context(), &api.WorkerDecommissionRequest{Node: "a", Incarnation: old.incarnation, Notice: old.status.Notice})
		v.refused(err, codes.FailedPrecondition, "incarnation")
		_, err = old.WithdrawDecommission(v.Context(), &api.WithdrawDecommissionRequest{Node: "a", Incarnation: old.incarnation, Incident: "inc-1"})
		v.refused(err, codes.FailedPrecondition, "incarnation")
		_, err = old.ReportUnavailable(v.Context(), &api.ReportUnavailableRequest{Node: "a", Incarnation: old.incarnation})
		v.refused(err, codes.FailedPrecondition, "incarnation")

		report, err := old.ReportBlocks(v.Context())
		if err != nil {
			v.Fatal(err)
		}
		_ = report.Send(&api.ReportBlocksRequest{Node: "a", Incarnation: old.incarnation, Full: true})
		_, err = report.CloseAndRecv()
		v.refused(err, codes.FailedPrecondition, "incarnation")
		v.located("spark/app/young", "held", "a")

		goodbye, err := old.Goodbye(v.Context())
		if err != nil {
			v.Fatal(err)
		}
		_ = goodbye.Send(&api.GoodbyeRequest{Summary: &api.ManifestSummary{Node: "a", Incarnation: old.incarnation, Incident: "inc-1"}})
		_, err = goodbye.CloseAndRecv()
		v.refused(err, codes.FailedPrecondition, "incarnation")

		// Two machines that take each other's place with every heartbeat would fill the log. The younger keeps the name while it is there.
		_, err = old.Register(v.Context(), &api.RegisterRequest{Node: "a", Incarnation: old.incarnation, PeerAddress: "a:7412"})
		v.refused(err, codes.FailedPrecondition, "incarnation")
		if n := v.seen("a"); n.Incarnation != "another" || n.State != string(registry.Active) {
			v.Errorf("got %s of incarnation %s, want the younger, ACTIVE", n.State, n.Incarnation)
		}
		time.Sleep(v.cfg.Lease + time.Second)
		old.status.Notice = nil
		old.register()
		if n := v.seen("a"); n.Incarnation != old.incarnation {
			v.Errorf("got incarnation %s once the younger was lost, want the older again", n.Incarnation)
		}
	})
}

// A node whose clock is an hour off leaves on time: the remaining time crosses the wire, not the deadline.
func TestClockAnHourOffIsSeenAndHarmless(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		a.register()
		b.register()
		a.status.ClockAhead, b.status.ClockAhead = durationpb.New(time.Hour), durationpb.New(-300*time.Millisecond)
		a.beat()
		b.beat()
		if got := v.status().ClocksApart; got != 1 {
			v.Errorf("got %d clocks apart, want 1", got)
		}
		if _, page := v.get("/metrics", nil); !strings.Contains(page, "lifeboat_clock_ahead_seconds 3600\n") {
			v.Error("the metrics do not have the clock")
		}
		a.notice("inc-1", time.Minute)
		a.announce()
		left := v.seen("a").Remaining.AsDuration()
		if left != time.Minute {
			v.Errorf("got %s left, want the minute", left)
		}
		time.Sleep(left - time.Second)
		v.is("a", registry.Decommissioning)
		time.Sleep(time.Second + reapPace)
		v.is("a", registry.Decommissioned)
		a.status.ClockAhead = durationpb.New(time.Millisecond)
		a.beat()
		if got := v.status().ClocksApart; got != 0 {
			v.Errorf("got %d clocks apart once it was set right, want none", got)
		}
	})
}

func TestClockIsNewsOnceForEachDegree(t *testing.T) {
	was := onTime
	for _, c := range []struct {
		ahead time.Duration
		want  astray
	}{
		{999 * time.Millisecond, onTime}, {-1100 * time.Millisecond, offTime}, {900 * time.Millisecond, offTime}, {11 * time.Second, farOff},
		{9 * time.Second, farOff}, {4 * time.Second, offTime}, {-time.Hour, farOff}, {400 * time.Millisecond, onTime}, {0, onTime},
	} {
		if was = was.now(c.ahead); was != c.want {
			t.Errorf("%s: got %d, want %d", c.ahead, was, c.want)
		}
	}
}

// Whatever the settings and the fleet's size, an agent that waits for an answer in vain, reconnects within the window and misses two
// heartbeats keeps its lease, and one missed heartbeat makes no suspect.
func TestPaceKeepsTheLease(t *testing.T) {
	for _, heartbeat := range []time.Duration{minHeartbeat, time.Second, maxHeartbeat} {
		for _, lease := range []time.Duration{3 * heartbeat, 4 * heartbeat, 30 * heartbeat, time.Hour} {
			for _, after := range []time.Duration{0, 2 * heartbeat, lease - 1} {
				for _, nodes := range []int{0, 1, 3, 100, 10_000, 100_000} {
					c := Config{Heartbeat: heartbeat, Lease: lease, SuspectAfter: after}
					p := c.pace(nodes)
					said := fmt.Sprintf("heartbeat %s, lease %s, suspect after %s, %d nodes: %+v", heartbeat, lease, after, nodes, p)
					if spent := min(lease/6, 5*time.Second) + p.reconnect + 2*p.interval; spent > lease || p.reconnect < 0 {
						t.Errorf("%s: a lease must cover %s", said, spent)
					}
					if 2*p.interval > c.suspectAfter() || p.interval > lease/3 {
						t.Errorf("%s: two beats do not fit", said)
					}
				}
			}
		}
	}
	c := Default()
	if p := c.pace(3); p.interval != time.Second || p.reconnect > 2*time.Millisecond {
		t.Errorf("got %+v for three nodes, want a second and next to nothing", p)
	}
	if p := c.pace(10_000); p.interval != 1250*time.Millisecond || p.reconnect.Round(time.Second) != 7*time.Second {
		t.Errorf("got %+v for 10,000 nodes, want 1.25s and 7s", p)
	}
}

func TestLeaversBeatEverySecond(t *testing.T) {
	inTown(t, func(v *town) {
		v.cfg.Heartbeat = 5 * time.Second
		v.restart()
		a := v.agent("a")
		a.register()
		if got := a.beat().Pace.Interval.AsDuration(); got != 5*time.Second {
			v.Errorf("got %s, want the fleet's 5s", got)
		}
		v.order(time.Minute, "a")
		r := a.beat()
		if got := r.Pace.Interval.AsDuration(); got != leaverPace {
			v.Errorf("got %s for a node that leaves, want %s", got, leaverPace)
		}
		if r.Term == 0 || r.Now == nil || r.Pace.ReconnectWithin == nil {
			v.Errorf("got %v without term, clock or window", r)
		}
	})
}

// A node that was away for longer than a lease is not judged by the lease of old in the moment in which it is back and its registration
// is yet to be noted.
func TestWhoComesBackIsNotLostAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lone(t)
		if err := f.ledger.awaitLead(t.Context()); err != nil {
			t.Fatal(err)
		}
		shown := tls.ConnectionState{HandshakeComplete: true, PeerCertificates: []*x509.Certificate{certs.Dev(certs.Name{Role: certs.RoleNode, Name: "a"}).Leaf()}}
		ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: shown}})
		register := func() {
			t.Helper()
			if _, err := (&membership{fleet: f}).Register(ctx, &api.RegisterRequest{Node: "a", Incarnation: "i", PeerAddress: "a:1", Status: &api.Status{}}); err != nil {
				t.Fatal(err)
			}
		}
		register()
		if _, err := f.do(registry.Command{Do: registry.DoUnavailable, Nodes: []string{"a"}, Incarnation: "i"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * f.cfg.Lease)
		judged := false
		f.ledger.decided = func(events []registry.Event) {
			judged = true
			if lost := f.silence.judge(time.Now()); len(lost) > 0 {
				t.Errorf("%s is LOST in the moment in which it is back", lost)
			}
			f.follow(events)
		}
		register()
		if n, _ := f.ledger.node("a"); n.State != registry.Active || !judged {
			t.Errorf("it is %s", n.State)
		}
	})
}

// With the shortest lease the pause between two looks of the reaper is a large part of the lease: the reaper must not take that for a
// stopped process.
func TestShortLeaseRunsOut(t *testing.T) {
	inTown(t, func(v *town) {
		v.cfg.Heartbeat, v.cfg.Lease = 300*time.Millisecond, time.Second
		v.restart()
		v.agent("a").register()
		time.Sleep(5 * time.Second)
		v.is("a", registry.Lost)
	})
}

// The list of nodes shows no room for a node that is away, since people plan by it.
func TestWhoIsAwayHasNoRoom(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.status.RoomBytes, a.status.HeldBytes = 1<<40, 7
		a.register()
		a.beat()
		if st := v.seen("a").Status; st.GetRoomBytes() != 1<<40 {
			v.Errorf("got %v, want the room that it has", st)
		}
		time.Sleep(time.Minute)
		v.is("a", registry.Lost)
		if st := v.seen("a").Status; st.GetRoomBytes() != 0 || st.GetHeldBytes() != 7 {
			v.Errorf("got %v, want no room and what it held", st)
		}
		a.register()
		a.beat()
		if st := v.seen("a").Status; st.GetRoomBytes() != 1<<40 {
			v.Errorf("got %v once it is back, want its room", st)
		}
	})
}

// An operator takes back a node that was ordered away, and whose machine is off. The present leader never heard it: it is LOST when its lease
// ends, as any other.
func TestWhoIsTakenBackUnheardIsLost(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		v.order(time.Hour, "a")
		a.goodbye("inc1")
		v.restart()
		time.Sleep(time.Hour)
		if _, err := v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}}); err != nil {
			v.Fatal(err)
		}
		v.is("a", registry.Active)
		time.Sleep(v.cfg.Lease - time.Second)
		v.is("a", registry.Active)
		time.Sleep(2 * time.Second)
		v.is("a", registry.Lost)
		a.beat()
		v.is("a", registry.Active)
	})
}
