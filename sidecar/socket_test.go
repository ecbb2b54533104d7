package sidecar

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/localsock"
	"github.com/lifeboat/lifeboat/pipenet"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/preemption/ec2fake"
	"github.com/lifeboat/lifeboat/workloads"
)

func TestRehearsal(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(Action{Name: "late"})
		m.action(Action{Name: "early", When: "watch"})
		late, early := &fake{}, &fake{}
		m.start(late, early)
		calls := &local{sidecar: m.Sidecar}

		dry, err := calls.Simulate(t.Context(), &api.SimulateRequest{Kind: "rebalance", DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		if dry.Incident != "" || dry.Stance != "pre-copy" || len(dry.Actions) != 1 || !strings.HasPrefix(dry.Actions[0], "early: a fake") {
			t.Errorf("a dry run: got %v, want the one action that would be told", dry)
		}
		m.pass(time.Second)
		m.told("early", early)

		for range 2 { // the second must not count as part of the first
			r, err := calls.Simulate(t.Context(), &api.SimulateRequest{Kind: "terminate", In: durationpb.New(time.Minute)})
			if err != nil {
				t.Fatal(err)
			}
			if r.Incident == "" || r.Stance != "drain" || len(r.Actions) != 2 {
				t.Errorf("got %v, want an incident that everybody is told of", r)
			}
			m.pass(30 * time.Second)
			if h := late.heard(); !h[len(h)-1].Rehearsal || h[len(h)-1].Source != "simulate" {
				t.Errorf("told %+v, want that it is a rehearsal", h[0].Word)
			}
			m.pass(time.Minute)
		}
		m.told("late", late, noticed, withdrawn, noticed, withdrawn)
		m.told("early", early, noticed, withdrawn, noticed, withdrawn)

		far, err := calls.Simulate(t.Context(), &api.SimulateRequest{Kind: "retirement", In: durationpb.New(time.Hour), DryRun: true})
		if err != nil || far.Stance != "pre-copy" || far.Goes != "drain" || far.Changes.AsDuration() != 58*time.Minute {
			t.Errorf("an appointment: got %v %v, want a drain in 58 minutes", far, err)
		}
		m.cloud.Interrupt("stop", time.Now().Add(2*time.Minute))
		m.pass(2 * time.Second)
		if _, err := calls.Simulate(t.Context(), &api.SimulateRequest{Kind: "stop"}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("in earnest: got %v, want it refused", err)
		}
		if _, err := calls.Simulate(t.Context(), &api.SimulateRequest{Kind: "flood"}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("an unknown kind: got %v, want it refused", err)
		}
		if _, err := calls.Simulate(t.Context(), &api.SimulateRequest{Kind: "stop", In: durationpb.New(0)}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("a rehearsal that is over as it begins: got %v, want it refused", err)
		}
	})
}

// An action that was told of a rehearsal is told when it becomes earnest, with all the time that there is then. An action
// that is being told at that moment is told anew.
func TestNoticeAmidARehearsal(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(Action{Name: "quick"})
		m.action(Action{Name: "slow", Timeout: 10 * time.Minute})
		quick, slow := &fake{}, &fake{tell: hang}
		m.start(quick, slow)
		calls := &local{sidecar: m.Sidecar}
		if _, err := calls.Simulate(t.Context(), &api.SimulateRequest{Kind: "terminate", In: durationpb.New(30 * time.Second)}); err != nil {
			t.Fatal(err)
		}
		m.pass(10 * time.Second)
		m.cloud.Interrupt("terminate", time.Now().Add(2*time.Minute))
		m.pass(5 * time.Second)
		for who, f := range map[string]*fake{"quick": quick, "slow": slow} {
			h := m.told(who, f, noticed, noticed)
			if !h[0].Rehearsal || h[1].Rehearsal || h[1].Source != "ec2" || h[0].Incident == h[1].Incident || h[1].deadline.Sub(h[1].at) < time.Minute {
				t.Errorf("%s: told %+v, want a rehearsal, and then another incident in earnest", who, h)
			}
		}
		m.pass(time.Minute) // beyond the rehearsal's end
		m.told("quick", quick, noticed, noticed)
	})
}

// A cloud's advice during a rehearsal does not make it earnest, releases no machine, and stands when the rehearsal is over.
func TestAdviceAmidARehearsal(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		d := &door{}
		m.source = d
		m.action(Action{Name: "early", When: "pre-copy"})
		m.action(Action{Name: "late"})
		early, late := &fake{}, &fake{}
		m.start(early, late)
		calls := &local{sidecar: m.Sidecar}
		if _, err := calls.Simulate(t.Context(), &api.SimulateRequest{Kind: "terminate", In: durationpb.New(time.Minute)}); err != nil {
			t.Fatal(err)
		}
		m.pass(10 * time.Second)
		m.cloud.Rebalance()
		m.pass(10 * time.Second)
		m.told("early", early, noticed)
		m.told("late", late, noticed)
		if got := d.opened(); slices.Contains(got, "ec2") {
			t.Errorf("a rehearsal released the machine for %q", got)
		}
		m.pass(time.Minute)
		m.told("late", late, noticed, withdrawn)
		h := m.told("early", early, noticed, withdrawn, noticed)
		if h[2].Rehearsal || h[2].Kind != "rebalance" || h[2].Incident == h[0].Incident {
			t.Errorf("told %+v, want the advice in earnest", h[2].Word)
		}
	})
}

// An appointment that is made during a rehearsal and lies days ahead does not make it earnest: nobody is told to leave before
// its time, and the rehearsal ends when it must.
func TestAppointmentAmidARehearsal(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(Action{Name: "early", When: "pre-copy"})
		m.action(Action{Name: "late"})
		early, late := &fake{}, &fake{}
		m.start(early, late)
		if _, err := (&local{sidecar: m.Sidecar}).Simulate(t.Context(), &api.SimulateRequest{Kind: "terminate", In: durationpb.New(2 * time.Minute)}); err != nil {
			t.Fatal(err)
		}
		m.pass(10 * time.Second)
		at := time.Now().Add(9 * 24 * time.Hour)
		m.cloud.Schedule(ec2fake.Event{Code: "instance-stop", EventID: "instance-event-1", State: "active", NotBefore: ec2fake.EventTime(at)})
		m.pass(70 * time.Second)
		m.told("late", late, noticed)
		m.pass(time.Minute)
		m.told("late", late, noticed, withdrawn)
		h := m.told("early", early, noticed, withdrawn, noticed)
		if h[2].Rehearsal || h[2].Kind != "stop" || h[2].Stance != "pre-copy" {
			t.Errorf("told %+v, want the appointment in earnest", h[2].Word)
		}
	})
}

func TestPolicyThatIgnoresPeopleSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.cfg.Policy = preemption.Policy{preemption.KindManual: preemption.StanceIgnore}
		m.action(Action{Name: "one"})
		m.start(&fake{})
		_, err := (&local{sidecar: m.Sidecar}).DecommissionSelf(t.Context(), &api.DecommissionSelfRequest{})
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("got %v, want it refused: it would wait for ever", err)
		}
	})
}

// real runs a sidecar on real sockets until the test ends.
func real(t *testing.T, f *fake) (*Sidecar, api.LocalClient) {
	t.Helper()
	cfg := Default()
	cfg.Node.Name, cfg.DataDir, cfg.Cloud.Provider = "host-a", t.TempDir(), "none"
	cfg.Listen = Listen{HTTP: "127.0.0.1:0", Socket: shortDir(t) + "/s"}
	cfg.Actions = []Action{{Name: "one", Webhook: Webhook{URL: "http://replaced.test"}}}
	s, err := New(t.Context(), cfg, Deps{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	s.actions[0].Action = f
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	conn, err := grpc.NewClient("unix:"+cfg.Listen.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		stop()
		if err := <-over; err != nil {
			t.Errorf("Run ended with %v, want nil", err)
		}
	})
	return s, api.NewLocalClient(conn)
}

// A caller that gives an earlier deadline is answered with it, once it is on disk.
func TestEarlierDeadlineIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(Action{Name: "one"})
		m.start(&fake{})
		calls := &local{sidecar: m.Sidecar}
		for _, r := range []*api.DecommissionSelfRequest{{}, {Timeout: durationpb.New(time.Minute)}, {Timeout: durationpb.New(time.Hour)}} {
			said, err := calls.DecommissionSelf(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			want := r.Timeout
			if want.AsDuration() > time.Minute {
				want = durationpb.New(time.Minute) // the earlier deadline stays
			}
			if got := said.Remaining; (got == nil) != (want == nil) || (got.AsDuration()-want.AsDuration()).Abs() > time.Second {
				t.Errorf("said with %v: answered with %v, want %v", r.Timeout.AsDuration(), got.AsDuration(), want.AsDuration())
			}
		}
	})
}

// What the command line calls, on a real socket, where the kernel says who calls.
func TestSocketDecommissionsAndCancels(t *testing.T) {
	arrived := make(chan struct{}, 2)
	s, calls := real(t, &fake{tell: func(context.Context, workloads.Word) error { arrived <- struct{}{}; return nil }})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, r := range []*api.DecommissionSelfRequest{
		{Timeout: durationpb.New(-time.Second)}, {Timeout: durationpb.New(1000 * 24 * time.Hour)}, {Reason: strings.Repeat("x", localsock.LongestReason+1)},
	} {
		if _, err := calls.DecommissionSelf(ctx, r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%.60v: got %v, want it refused", r, err)
		}
	}
	said, err := calls.DecommissionSelf(ctx, &api.DecommissionSelfRequest{Timeout: durationpb.New(time.Hour), Reason: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	<-arrived
	for changes := s.incidents.Changes(); ; changes = s.incidents.Changes() {
		if p, _ := s.incidents.Open(); p.Work.Told["one"].State == stateDone {
			break
		}
		<-changes
	}
	got, err := calls.GetStatus(ctx, &api.GetAgentStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if n := got.Status.GetNotice(); n.GetIncident() != said.Incident || n.GetKind() != "manual" || n.GetReason() != "a test" {
		t.Errorf("got the notice %v, want %s", n, said.Incident)
	}
	if a := got.Actions; len(a) != 1 || a[0].Name != "one" || a[0].State != "done" || a[0].Phase != "noticed" || len(got.Notices) != 1 || got.Version != "v1" {
		t.Errorf("got %v, want the one action done", got)
	}
	page := get(t, "http://"+s.at.http.Addr().String()+"/metrics")
	for _, want := range []string{
		`lifeboat_notice{kind="manual",source="manual",stance="drain"} 1`, `lifeboat_incidents_total{kind="manual"} 1`,
		`lifeboat_actions_total{action="one",phase="noticed",result="done"} 1`, "lifeboat_deadline_remaining_seconds 3", "lifeboat_journal_fsync_seconds_count",
		`lifeboat_build_info{version="v1"} 1`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if _, err := calls.GetManifest(ctx, &api.GetManifestRequest{}); err != nil {
		t.Error(err) // of the stream; the answer comes with the first message
	}
	if r, err := calls.Cancel(ctx, &api.CancelRequest{Reason: "a mistake"}); err != nil || !r.Cancelled || r.Still != "" {
		t.Errorf("got %v %v, want it cancelled", r, err)
	}
	<-arrived
	if r, err := calls.Cancel(ctx, &api.CancelRequest{}); err != nil || r.Cancelled {
		t.Errorf("again: got %v %v, want nothing to cancel", r, err)
	}
	switch resp, err := http.Get("http://" + s.at.http.Addr().String() + "/blocks/cache/-/a"); {
	case err != nil:
		t.Error(err)
	case resp.StatusCode != http.StatusNotImplemented:
		t.Errorf("of a block: got %s", resp.Status)
	default:
		resp.Body.Close()
	}
	if body := get(t, "http://"+s.at.http.Addr().String()+"/healthz"); body != "ok\n" {
		t.Errorf("/healthz: got %q, want ok", body)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", url, resp.Status, err)
	}
	return string(b)
}

// agentOn answers as an agent would.
type agentOn struct {
	api.UnimplementedLocalServer
	said      chan *api.DecommissionSelfRequest
	pretended chan *api.SimulateRequest
	cancelled chan *api.CancelRequest
}

func (a *agentOn) Simulate(_ context.Context, r *api.SimulateRequest) (*api.SimulateReply, error) {
	if len(a.pretended) > 0 {
		return nil, status.Error(codes.FailedPrecondition, "the node is under notice in earnest")
	}
	a.pretended <- r
	return &api.SimulateReply{}, nil
}

func (a *agentOn) DecommissionSelf(_ context.Context, r *api.DecommissionSelfRequest) (*api.DecommissionSelfReply, error) {
	a.said <- r
	return &api.DecommissionSelfReply{}, nil
}

func (a *agentOn) Cancel(_ context.Context, r *api.CancelRequest) (*api.CancelReply, error) {
	a.cancelled <- r
	return &api.CancelReply{}, nil
}

// An agent that is being restarted is told as soon as it is there.
func TestAgentIsTold(t *testing.T) {
	path := shortDir(t) + "/agent"
	fake := &agentOn{said: make(chan *api.DecommissionSelfRequest, 1), cancelled: make(chan *api.CancelRequest, 1)}
	tries := make(chan struct{}, 100)
	to := localAgent{socket: path, dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		tries <- struct{}{}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	told := make(chan error, 1)
	w := workloads.Word{Phase: noticed, Kind: "terminate", Source: "ec2", Reason: strings.Repeat("é", localsock.LongestReason), Deadline: time.Now().Add(time.Minute)}
	go func() { told <- to.Tell(ctx, w) }()
	<-tries // no agent was there
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	api.RegisterLocalServer(server, fake)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() { server.Stop(); <-served }()
	if err := <-told; err != nil {
		t.Fatal(err)
	}
	r := <-fake.said
	if left := r.Timeout.AsDuration(); left < 50*time.Second || left > time.Minute || !strings.HasPrefix(r.Reason, "ec2 says terminate: é") {
		t.Errorf("got %.80v, want a minute and the reason", r)
	}
	w.Phase, w.Reason = withdrawn, ""
	if err := to.Tell(ctx, w); err != nil {
		t.Fatal(err)
	}
	if r := <-fake.cancelled; r.Reason != "ec2 says terminate" {
		t.Errorf("got %v, want the reason", r)
	}
}

// An agent that is told of a rehearsal rehearses: a drain in earnest would set off alerts. If it refuses to rehearse, it is
// not asked again.
func TestAgentRehearses(t *testing.T) {
	l, err := net.Listen("unix", shortDir(t)+"/agent")
	if err != nil {
		t.Fatal(err)
	}
	fake := &agentOn{said: make(chan *api.DecommissionSelfRequest, 1), pretended: make(chan *api.SimulateRequest, 1), cancelled: make(chan *api.CancelRequest, 1)}
	server := grpc.NewServer()
	api.RegisterLocalServer(server, fake)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() { server.Stop(); <-served }()
	to := localAgent{socket: l.Addr().String(), dial: new(net.Dialer).DialContext}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w := workloads.Word{Phase: noticed, Kind: "terminate", Source: "simulate", Reason: "rehearsal", Deadline: time.Now().Add(time.Minute), Rehearsal: true}
	if err := to.Tell(ctx, w); err != nil {
		t.Fatal(err)
	}
	if len(fake.said) > 0 || len(fake.pretended) != 1 {
		t.Fatal("it was told to leave in earnest, want a rehearsal")
	}
	if err := to.Tell(ctx, w); err == nil || ctx.Err() != nil {
		t.Errorf("got %v, want its refusal, at once", err)
	}
	if r := <-fake.pretended; r.Kind != "manual" || r.In.AsDuration() < 50*time.Second || r.DryRun {
		t.Errorf("got %v, want what it is told in earnest, in a minute", r)
	}
}

// A notice that is cancelled before it joins an incident never will: the caller is told so, and does not give it again.
func TestWhatIsTakenBackIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(Action{Name: "one"})
		s, err := New(t.Context(), m.cfg, Deps{Dial: dialOut(m.network), Listen: func(string, string) (net.Listener, error) { return pipenet.Listen(), nil }})
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		said := make(chan error, 1)
		go func() { // without anything that joins the notice
			_, err := (&local{sidecar: s}).DecommissionSelf(t.Context(), &api.DecommissionSelfRequest{})
			said <- err
		}()
		m.pass(0)
		if !s.manual.Withdraw("a mistake") {
			t.Fatal("there was nothing to cancel")
		}
		s.join(preemption.Notice{Source: preemption.SourceEC2, ID: "advice", Kind: preemption.KindRebalance})
		m.pass(time.Minute)
		select {
		case err := <-said:
			if status.Code(err) != codes.FailedPrecondition {
				t.Errorf("got %v, want that it was taken back", err)
			}
		default:
			t.Errorf("who said it was not answered in a minute")
		}
		if s.manual.Withdraw("") {
			t.Error("what was cancelled was said again")
		}
	})
}
