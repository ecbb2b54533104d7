package sidecar

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
	"github.com/lifeboat/lifeboat/workloads"
)

const (
	noticed   = workloads.PhaseNoticed
	changed   = workloads.PhaseChanged
	withdrawn = workloads.PhaseWithdrawn
	done      = workloads.PhaseDone
)

// every is an action that wants every word.
func every(name string, when preemption.Stance) Action {
	return Action{Name: name, When: string(when), Phases: []string{"noticed", "changed", "done", "withdrawn"}}
}

func TestNoticeIsToldAtOnceAndOnce(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(Action{Name: "one"})
		m.action(Action{Name: "all", Phases: []string{"noticed", "changed", "done", "withdrawn"}})
		one, all := &fake{}, &fake{}
		m.start(one, all)
		m.pass(10*time.Second + 300*time.Millisecond)
		at := time.Now()
		m.cloud.Interrupt("terminate", at.Add(2*time.Minute))
		m.pass(1100 * time.Millisecond)
		h := m.told("one", one, noticed)[0]
		m.told("all", all, noticed, done)
		if took := h.at.Sub(at); took > 1100*time.Millisecond {
			t.Errorf("told after %s, want at most 1.1s", took)
		}
		if want := at.Add(2 * time.Minute); h.Deadline.Sub(want).Abs() > time.Second {
			t.Errorf("told of %s, want %s", h.Deadline, want)
		}
		if h.Node != "host-a" || h.Kind != "terminate" || h.Source != "ec2" || h.Stance != "drain" || h.Rehearsal || h.Incident == "" {
			t.Errorf("told %+v, want the whole of it", h.Word)
		}
		if left := h.RemainingSeconds; left == nil || *left < 118 || *left > 120 {
			t.Errorf("told of %v remaining, want two minutes less the poll", left)
		}
		for range 120 { // like AWS's own mock: two minutes from now, whenever it is asked
			m.cloud.Interrupt("terminate", time.Now().Add(2*time.Minute))
			m.pass(time.Second)
		}
		m.told("one", one, noticed)
		m.told("all", all, noticed, done)
		if p, open := m.incidents.Open(); !open || len(p.Work.Released) != 1 {
			t.Errorf("got %v released of an incident that is open: %v; want the one notice", p.Work.Released, open)
		}
	})
}

// A notice is told in time, at whatever moment between two polls it appears.
func TestNoticeIsToldInTime(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(Action{Name: "one"})
		one := &fake{}
		m.start(one)
		const rounds = 120 // with 30 rounds one mean in a hundred is too high
		var sum time.Duration
		for i := range rounds {
			m.pass(5*time.Second + rand.N(time.Second))
			at := time.Now()
			m.cloud.Interrupt("terminate", at.Add(2*time.Minute))
			m.pass(1100 * time.Millisecond)
			h := one.heard()
			if len(h) != 2*i+1 {
				t.Fatalf("round %d: told %d words within 1.1s, want %d", i, len(h), 2*i+1)
			}
			sum += h[2*i].at.Sub(at)
			m.cloud.Withdraw()
			m.pass(5 * time.Second)
		}
		if mean := sum / rounds; mean > 650*time.Millisecond {
			t.Errorf("told after %s in the mean, want half of a second", mean)
		}
	})
}

// A full or broken disk keeps no action from being told.
func TestBrokenDiskHoldsUpNobody(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(Action{Name: "one"})
		one := &fake{}
		m.start(one)
		if err := os.RemoveAll(m.cfg.DataDir); err != nil {
			t.Fatal(err)
		}
		m.cloud.Interrupt("terminate", time.Now().Add(2*time.Minute))
		m.pass(1100 * time.Millisecond)
		m.told("one", one, noticed)
		m.cloud.Withdraw()
		m.pass(5 * time.Second)
		m.told("one", one, noticed, withdrawn)
	})
}

func TestWithdrawnIsToldToThoseWhoHadBeenTold(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(Action{Name: "early", When: "watch"})
		m.action(Action{Name: "late"})
		m.action(Action{Name: "once", When: "watch", Phases: []string{"noticed"}})
		early, late, once := &fake{}, &fake{}, &fake{}
		m.start(early, late, once)
		m.cloud.Rebalance() // the node copies ahead, and does not leave
		m.pass(6 * time.Second)
		m.told("early", early, noticed)
		m.cloud.Withdraw()
		m.pass(20 * time.Second)
		m.told("early", early, noticed, withdrawn)
		m.told("late", late)
		m.told("once", once, noticed)
		if p, open := m.incidents.Open(); open {
			t.Errorf("got %+v, want no incident", p)
		}
		m.cloud.Interrupt("stop", time.Now().Add(2*time.Minute))
		m.pass(2 * time.Second)
		first := m.told("early", early, noticed, withdrawn, noticed)
		m.told("late", late, noticed)
		m.told("once", once, noticed, noticed)
		if first[0].Incident == first[2].Incident {
			t.Error("two incidents have one name")
		}
	})
}

// While a lesser notice stands, a graver one may come, go, and come again: the second time it is a new word, not the first
// again.
func TestSecondNoticeOfOneIncidentIsAnother(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(Action{Name: "one"})
		one := &fake{}
		m.start(one)
		m.cloud.Rebalance()
		m.pass(6 * time.Second)
		for range 2 {
			m.manual.Say(preemption.Notice{Deadline: time.Now().Add(time.Hour)})
			m.pass(time.Second)
			m.manual.Withdraw("")
			m.pass(time.Second)
		}
		h := m.told("one", one, noticed, withdrawn, noticed, withdrawn)
		if h[0].Incident != h[1].Incident || h[1].Incident == h[2].Incident || h[2].Incident != h[3].Incident {
			t.Errorf("told of %s, %s, %s and %s, want two names, twice each", h[0].Incident, h[1].Incident, h[2].Incident, h[3].Incident)
		}
		if h[1].Stance != "pre-copy" {
			t.Errorf("the withdrawal says stance %s, want pre-copy: that notice stands", h[1].Stance)
		}
	})
}

// A word that is under way when the sidecar dies is told again by the next one; one that has arrived is not.
func TestRestartNeitherForgetsNorTellsTwice(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(Action{Name: "slow"})
		m.action(Action{Name: "quick"})
		slow, quick := &fake{tell: hang}, &fake{}
		m.start(slow, quick)
		m.cloud.Interrupt("terminate", time.Now().Add(2*time.Minute))
		m.pass(1100 * time.Millisecond)
		before := m.told("slow", slow, noticed)[0]
		m.told("quick", quick, noticed)
		m.pass(20 * time.Second)
		m.crash()

		again, quick := &fake{}, &fake{}
		m.start(again, quick)
		m.pass(2 * time.Second)
		after := m.told("slow", again, noticed)[0]
		m.told("quick", quick)
		if after.Incident != before.Incident || !after.Deadline.Equal(before.Deadline) || !after.deadline.Equal(before.deadline) {
			t.Errorf("told again of %s by %s until %s; want %s, %s, %s", after.Incident, after.Deadline, after.deadline,
				before.Incident, before.Deadline, before.deadline)
		}
		m.crash()
		slow, quick = &fake{}, &fake{}
		m.start(slow, quick)
		m.pass(5 * time.Second)
		m.told("slow", slow)
		m.told("quick", quick)
		m.cloud.Withdraw()
		m.pass(5 * time.Second)
		m.told("slow", slow, withdrawn)
		m.told("quick", quick, withdrawn)
	})
}

// SIGTERM leaves a word under way like kill -9 does, and a word that arrives at that very moment has arrived.
func TestStopLeavesUnderWayWhatIs(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(Action{Name: "slow"})
		m.action(Action{Name: "just"})
		just := &fake{tell: func(ctx context.Context, _ workloads.Word) error { <-ctx.Done(); return nil }}
		m.start(&fake{tell: hang}, just)
		m.cloud.Interrupt("terminate", time.Now().Add(2*time.Minute))
		m.pass(2 * time.Second)
		m.end()
		slow, just := &fake{}, &fake{}
		m.start(slow, just)
		m.pass(2 * time.Second)
		m.told("slow", slow, noticed)
		m.told("just", just)
	})
}

// A withdrawal that came while no sidecar ran is told as soon as one does, instead of the word that was under way.
func TestWithdrawnWhileTheSidecarWasDead(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(Action{Name: "slow"})
		m.start(&fake{tell: hang})
		m.cloud.Interrupt("terminate", time.Now().Add(2*time.Minute))
		m.pass(2 * time.Second)
		m.crash()
		m.cloud.Withdraw()
		slow := &fake{tell: hang}
		m.start(slow)
		m.pass(time.Second / 2)
		m.told("slow", slow, noticed)
		m.pass(3 * time.Second)
		h := m.told("slow", slow, noticed, withdrawn)
		if !errors.Is(h[0].ended, workloads.ErrSuperseded) {
			t.Errorf("the first word ended with %v, want it called off", h[0].ended)
		}
	})
}

// A machine that went comes back some minutes later: an action that was told so hears that it stays, and not of the old notice again.
func TestMachineThatIsBackIsTold(t *testing.T) {
	for _, source := range []string{preemption.SourceEC2, preemption.SourceLogind} {
		t.Run(source, func(t *testing.T) {
			bubble(t, func(t *testing.T, m *machine) {
				m.action(Action{Name: "one"})
				one := &fake{}
				m.logind = system(systemd.Shutdown{Down: source == preemption.SourceLogind, How: systemd.HowPowerOff}, 90*time.Second)
				m.start(one)
				m.pass(time.Second)
				if source == preemption.SourceEC2 {
					m.cloud.Interrupt("stop", time.Now().Add(2*time.Minute))
					m.pass(5 * time.Second)
					m.crash()
					m.cloud.Withdraw()
				} else {
					m.end()
				}
				m.told("one", one, noticed)
				m.logind = nil
				m.pass(5 * time.Minute)
				m.booted = time.Now()
				back := &fake{}
				m.start(back)
				m.pass(5 * time.Second)
				m.told("one, back", back, withdrawn)
				if m.incidents.IsOpen() {
					t.Error("the incident is still open")
				}
			})
		})
	}
}

func TestOneThatHangsHoldsUpNobody(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(Action{Name: "down"})
		m.action(Action{Name: "up"})
		m.action(Action{Name: "short", Timeout: 20 * time.Second})
		m.action(every("last", preemption.StanceDrain))
		down, up, short, last := &fake{tell: hang}, &fake{}, &fake{tell: hang}, &fake{}
		m.start(down, up, short, last)
		at := time.Now()
		m.cloud.Interrupt("terminate", at.Add(2*time.Minute))
		m.pass(1100 * time.Millisecond)
		m.told("up", up, noticed)
		h := m.told("down", down, noticed)[0]
		if tail := at.Add(2 * time.Minute).Sub(h.deadline); tail < 9*time.Second || tail > 11*time.Second {
			t.Errorf("it is told until %s before the deadline, want 10s", tail)
		}
		if took := m.told("short", short, noticed)[0]; took.deadline.Sub(took.at) != 20*time.Second {
			t.Errorf("it is told for %s, want its timeout", took.deadline.Sub(took.at))
		}
		m.pass(100 * time.Second)
		m.told("last", last, noticed)
		m.pass(15 * time.Second)
		m.told("last", last, noticed, done)
		p, _ := m.incidents.Open()
		if got := p.Work.Told["down"]; got.State != stateFailed || got.Trouble == "" {
			t.Errorf("got %+v, want it failed, and why", got)
		}
		if len(p.Work.Released) != 1 { // an action that cannot be told holds the machine only until its time is up
			t.Errorf("got %v released, want the notice", p.Work.Released)
		}
	})
}

// A worker may be between two starts when the notice comes. A worker that is not there at all holds nothing up for long.
func TestSignalThatFindsNobodyIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		for _, name := range []string{"starts", "absent"} {
			m.action(Action{Name: name})
		}
		began := time.Now().Add(time.Second)
		starts := &fake{again: true, tell: func(context.Context, workloads.Word) error {
			if time.Since(began) < 3*time.Second {
				return errors.New("it has no main process")
			}
			return nil
		}}
		absent := &fake{again: true, tell: func(context.Context, workloads.Word) error { return errors.New("to whom?") }}
		m.start(starts, absent)
		m.cloud.Interrupt("terminate", time.Now().Add(2*time.Minute))
		m.pass(3 * time.Second)
		p, _ := m.incidents.Open()
		if got := p.Work.Told["absent"]; got.State != stateRunning || got.Trouble != "to whom?" {
			t.Errorf("got %+v, want it tried again, and why", got)
		}
		m.pass(3 * time.Second)
		p, _ = m.incidents.Open()
		if got := p.Work.Told["starts"]; got.State != stateDone {
			t.Errorf("got %+v, want it told once it was there", got)
		}
		m.pass(8 * time.Second)
		p, _ = m.incidents.Open()
		if got := p.Work.Told["absent"]; got.State != stateFailed || got.Trouble != "to whom?" {
			t.Errorf("got %+v, want it given up", got)
		}
	})
}

// door is a source without notices that records when the machine may go.
type door struct {
	refuse atomic.Int32 // refuses so many times

	mu  sync.Mutex // guards all
	all []string
}

func (d *door) Next(ctx context.Context) (preemption.Notice, error) {
	<-ctx.Done()
	return preemption.Notice{}, ctx.Err()
}

func (d *door) Release(_ context.Context, n preemption.Notice) error {
	if d.refuse.Add(-1) >= 0 {
		return errors.New("not now")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, n.Source)
	return nil
}

func (d *door) opened() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all)
}

// The sources are told that the machine may go when everything is done and not before. They are told until they have heard
// it, and once, even across a restart.
func TestMachineIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		d := &door{}
		d.refuse.Store(2)
		m.source = d
		m.action(Action{Name: "slow"})
		slow := &fake{tell: func(context.Context, workloads.Word) error { time.Sleep(10 * time.Second); return nil }}
		m.start(slow)
		opened := func(when string, want ...string) {
			t.Helper()
			if got := d.opened(); !slices.Equal(got, want) {
				t.Errorf("%s: released for %q, want %q", when, got, want)
			}
		}
		m.cloud.Rebalance()
		m.pass(6 * time.Second)
		m.manual.Say(preemption.Notice{})
		m.pass(9 * time.Second)
		opened("while it is told")
		m.pass(2 * time.Second)
		opened("when it was refused")
		m.pass(10 * time.Second)
		opened("when all is done", "ec2", "manual")
		m.crash()
		m.start(slow)
		m.pass(time.Minute)
		opened("after a restart", "ec2", "manual")
		m.manual.Withdraw("")
		m.pass(20 * time.Second)
		m.manual.Say(preemption.Notice{})
		m.pass(20 * time.Second)
		opened("when it is back", "ec2", "manual", "manual")
	})
}

// A cloud that will not let the machine go is asked again and again, and less often the longer it goes on.
func TestRefusedReleaseIsTriedLessOften(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		d := &door{}
		const many = 1000
		d.refuse.Store(many)
		m.source = d
		m.action(Action{Name: "one"})
		m.start(&fake{})
		m.manual.Say(preemption.Notice{})
		m.pass(10 * time.Minute)
		if tries := many - d.refuse.Load(); tries < 10 || tries > 15 {
			t.Errorf("asked %d times in ten minutes, want about once a minute", tries)
		}
	})
}

func TestPolicyIgnores(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.cfg.Policy = preemption.Policy{preemption.KindStop: preemption.StanceIgnore, preemption.KindTerminate: preemption.StanceWatch}
		m.action(Action{Name: "drain"})
		m.action(Action{Name: "watch", When: "watch"})
		drain, watch := &fake{}, &fake{}
		m.start(drain, watch)
		m.cloud.Interrupt("stop", time.Now().Add(2*time.Minute))
		m.pass(5 * time.Second)
		m.told("drain", drain)
		m.told("watch", watch)
		m.cloud.Interrupt("terminate", time.Now().Add(2*time.Minute))
		m.pass(5 * time.Second)
		m.told("drain", drain)
		m.told("watch", watch, noticed)
	})
}

// The node copies ahead for an appointment, and leaves when it is near: no action is told to go days before.
func TestAppointmentIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.cfg.Cloud.Provider = "none" // or it would be asked a million times
		m.action(every("drain", preemption.StanceDrain))
		m.action(every("ahead", preemption.StancePreCopy))
		drain, ahead := &fake{}, &fake{}
		m.start(drain, ahead)
		at := time.Now().Add(9 * 24 * time.Hour)
		m.manual.Say(preemption.Notice{Kind: preemption.KindRetirement, Deadline: at, Appointed: true})
		m.pass(8 * 24 * time.Hour)
		m.told("drain", drain)
		m.told("ahead", ahead, noticed)
		m.crash()
		m.start(drain, ahead)
		m.pass(time.Until(at) - 5*time.Minute)
		m.told("drain", drain)
		m.pass(5 * time.Minute)
		h := m.told("drain", drain, noticed, done)[0]
		if before := at.Sub(h.at); before != 2*time.Minute {
			t.Errorf("told %s before, want 2m0s", before)
		}
		if h := m.told("ahead", ahead, noticed, changed, done)[1]; h.Stance != "drain" {
			t.Errorf("told of stance %s, want drain", h.Stance)
		}
	})
}

// A deadline that comes closer bounds a word under way, and is told once that word has arrived.
func TestDeadlineMoves(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(every("hook", preemption.StanceDrain))
		arrive := make(chan struct{})
		hook := &fake{tell: func(ctx context.Context, _ workloads.Word) error {
			select {
			case <-arrive:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}}
		m.start(hook)
		m.manual.Say(preemption.Notice{Deadline: time.Now().Add(time.Hour)})
		m.pass(time.Second)
		sooner := time.Now().Add(2 * time.Minute)
		m.manual.Say(preemption.Notice{Deadline: sooner})
		h := m.told("hook", hook, noticed, noticed)
		if !errors.Is(h[0].ended, workloads.ErrMoved) || !h[1].deadline.Equal(sooner.Add(-5*time.Second)) {
			t.Errorf("the first ended with %v and the second is told until %s, want it to move to %s", h[0].ended, h[1].deadline, sooner.Add(-5*time.Second))
		}
		close(arrive)
		h = m.told("hook", hook, noticed, noticed, changed, done)
		if h[2].Deadline.Sub(sooner).Abs() > time.Second {
			t.Errorf("told of %s, want %s", h[2].Deadline, sooner)
		}
	})
}

func TestMachineOutlivesItsDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(Action{Name: "one"})
		one := &fake{}
		m.start(one)
		m.cloud.Interrupt("terminate", time.Now().Add(2*time.Minute))
		m.pass(11 * time.Minute)
		m.told("one", one, noticed)
		m.pass(2 * time.Minute)
		m.told("one", one, noticed, withdrawn)
		if p, open := m.incidents.Open(); open {
			t.Errorf("got %+v, want it closed", p)
		}
		m.crash()
		m.start(one)
		m.pass(time.Minute) // EC2 may show the time for ever
		m.told("one", one, noticed, withdrawn)
	})
}

func TestHibernationLeavesNoTime(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(Action{Name: "one"})
		one := &fake{tell: hang}
		m.start(one)
		m.cloud.Interrupt("hibernate", time.Now().Add(2*time.Minute))
		m.pass(2 * time.Second)
		if h := m.told("one", one, noticed)[0]; h.deadline.Sub(h.at) != leastTelling {
			t.Errorf("told for %s, want %s", h.deadline.Sub(h.at), leastTelling)
		}
	})
}

// An action that retries by itself, like a webhook or an agent, reports what is wrong long before its time is up.
func TestTroubleOfOneThatTriesByItselfIsSeen(t *testing.T) {
	bubble(t, func(t *testing.T, m *machine) {
		m.action(Action{Name: "url"})
		m.action(Action{Name: "agent"})
		url := workloads.Webhook{URL: "http://nobody.test/x", Client: &http.Client{Transport: refusing{}}}
		agent := localAgent{socket: "/run/gone", dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody listens") }}
		m.start(&fake{tell: url.Tell}, &fake{tell: agent.Tell})
		m.cloud.Interrupt("terminate", time.Now().Add(2*time.Minute))
		m.pass(10 * time.Second)
		shown := m.status()
		for i, want := range []string{"nobody is there", "nobody listens"} {
			if a := shown.Actions[i]; a.State != "running" || !strings.Contains(a.Trouble, want) {
				t.Errorf("got %v, want it under way, and that %s", a, want)
			}
		}
		if shown.Changes != nil {
			t.Errorf("it goes further in %v, want no further than it went", shown.Changes.AsDuration())
		}
		m.pass(2 * time.Minute)
		for i, want := range []string{"nobody is there", "nobody listens"} {
			if a := m.status().Actions[i]; a.State != "failed" || !strings.Contains(a.Trouble, want) || strings.Contains(a.Trouble, "\n") {
				t.Errorf("got %v, want it given up in one line, as %s", a, want)
			}
		}
	})
}

// refusing is a network on which no connection is accepted.
type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("nobody is there")
}
