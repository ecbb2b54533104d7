package preemption

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/durable"
)

// machine is a machine whose wall clock can be set, with a journal that outlives the process.
type machine struct {
	dir   string
	clock Moment
}

func newMachine(t *testing.T) *machine {
	return &machine{dir: t.TempDir(), clock: Moment{Wall: time.Now(), Boot: "boot-1", SinceBoot: time.Hour}}
}

// pass lets time go by on both clocks.
func (m *machine) pass(d time.Duration) {
	time.Sleep(d)
	m.clock.Wall, m.clock.SinceBoot = time.Now(), m.clock.SinceBoot+d
}

func (m *machine) start(t *testing.T) *Keeper[string] {
	t.Helper()
	return openKeeper(t, KeeperConfig{Dir: m.dir, Clock: func() Moment { return m.clock }})
}

func openKeeper(t *testing.T, cfg KeeperConfig) *Keeper[string] {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	k, err := OpenKeeper[string](cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func join(t *testing.T, k *Keeper[string], n Notice) Page[string] {
	t.Helper()
	p, changed, err := k.Join(n)
	if err != nil || !changed {
		t.Fatalf("join %s: changed %v, %v", n.Kind, changed, err)
	}
	return p
}

func terminate(in time.Duration) Notice {
	return Notice{Source: SourceEC2, ID: "spot/instance-action", Kind: KindTerminate, Deadline: time.Now().Add(in), SeenAt: time.Now()}
}

// A kill -9 neither takes nor gives time, even if the wall clock is set in between.
func TestKeeperKeepsTheTimeThatIsLeft(t *testing.T) {
	for _, row := range []struct {
		name string
		set  time.Duration // how far the wall clock is set ahead while no process runs
	}{
		{"the clock runs on", 0},
		{"the clock is put an hour ahead", time.Hour},
		{"the clock is put a day ahead", 24 * time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				k := m.start(t)
				before := join(t, k, terminate(120*time.Second))
				if err := k.Amend(func(w *string) { *w = "half" }); err != nil {
					t.Fatal(err)
				}
				m.pass(20 * time.Second)
				time.Sleep(row.set) // the bubble's clock moves, the machine's own does not
				m.clock.Wall = time.Now()

				again := m.start(t)
				p, open := again.Open()
				if !open || p.Incident.ID != before.Incident.ID || p.Work != "half" || !p.Begun {
					t.Fatalf("got %+v, open %v, want what was left", p, open)
				}
				if left := time.Until(p.Incident.Deadline()); (left - 100*time.Second).Abs() > time.Second {
					t.Errorf("%s are left, want 100 s", left)
				}
				if since := time.Since(p.Incident.NoticedAt()); (since - 20*time.Second).Abs() > time.Second {
					t.Errorf("noticed %s ago, want 20 s", since)
				}
			})
		})
	}
}

// After a boot with a clock that is far back, there is no more time left than before.
func TestKeeperGivesNoTimeToAClockThatWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(10 * time.Hour)
		m := newMachine(t)
		join(t, m.start(t), terminate(120*time.Second))
		m.clock = Moment{Wall: time.Now().Add(-time.Hour), Boot: "boot-2"} // the bubble's clock cannot go back, the page's does
		p, _ := m.start(t).Open()
		if left := p.Incident.Deadline().Sub(m.clock.Wall); left > 120*time.Second {
			t.Errorf("%s are left, want 120 s at most", left)
		}
	})
}

// A boot settles some notices. A cloud's notice is for the cloud to take back, unless the machine went at its time and came back since.
// The owner still finds the incident that a boot has settled: whoever was told of it must be told that it is over.
func TestKeeperAfterABoot(t *testing.T) {
	for _, row := range []struct {
		kind    Kind
		source  string
		off     time.Duration
		settled bool
	}{
		{KindShutdown, SourceLogind, 30 * time.Second, true},
		{KindReboot, SourceAzure, 30 * time.Second, true},
		{KindManual, SourceSignal, 30 * time.Second, true},
		{KindManual, SourceManual, 30 * time.Second, false},
		{KindManual, SourceManual, 5 * time.Minute, false},
		{KindTerminate, SourceEC2, 30 * time.Second, false},
		{KindStop, SourceEC2, 5 * time.Minute, true},
		{KindPreempt, SourceGCE, 5 * time.Minute, true},
		{KindRebalance, SourceEC2, 5 * time.Minute, false},
	} {
		t.Run(fmt.Sprint(row.kind, " by ", row.source, ", off for ", row.off), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				join(t, m.start(t), Notice{Source: row.source, ID: "x", Kind: row.kind, Deadline: time.Now().Add(time.Minute), SeenAt: time.Now()})
				m.pass(row.off)
				m.clock.Boot, m.clock.SinceBoot = "boot-2", time.Second
				if p, open := m.start(t).Open(); !open || p.Incident.Withdrawn() != row.settled {
					t.Errorf("got %+v %v, want the incident, settled: %v", p, open, row.settled)
				}
			})
		})
	}
}

// The page on disk is by the wall clock at the moment of the write, even for a deadline that was heard before the clock was
// set.
func TestKeeperWritesByTheClockOfTheMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		k := m.start(t)
		join(t, k, terminate(120*time.Second))
		m.pass(10 * time.Second)
		if err := k.Amend(func(w *string) { *w = "more" }); err != nil {
			t.Fatal(err)
		}
		p, ok, err := k.journal.read()
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		if left := p.Incident.Deadline().Sub(p.Clock.Wall); (left - 110*time.Second).Abs() > time.Millisecond {
			t.Errorf("%s are left on paper, want 110 s", left)
		}
	})
}

// The policy says how far the node goes. A notice that it ignores opens no incident, and a new policy applies to new
// notices.
func TestKeeperFollowsThePolicy(t *testing.T) {
	policy := Policy{}
	k := openKeeper(t, KeeperConfig{Dir: t.TempDir(), Policy: func() Policy { return policy }})
	freeze := Notice{Source: SourceAzure, ID: "f", Kind: KindFreeze, SeenAt: time.Now()}
	if _, changed, err := k.Join(freeze); changed || err != nil {
		t.Errorf("a freeze changed something (%v)", err)
	}
	if _, open := k.Open(); open {
		t.Error("a freeze opened an incident")
	}
	policy = Policy{KindFreeze: StanceWatch, KindRebalance: StanceDrain}
	join(t, k, freeze)
	if s, _ := k.Stance(); s != StanceWatch {
		t.Errorf("got %s, want watch", s)
	}
	if p := join(t, k, Notice{Source: SourceEC2, ID: "r", Kind: KindRebalance, SeenAt: time.Now()}); !p.Begun || p.Incident.Kind() != KindRebalance {
		t.Errorf("got %+v, want it to leave on advice", p)
	}
	policy = nil // notices under the old policy keep its stance
	if s, _ := k.Stance(); s != StanceDrain {
		t.Errorf("got %s, want drain", s)
	}
	withdraw := Notice{Source: SourceEC2, ID: "r", Kind: KindRebalance, Withdrawn: true}
	join(t, k, withdraw)
	if s, _ := k.Stance(); s != StanceWatch {
		t.Errorf("after the withdrawal: got %s, want watch", s)
	}
}

// A node that has begun to leave for an appointment does not stop because the estimate now allows more time.
func TestKeeperDoesNotWaver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		estimate := 10 * time.Minute
		k := openKeeper(t, KeeperConfig{Dir: t.TempDir(), Estimate: func() time.Duration { return estimate }})
		join(t, k, Notice{Source: SourceAzure, ID: "e", Kind: KindRedeploy, Appointed: true, Deadline: time.Now().Add(time.Hour), SeenAt: time.Now()})
		s, changes := k.Stance()
		if s != StancePreCopy || time.Until(changes) != 30*time.Minute {
			t.Errorf("got %s until %s from now, want pre-copy for half an hour", s, time.Until(changes))
		}
		time.Sleep(30 * time.Minute)
		if s, _ := k.Stance(); s != StanceDrain {
			t.Errorf("got %s, want drain", s)
		}
		if err := k.Begin(); err != nil {
			t.Fatal(err)
		}
		estimate = 0
		if s, _ := k.Stance(); s != StanceDrain {
			t.Errorf("got %s once it is nearly empty, want drain still", s)
		}
	})
}

// A full disk keeps nobody from acting, and is reported.
func TestKeeperActsWithoutItsDisk(t *testing.T) {
	dir := t.TempDir()
	k := openKeeper(t, KeeperConfig{Dir: dir})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	changed := k.Changes()
	p, joined, err := k.Join(terminate(time.Minute))
	if !joined || !errors.Is(err, fs.ErrNotExist) || p.Incident.Kind() != KindTerminate {
		t.Errorf("got %+v, %v, %v, want it joined, and the error", p, joined, err)
	}
	select {
	case <-changed:
	default:
		t.Error("nobody was woken")
	}
	if _, open := k.Open(); !open {
		t.Error("the incident is not open")
	}
}

// Repeated, moved and late notices open one incident, and only one: this is what the journal of a whole soak test shows.
func TestKeeperOpensOneIncident(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		k := m.start(t)
		first := join(t, k, terminate(120*time.Second)).Incident.ID
		for i := range 120 {
			n := terminate(120 * time.Second)
			n.Deadline = n.Deadline.Add(time.Duration(i) * time.Second)
			p, _, err := k.Join(n)
			if err != nil || p.Incident.ID != first || len(p.Incident.Notices) != 1 {
				t.Fatalf("word %d: got %+v, %v", i, p, err)
			}
		}
		if all, err := filepath.Glob(filepath.Join(m.dir, "incident*.json")); err != nil || len(all) != 1 {
			t.Errorf("got %v (%v), want one page", all, err)
		}
	})
}

// When the journal's disk hangs, writers wait and readers do not: the heartbeat reads.
func TestKeeperAnswersWhileItsDiskHangs(t *testing.T) {
	dir, writes, disk := t.TempDir(), make(chan struct{}), make(chan struct{})
	k := openKeeper(t, KeeperConfig{Dir: dir, Synced: func(time.Duration) { writes <- struct{}{}; <-disk }})
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		k.Join(terminate(2 * time.Minute))
	}()
	<-writes
	asked := make(chan bool, 1)
	go func() {
		_, open := k.Open()
		k.Stance()
		k.Changes()
		k.Last()
		asked <- open || k.IsOpen()
	}()
	select {
	case open := <-asked:
		if open {
			t.Error("the incident was seen before it was on disk")
		}
	case <-time.After(10 * time.Second):
		t.Error("who asks waits for the disk")
	}
	close(disk)
	<-joined
	if !k.IsOpen() {
		t.Error("the incident is not open")
	}
}

// A machine that is about to go must not lose its data for a page about it: when the disk hangs, the notice is seen after a
// moment, and is on disk once that answers.
func TestKeeperWhoseDiskHangs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk, answers := &durable.Beside{}, make(chan struct{})
		k := openKeeper(t, KeeperConfig{Dir: dir, Disk: disk})
		go disk.Do("what it hangs at", func() error { <-answers; return nil })
		synctest.Wait()
		began := time.Now()
		p, changed, err := k.Join(terminate(2 * time.Minute))
		if took := time.Since(began); !changed || !errors.Is(err, durable.ErrHangs) || took > durable.Patience {
			t.Errorf("got %v, %v after %s", changed, err, took)
		}
		if !k.IsOpen() {
			t.Error("nobody sees it")
		}
		if err := k.Amend(func(w *string) { *w = "half of it" }); !errors.Is(err, durable.ErrHangs) || time.Since(began) > durable.Patience {
			t.Errorf("amend: got %v after %s", err, time.Since(began))
		}
		ended := p.Incident.ID
		if err := k.Close("withdrawn"); !errors.Is(err, durable.ErrHangs) {
			t.Errorf("close: got %v", err)
		}
		p, _, _ = k.Join(terminate(time.Minute))
		close(answers)
		synctest.Wait()
		again := openKeeper(t, KeeperConfig{Dir: dir})
		if is, open := again.Open(); !open || is.Incident.ID != p.Incident.ID {
			t.Errorf("a restart finds %+v, %v, want %s", is, open, p.Incident.ID)
		}
		if was, ok, err := again.journal.lastEnded(); !ok || err != nil || was.Incident.ID != ended || was.Work != "half of it" {
			t.Errorf("the one before: %+v, %v, %v", was, ok, err)
		}
	})
}
