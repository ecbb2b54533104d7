package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bolt "go.etcd.io/bbolt"
)

// A disk that takes a second to sync is told of once a minute, and is in the metrics: nothing else says why everybody waits.
func TestDiskThatIsSlowIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		l := openTestLedger(t, t.TempDir(), slog.New(slog.DiscardHandler))
		defer l.Close()
		l.store.log = slog.New(slog.NewTextHandler(&said, nil))
		write := l.store.commit
		l.store.commit = func(tx func(*bolt.Tx) error) error { time.Sleep(time.Second); return write(tx) }
		for i := range 90 {
			if _, err := l.do(registration(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		l.store.commit = write
		if _, err := l.do(registration("fast")); err != nil {
			t.Fatal(err)
		}
		if got := said.String(); strings.Count(got, "slow to be written") != 2 || !strings.Contains(got, "took=1s writes=60") {
			t.Errorf("got %q, want the first slow write, and those of the next minute", got)
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(l.store.slow.took)
		if all, err := registry.Gather(); err != nil || all[0].GetMetric()[0].GetHistogram().GetSampleSum() < 90 {
			t.Errorf("got %v, %v, want 90 s of writing", all, err)
		}
	})
}

// A disk that hangs is told of, and keeps no caller: what it was to write would be waited for without end.
func TestDiskThatHangsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		l := openTestLedger(t, t.TempDir(), slog.New(slog.DiscardHandler))
		defer l.Close()
		f := &fleet{ledger: l, log: slog.New(slog.NewTextHandler(&said, nil))}
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() { watched <- f.watchDisk(ctx) }()
		ready := func() int {
			w := httptest.NewRecorder()
			(&web{fleet: f}).ready(w, nil)
			return w.Code
		}
		thaw, thawed := make(chan bool), make(chan error, 1)
		go func() {
			thawed <- l.store.update(func(*bolt.Tx) error { <-thaw; return nil })
		}()
		time.Sleep(hangAfter / 2)
		if err := l.store.hangs(); err != nil || ready() != http.StatusOK {
			t.Errorf("got %v, want nothing said of a slow disk", err)
		}
		time.Sleep(hangAfter + hangPace)
		if _, err := l.do(registration("a")); !errors.Is(err, errNoLog) {
			t.Errorf("got %v, want %v", err, errNoLog)
		}
		if l.store.hangs() == nil || ready() != http.StatusServiceUnavailable {
			t.Error("a coordinator that decides nothing is said to be ready")
		}
		close(thaw)
		if err := <-thawed; err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * hangPace)
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
func freeze(s *raftStore) (thaw func()) {
	frozen := make(chan bool)
	s.commit = func(write func(*bolt.Tx) error) error {
		<-frozen
		return s.db.Update(write)
	}
	return func() { close(frozen) }
}

// Who waits for a decision of a leader whose disk has begun to hang is answered, follows no more, and may come again once the disk answers.
func TestCallsAtADiskThatBeginsToHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := lone(t)
		defer f.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var g sync.WaitGroup
		g.Go(func() { f.govern(ctx) })
		g.Go(func() { f.watchDisk(ctx) })
		defer g.Wait()
		defer cancel()
		time.Sleep(5 * time.Second)
		term, err := f.ledger.lead()
		if err != nil {
			t.Fatal(err)
		}
		thaw := freeze(f.ledger.store)
		began := time.Now()
		_, err = f.do(registration("a"))
		if took := time.Since(began); !errors.Is(err, errDeposed) || took > hangAfter+2*hangPace {
			t.Errorf("got %v after %s, want to be told to ask elsewhere once the disk is known to hang", err, took)
		}
		time.Sleep(2 * hangPace)
		if term.Err() == nil {
			t.Error("who follows events here goes on waiting for them")
		}
		thaw()
		time.Sleep(2 * hangPace)
		if _, err := f.ledger.lead(); err != nil {
			t.Errorf("the disk is well again, and nobody else leads: %v", err)
		}
		if _, err := f.do(registration("b")); err != nil {
			t.Errorf("the disk is well again: %v", err)
		}
	})
}

// A coordinator whose disk hangs can be stopped.
func TestStopWithADiskThatHangs(t *testing.T) {
	for name, hung := range map[string]time.Duration{"just now": 0, "for long": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := openTestLedger(t, t.TempDir(), slog.New(slog.DiscardHandler))
				thaw := freeze(l.store)
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
				thaw()
			})
		})
	}
}

// Nor is a file waited for that is being written there, as an account of a drain is.
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
