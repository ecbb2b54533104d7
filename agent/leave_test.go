package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/heartbeat"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/preemption"
)

func TestSendUntil(t *testing.T) {
	noticed := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, row := range []struct {
		name   string
		source string
		kind   preemption.Kind
		lead   time.Duration // 0: no deadline
		tail   time.Duration // configured
		want   time.Duration // after the notice
	}{
		{"EC2 keeps 10 s back", preemption.SourceEC2, preemption.KindTerminate, 120 * time.Second, 0, 110 * time.Second},
		{"others keep 5 s back", preemption.SourceManual, preemption.KindManual, 120 * time.Second, 0, 115 * time.Second},
		{"a tail of one's own", preemption.SourceEC2, preemption.KindTerminate, 120 * time.Second, 30 * time.Second, 90 * time.Second},
		{"half of a short notice", preemption.SourceEC2, preemption.KindTerminate, 12 * time.Second, 0, 6 * time.Second},
		{"no lead at all", preemption.SourceEC2, preemption.KindHibernate, -1, 0, leastSending},
		{"no deadline", preemption.SourceSignal, preemption.KindManual, 0, 0, time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := preemption.Notice{Source: row.source, ID: "x", Kind: row.kind, SeenAt: noticed}
			if row.lead != 0 {
				n.Deadline = noticed.Add(row.lead)
			}
			a := &Agent{}
			bounds := Default().Drain
			bounds.Tail = row.tail
			a.limits.Store(&limits{Drain: bounds})
			if got := a.limits.sendUntil(preemption.Open(n)).Sub(noticed); got != row.want {
				t.Errorf("got %s after the notice, want %s", got, row.want)
			}
		})
	}
}

// An event of Azure's that somebody lets begin early has its deadline moved to now. The drain under way then gets as much
// time as one that was given no time from the start. It was once cut off at that moment, and all blocks that were left were
// lost.
func TestDeadlineThatIsMovedToNowLeavesTimeToSend(t *testing.T) {
	for name, first := range map[string]time.Duration{"later": 5 * time.Minute, "never": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, err := preemption.OpenKeeper[work](preemption.KeeperConfig{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				a := &Agent{}
				a.limits.Store(&limits{Drain: Default().Drain})
				n := preemption.Notice{Source: preemption.SourceAzure, ID: "x", Kind: preemption.KindTerminate, SeenAt: time.Now(), Stands: true}
				if first > 0 {
					n.Deadline = time.Now().Add(first)
				}
				join := func(lead time.Duration) preemption.Incident {
					t.Helper()
					n.Deadline = time.Now().Add(lead)
					p, changed, err := k.Join(n)
					if err != nil || !changed {
						t.Fatalf("changed %v, %v", changed, err)
					}
					return p.Incident
				}
				if _, _, err := k.Join(n); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if got, want := time.Until(a.limits.sendUntil(join(8*time.Second))), 4*time.Second; got != want {
					t.Errorf("%s to send of 8 s that are left, want half of them", got)
				}
				time.Sleep(time.Second)
				if got := time.Until(a.limits.sendUntil(join(0))); got != leastSending {
					t.Errorf("%s to send from now on, want %s", got, leastSending)
				}
				time.Sleep(time.Second)
				if p, changed, _ := k.Join(n); changed || time.Until(a.limits.sendUntil(p.Incident)) != leastSending-time.Second {
					t.Errorf("the same word again moves it: %+v", p.Incident)
				}
				n.Deadline = n.Deadline.Add(time.Minute) // the deadline moves back, but the drain has begun
				if p, _, _ := k.Join(n); a.limits.sendUntil(p.Incident).After(n.Deadline) {
					t.Errorf("sends until %s, after the deadline %s", a.limits.sendUntil(p.Incident), n.Deadline)
				}
			})
		})
	}
}

// People read "left=0s" on a notice without a deadline as one whose time is over.
func TestLeftIsNotSaidWhereItIsNotKnown(t *testing.T) {
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, nil))
	log.Info("notice", preemption.Left(time.Time{}), "kind", "rebalance")
	if got := said.String(); strings.Contains(got, "left") || !strings.Contains(got, "kind=rebalance") {
		t.Errorf("of no deadline it says %s", got)
	}
	synctest.Test(t, func(t *testing.T) {
		said.Reset()
		log.Info("notice", preemption.Left(time.Now().Add(90*time.Second)))
		if got := said.String(); !strings.Contains(got, "left=1m30s") {
			t.Errorf("of 90 s it says %s", got)
		}
	})
}

// A host that goes down waits until a coordinator has taken a large account, but not for a coordinator that is away.
func TestGoodbyePatience(t *testing.T) {
	for blocks, want := range map[int64]time.Duration{0: 5 * time.Second, 1000: 5010 * time.Millisecond, 2_000_000: 25 * time.Second} {
		if got := goodbyePatience(blocks); got != want {
			t.Errorf("of %d blocks: got %s, want %s", blocks, got, want)
		}
	}
}

// door is a source without notices that records when the machine may go.
type door struct {
	let    []string
	closed bool // closed until the end of the context
}

func (d *door) Next(ctx context.Context) (preemption.Notice, error) {
	<-ctx.Done()
	return preemption.Notice{}, ctx.Err()
}

func (d *door) Release(ctx context.Context, n preemption.Notice) error {
	if d.closed {
		<-ctx.Done()
		return ctx.Err()
	}
	d.let = append(d.let, n.Source)
	return nil
}

// A notice that is cancelled before it joins an incident never will: the caller is told so, and SIGPWR's goroutine goes on.
func TestWhatIsTakenBackIsAnswered(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		a := &Agent{log: log} // nothing in it joins the notice to an incident
		a.limits.Store(&limits{})
		var err error
		if a.incidents.Keeper, err = preemption.OpenKeeper[work](preemption.KeeperConfig{Dir: dir, Log: log}); err != nil {
			t.Fatal(err)
		}
		a.openCourse()
		said := make(chan error, 1)
		go func() {
			_, err := a.DecommissionSelf(t.Context(), preemption.SourceSignal, time.Time{}, "SIGPWR")
			said <- err
		}()
		synctest.Wait()
		a.course.manual.Withdraw("a mistake")
		select {
		case err := <-said:
			if !errors.Is(err, preemption.ErrTakenBack) {
				t.Errorf("got %v, want that it was taken back", err)
			}
		case <-time.After(time.Minute):
			t.Error("who said it was never answered")
		}
	})
}

// After a rehearsal nothing is released: Azure would begin the reboot that it has announced, while the node goes on working.
func TestRehearsalReleasesNoMachine(t *testing.T) {
	d := &door{}
	log := slog.New(slog.DiscardHandler)
	c := &course{log: log, notices: preemption.NewWatcher(log, d), incidents: new(incidents)}
	var err error
	if c.incidents.Keeper, err = preemption.OpenKeeper[work](preemption.KeeperConfig{Dir: t.TempDir(), Log: log}); err != nil {
		t.Fatal(err)
	}
	said := preemption.Notice{Source: preemption.SourceRehearsal, ID: "simulate", Kind: preemption.KindTerminate, SeenAt: time.Now()}
	reboot := preemption.Notice{Source: preemption.SourceAzure, ID: "event", Kind: preemption.KindReboot, SeenAt: time.Now()}
	for _, n := range []preemption.Notice{said, reboot} {
		if _, _, err := c.incidents.Join(n); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.incidents.Amend(func(w *work) { w.Drained = &manifest.Summary{} }); err != nil {
		t.Fatal(err)
	}
	if c.release(t.Context(), map[string]bool{}); len(d.let) > 0 {
		t.Errorf("released for %q", d.let)
	}
	said.Source, said.ID = preemption.SourceManual, "manual"
	if _, _, err := c.incidents.Join(said); err != nil {
		t.Fatal(err)
	}
	if c.release(t.Context(), map[string]bool{}); !slices.Contains(d.let, preemption.SourceAzure) {
		t.Errorf("in earnest: released for %q, want all notices in force", d.let)
	}
}

// A cloud that cannot be told is logged, but not if the notice is withdrawn meanwhile, for then there is nothing to tell.
func TestReleaseThatIsNotWantedAnyMoreIsNoTrouble(t *testing.T) {
	for withdrawn, want := range map[bool]int{false: 1, true: 0} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			var said strings.Builder
			log := slog.New(slog.NewTextHandler(&said, nil))
			c := &course{log: log, notices: preemption.NewWatcher(log, &door{closed: true}), incidents: new(incidents)}
			var err error
			if c.incidents.Keeper, err = preemption.OpenKeeper[work](preemption.KeeperConfig{Dir: dir, Log: log}); err != nil {
				t.Fatal(err)
			}
			n := preemption.Notice{Source: preemption.SourceAzure, ID: "event", Kind: preemption.KindTerminate, SeenAt: time.Now()}
			if _, _, err := c.incidents.Join(n); err != nil {
				t.Fatal(err)
			}
			if err := c.incidents.Amend(func(w *work) { w.Drained = &manifest.Summary{} }); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if withdrawn {
				time.AfterFunc(time.Second, func() { cancel(errWithdrawn) })
			}
			c.release(ctx, map[string]bool{})
			if got := strings.Count(said.String(), "not everybody could be told that the node is empty"); got != want {
				t.Errorf("withdrawn %v: said so %d times, want %d:\n%s", withdrawn, got, want, said.String())
			}
		})
	}
}

// A peer may take the account of a rehearsal's drain, or a pass for broken blocks may end, only after a notice in earnest
// has come. Neither counts then, or the drain in earnest would be taken to be over.
func TestDrainThatIsUndoneDoesNotStand(t *testing.T) {
	said := preemption.Notice{Source: preemption.SourceRehearsal, ID: "simulate", Kind: preemption.KindTerminate, Stance: preemption.StanceDrain, SeenAt: time.Now()}
	ended := time.Now()
	p := page{Incident: preemption.Open(said), Work: work{Drained: &manifest.Summary{Finished: ended}}}
	if !p.Work.stands(ended) || p.Work.stands(ended.Add(-time.Second)) {
		t.Error("the drain that ended then stands, and no other")
	}
	was := p.Incident
	was.Notices = slices.Clone(was.Notices)
	said.Source, said.ID = preemption.SourceManual, "manual"
	p.Incident.Join(said)
	if undoRehearsed(was, &p); p.Work.stands(ended) {
		t.Error("a rehearsal's drain stands beside a notice in earnest")
	}
}

// The coordinator's directive becomes a notice, and its end a withdrawal of that notice. A reply without a directive is no
// news to a node that had none.
func TestDirectivesAreNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wishes := []*api.Directive{
			nil,
			{Decommission: "dec-1", Reason: "disks", Remaining: durationpb.New(time.Minute)},
			{Decommission: "dec-1", Reason: "disks"},
			nil,
			nil,
			{Decommission: "dec-2"},
		}
		d := &directives{next: func(ctx context.Context) (*api.Directive, error) {
			if len(wishes) == 0 {
				return nil, context.Canceled
			}
			w := wishes[0]
			wishes = wishes[1:]
			return w, nil
		}}
		now := time.Now()
		want := []preemption.Notice{
			{ID: "dec-1", Reason: "disks", Deadline: now.Add(time.Minute)},
			{ID: "dec-1", Reason: "disks"},
			{ID: "dec-1", Withdrawn: true},
			{ID: "dec-2"},
		}
		for _, w := range want {
			w.Source, w.Kind, w.SeenAt = preemption.SourceOperator, preemption.KindDecommission, now
			if got, err := d.Next(t.Context()); err != nil || got != w {
				t.Errorf("got %+v (%v), want %+v", got, err, w)
			}
		}
		if _, err := d.Next(t.Context()); err != context.Canceled {
			t.Errorf("got %v at the end, want what next returned", err)
		}
	})
}

// taking is a coordinator that takes accounts, and says when one begins.
type taking struct {
	api.UnimplementedMembershipServer
	begun chan struct{}
}

func (k *taking) Goodbye(stream grpc.ClientStreamingServer[api.GoodbyeRequest, api.GoodbyeReply]) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	close(k.begun)
	<-stream.Context().Done()
	return stream.Context().Err()
}

// The disk hangs from which the account of a drain is read, and the notice is withdrawn. The goodbye is left behind: the node
// hears the next notice.
func TestGoodbyeDoesNotOutlastItsNotice(t *testing.T) {
	a, _ := inRefuge(t, t.TempDir(), disks.Healthy)
	if _, _, err := a.incidents.Join(preemption.Notice{Source: preemption.SourceEC2, ID: "x", Kind: preemption.KindTerminate, SeenAt: time.Now(), Stance: preemption.StanceDrain}); err != nil {
		t.Fatal(err)
	}
	if err := a.incidents.Amend(func(w *work) { w.Drained = &manifest.Summary{Finished: time.Now()} }); err != nil {
		t.Fatal(err)
	}
	hangs(t, filepath.Join(a.incidents.Dir(a.incidents.current().ID), "lost.jsonl"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, co := grpc.NewServer(), &taking{begun: make(chan struct{})}
	api.RegisterMembershipServer(server, co)
	go server.Serve(l)
	defer server.Stop()
	client, err := heartbeat.New(heartbeat.Config{Node: "a", Incarnation: "1", Coordinators: []string{l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	a.course = course{log: a.log, incidents: &a.incidents, fleet: &fleet{Client: client, node: "a", incarnation: "1"}, refuge: a.refuge}
	ctx, withdraw := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); a.course.goodbye(ctx) }()
	<-co.begun
	withdraw()
	select {
	case <-over:
	case <-time.After(5 * time.Second):
		t.Error("it waits for the disk")
	}
}

// hangs makes a file hang whoever opens it, as on a disk that is dead, until the test is over.
func hangs(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), unix.Mkfifo(path, 0o600)); err != nil { // a pipe that nobody writes to
		t.Skipf("no pipe to hang on: %v", err)
	}
	t.Cleanup(func() {
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			f.Close()
		}
	})
}
