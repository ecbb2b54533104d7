package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/raftstore"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// A disk that hangs is reported, and callers are refused: else they would wait for its writes for ever.
func TestDiskThatHangsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		l := openTestLedger(t, t.TempDir(), slog.New(slog.DiscardHandler))
		defer l.Close()
		f := &fleet{ledger: l, log: slog.New(slog.NewTextHandler(&said, nil))}
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() { watched <- f.ledger.watchDisk(ctx, f.log) }()
		ready := func() int {
			w := httptest.NewRecorder()
			(&web{fleet: f}).ready(w, nil)
			return w.Code
		}
		thaw, thawed := freeze(l.store), make(chan error, 1)
		go func() { thawed <- l.store.Set([]byte("x"), nil) }()
		time.Sleep(raftstore.HangAfter / 2)
		if err := l.store.Hangs(); err != nil || ready() != http.StatusOK {
			t.Errorf("got %v, want nothing said of a slow disk", err)
		}
		time.Sleep(raftstore.HangAfter + raftstore.HangPace)
		if _, err := l.do(registration("a")); !errors.Is(err, errNoLog) {
			t.Errorf("got %v, want %v", err, errNoLog)
		}
		if l.store.Hangs() == nil || ready() != http.StatusServiceUnavailable {
			t.Error("a coordinator that decides nothing is said to be ready")
		}
		thaw()
		if err := <-thawed; err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * raftstore.HangPace)
		if _, err := l.do(registration("a")); err != nil || ready() != http.StatusOK {
			t.Errorf("the disk is well again: %v", err)
		}
		cancel()
		if err := <-watched; err != nil {
			t.Error(err)
		}
		if got := said.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "hangs") || !strings.Contains(got, "answers again") {
			t.Errorf("got %q, want a line when it hangs and one when it does no more", got)
		}
	})
}

// freeze has the disk of a log hang until thaw is called.
func freeze(s *raftstore.Store) (thaw func()) {
	frozen := make(chan bool)
	s.Commit = func(write func(*bolt.Tx) error) error {
		<-frozen
		return s.DB().Update(write)
	}
	return func() { close(frozen) }
}

// The status of a coordinator whose disk is full says so: without that it leads no more, and nobody sees why.
func TestStatusOfACoordinatorWithAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lone(t)
		during(t, f.govern)
		time.Sleep(5 * time.Second)
		trouble := func() string {
			t.Helper()
			s, err := (&operator{fleet: f}).GetStatus(t.Context(), &api.GetStatusRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return s.GetDiskTrouble()
		}
		if got := trouble(); got != "" {
			t.Errorf("got %q, want no trouble yet", got)
		}
		var full atomic.Bool
		f.ledger.store.Commit = func(write func(*bolt.Tx) error) error {
			if full.Load() {
				return syscall.ENOSPC
			}
			return f.ledger.store.DB().Update(write)
		}
		full.Store(true)
		if _, err := f.do(registration("a")); err == nil {
			t.Error("what could not be written was decided")
		}
		if got := trouble(); !strings.Contains(got, "no space left on device") {
			t.Errorf("got %q, want to be told that the disk is full", got)
		}
		full.Store(false)
		time.Sleep(2 * time.Minute)
		if got := trouble(); got != "" {
			t.Errorf("got %q two minutes after there was room again", got)
		}
	})
}

// When a leader's disk begins to hang, callers that wait for its decisions get an error, its event streams end, and both may come again once
// the disk answers.
func TestCallsAtADiskThatBeginsToHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lone(t)
		during(t, f.govern)
		during(t, func(ctx context.Context) error { return f.ledger.watchDisk(ctx, f.log) })
		time.Sleep(5 * time.Second)
		term, err := f.ledger.lead()
		if err != nil {
			t.Fatal(err)
		}
		thaw := freeze(f.ledger.store)
		began := time.Now()
		_, err = f.do(registration("a"))
		if took := time.Since(began); !errors.Is(err, errDeposed) || took > raftstore.HangAfter+2*raftstore.HangPace {
			t.Errorf("got %v after %s, want to be told to ask elsewhere once the disk is known to hang", err, took)
		}
		time.Sleep(2 * raftstore.HangPace)
		if term.Err() == nil {
			t.Error("who follows events here goes on waiting for them")
		}
		thaw()
		time.Sleep(2 * raftstore.HangPace)
		if _, err := f.ledger.lead(); err != nil {
			t.Errorf("the disk is well again, and nobody else leads: %v", err)
		}
		if _, err := f.do(registration("b")); err != nil {
			t.Errorf("the disk is well again: %v", err)
		}
	})
}

// A command that is decided only after its caller was refused, because the disk hung, is followed as any other: a node that registered so is
// LOST when its lease ends, and one that was deactivated so is nobody's peer.
func TestWhatIsDecidedLateIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := leading(t)
		if _, err := f.do(registration("b")); err != nil {
			t.Fatal(err)
		}
		f.leases.register("b", &api.RegisterRequest{Status: &api.Status{RoomBytes: 1}}, time.Now())
		peers := func() int {
			f.leases.beat("b", &api.Status{RoomBytes: 1}, time.Now())
			time.Sleep(rosterPace)
			_, peers := f.roster.pick("c", time.Now(), f.roster.takers)
			return len(peers)
		}
		if n := peers(); n != 1 {
			t.Fatalf("got %d peers, want b", n)
		}
		thaw := freeze(f.ledger.store)
		var asked sync.WaitGroup
		for _, c := range []registry.Command{registration("a"), {Do: registry.DoDeactivate, Nodes: []string{"b"}}} {
			asked.Go(func() {
				if _, err := f.do(c); !errors.Is(err, errNoLog) {
					t.Errorf("%s: got %v, want %v", c.Do, err, errNoLog)
				}
			})
		}
		asked.Wait()
		thaw()
		synctest.Wait()
		if n := peers(); n != 0 {
			t.Errorf("got %d peers, want none", n)
		}
		time.Sleep(f.cfg.Lease + time.Second)
		f.reapOnce(time.Now(), 0)
		if a, _ := f.ledger.node("a"); a.State != registry.Lost {
			t.Errorf("got node a %q, want LOST", a.State)
		}
	})
}

// A node gives its account while the disk hangs, and is gone when it answers again: what the account names as lost is.
func TestAccountThatIsDecidedLateCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := leading(t)
		if _, err := f.do(registration("a")); err != nil {
			t.Fatal(err)
		}
		thaw := freeze(f.ledger.store)
		summary := &api.ManifestSummary{Node: "a", Incarnation: "i", Incident: "inc-1", Kind: "terminate", Source: "ec2", Lost: &api.Count{Blocks: 1}}
		w, err := f.accounts.files.begin("a", summary)
		if err != nil {
			t.Fatal(err)
		}
		_, err1 := w.take(&api.GoodbyeRequest{Entries: []*api.ManifestEntry{{Id: "spark/app/x", Bytes: 7, Outcome: "lost"}}})
		if err := errors.Join(err1, w.commit()); err != nil {
			t.Fatal(err)
		}
		if err := (&membership{fleet: f}).end("a", summary, w); status.Code(err) != codes.Unavailable {
			t.Errorf("got %v, want the node to be told to try again", err)
		}
		is := func(want string) {
			t.Helper()
			if r, err := f.locations.locate(&api.LocateRequest{Id: "spark/app/x"}); err != nil || r.State != want {
				t.Errorf("got %v, %v, want the block to be %s", r, err, want)
			}
		}
		is("unknown")
		thaw()
		synctest.Wait()
		is("lost")
	})
}

// A coordinator whose disk hangs can be stopped.
func TestStopWithADiskThatHangs(t *testing.T) {
	for name, hung := range map[string]time.Duration{"just now": 0, "for long": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := openTestLedger(t, t.TempDir(), slog.New(slog.DiscardHandler))
				var broken atomic.Bool
				thaw := freeze(l.store)
				frozen := l.store.Commit
				l.store.Commit = func(write func(*bolt.Tx) error) error {
					return frozen(func(tx *bolt.Tx) error {
						if broken.Load() {
							return syscall.EIO
						}
						return write(tx)
					})
				}
				asked := make(chan error, 1)
				go func() {
					_, err := l.do(registration("a"))
					asked <- err
				}()
				synctest.Wait()
				time.Sleep(hung)
				began := time.Now()
				if err, took := l.Close(), time.Since(began); err == nil || took > closePatience {
					t.Errorf("got %v after %s, want to be told that the log was left as it is", err, took)
				}
				if err := <-asked; !errors.Is(err, errNoLog) {
					t.Errorf("got %v, want %v", err, errNoLog)
				}
				broken.Store(true) // raft, as it ends, may answer nobody of what it had written
				thaw()
			})
		})
	}
}

// Nor does a stop wait for a file that is being written there, such as a manifest.
func TestStopWithAFileThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		frozen := make(chan bool)
		ended := make(chan error, 1)
		go func() { ended <- outlast(ctx, func() error { <-frozen; return nil }) }()
		time.Sleep(time.Hour)
		select {
		case err := <-ended:
			t.Errorf("got %v, want it to run on", err)
		default:
		}
		cancel()
		began := time.Now()
		if err, took := <-ended, time.Since(began); err == nil || took > stopPatience {
			t.Errorf("got %v after %s, want to be told that something hangs", err, took)
		}
		close(frozen)
	})
}
