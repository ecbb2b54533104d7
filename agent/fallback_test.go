package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/disks/smalldisk"
	"github.com/lifeboat/lifeboat/fallback"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/preemption"
)

// withFallback is an agent of which only the fallback exists.
func withFallback(t *testing.T, s fallback.Settings) (*Agent, *bytes.Buffer) {
	t.Helper()
	var said bytes.Buffer
	a := &Agent{cfg: Config{Fallback: s}, log: slog.New(slog.NewTextHandler(&said, nil))}
	if err := a.openFallback(t.Context()); err != nil {
		t.Fatal(err)
	}
	return a, &said
}

func TestFallbackIsCheckedAheadOfNeed(t *testing.T) {
	s := fallback.Default()
	s.Dir = filepath.Join(t.TempDir(), "share")
	a, said := withFallback(t, s)
	for range 2 {
		a.fallback.check(t.Context())
	}
	if told := a.fallback.told(); told == nil || *told != 0 {
		t.Errorf("the room of a directory that is missing is told as %v, want 0", told)
	}
	if n := strings.Count(said.String(), "is it mounted?"); n != 1 || a.fallback.is.Load().trouble == "" {
		t.Errorf("said %d times that the directory is missing, want once: %s", n, said)
	}
	if err := os.Mkdir(s.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	a.fallback.check(t.Context())
	if told := a.fallback.told(); told == nil || *told == 0 {
		t.Errorf("its room is told as %v", told)
	}
	if a.fallback.is.Load().trouble != "" || !strings.Contains(said.String(), "well again") {
		t.Errorf("after it was mounted: %s", said)
	}
}

// If the share is not mounted, its mount point would take blocks, onto the disk that goes with the machine.
func TestFallbackOnTheMachinesOwnDiskIsSpokenOf(t *testing.T) {
	s := fallback.Default()
	s.Dir = t.TempDir()
	a, said := withFallback(t, s)
	a.fallback.dataDir = t.TempDir()
	for range 2 {
		a.fallback.check(t.Context())
	}
	const words = "may go away with this machine"
	if n := strings.Count(said.String(), words); n != 1 || a.fallback.wire().GetDoubt() == "" || a.fallback.wire().GetTrouble() != "" {
		t.Errorf("said %d times that nothing is mounted there, want once: %s", n, said)
	}
	smalldisk.Mount(t, s.Dir, "size=1m")
	a.fallback.check(t.Context())
	if f := a.fallback.wire(); f.GetDoubt() != "" || f.GetTrouble() != "" || strings.Count(said.String(), words) != 1 {
		t.Errorf("after it was mounted: %v, %s", f, said)
	}
}

func TestAgentRemovesWhatIsOldInItsDirectory(t *testing.T) {
	s := fallback.Default()
	s.Dir, s.Keep = t.TempDir(), 48*time.Hour
	a, said := withFallback(t, s)
	files := map[string]bool{ // true: it is removed once it is old
		"lifeboat-blocks/a/cache/-/x":                    true,
		"lifeboat-records/ab/cdef.json":                  true,
		"application_1_2/0/581811660/shuffle_0_0_0.data": true,
		"app-20260101000000-0001/3/shuffle_3_4_0.index":  true,
		"application_1_2/0/581811660/somebody.else":      false,
		"application_1_2/results.csv":                    false,
		"notes.txt":                                      false,
	}
	for name := range files {
		p := filepath.Join(s.Dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-50 * time.Hour)
		if err := os.Chtimes(p, at, at); err != nil {
			t.Fatal(err)
		}
	}
	young := filepath.Join(s.Dir, "lifeboat-blocks/a/cache/-/y")
	if err := os.WriteFile(young, []byte("y"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.fallback.sweep(t.Context())
	for name, goes := range files {
		if _, err := os.Stat(filepath.Join(s.Dir, name)); (err != nil) != goes {
			t.Errorf("%s: got %v, want it gone: %t\n%s", name, err, goes, said)
		}
	}
	again := filepath.Join(s.Dir, "lifeboat-blocks/a/cache/-/again")
	for _, p := range []string{again, filepath.Join(s.Dir, "lifeboat-unfinished/dead")} {
		if err := os.WriteFile(p, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-50 * time.Hour)
		if err := os.Chtimes(p, at, at); err != nil {
			t.Fatal(err)
		}
	}
	a.fallback.sweep(t.Context())
	if _, err := os.Stat(again); err != nil {
		t.Errorf("the directory was walked again a moment later: %v", err)
	}
	a.fallback.cfg.Keep = 0
	hour := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(s.Dir, swept), hour, hour); err != nil {
		t.Fatal(err)
	}
	a.fallback.sweep(t.Context())
	if _, err := os.Stat(again); err != nil {
		t.Errorf("without keep: %v, want it to stay for ever", err)
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "lifeboat-unfinished/dead")); err == nil {
		t.Error("without keep: what a killed writer began is left")
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("what was put a moment ago: %v", err)
	}
	a.fallback.cfg.Keep = 48 * time.Hour
	year := time.Now().Add(365 * 24 * time.Hour)
	if err := os.Chtimes(filepath.Join(s.Dir, swept), year, year); err != nil {
		t.Fatal(err)
	}
	a.fallback.sweep(t.Context())
	if _, err := os.Stat(again); err == nil {
		t.Error("nothing is removed since the share's clock was ahead for a while")
	}
}

// hanging is a storage that does not answer until the test mends it.
type hanging struct {
	fallback.Storage
	mended atomic.Bool
	asked  atomic.Int64
}

func (s *hanging) Get(ctx context.Context, name string, from int64, into []byte) (int, error) {
	if strings.HasSuffix(name, "-that-is-not-there") {
		s.asked.Add(1)
	}
	if !s.mended.Load() {
		time.Sleep(3 * time.Second)
		return 0, errors.New("no answer for 3s: it may hang")
	}
	return s.Storage.Get(ctx, name, from, into)
}

// The status says from the first minute on what is wrong with the fallback, the error and since when. An ill fallback is
// checked each minute, and every fallback when the node begins to leave.
func TestStatusTellsOfAnIllFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Agent{log: slog.New(slog.DiscardHandler)}
		a.fallback.log, a.fallback.incidents, a.fallback.lastResort = a.log, &a.incidents, &lastresort.Storage{Name: "spill"}
		var err error
		a.incidents.Keeper, err = preemption.OpenKeeper[work](preemption.KeeperConfig{Dir: t.TempDir(), Log: a.log, Clock: func() preemption.Moment { return preemption.Moment{Wall: time.Now()} }})
		if err != nil {
			t.Fatal(err)
		}
		s := &hanging{Storage: fallback.NewDirectory(t.TempDir())}
		a.fallback.storage = s
		if got := a.fallback.wire(); got.GetName() != "spill" || got.Tried != nil {
			t.Errorf("before it was tried: got %v", got)
		}
		ctx, stop := context.WithCancel(t.Context())
		var tending sync.WaitGroup
		tending.Go(func() { _ = a.fallback.Run(ctx) })
		defer tending.Wait()
		defer stop()
		at := func(after time.Duration, asked int64, trouble string, since, tried time.Duration) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			got := a.fallback.wire()
			if s.asked.Load() != asked || !strings.Contains(got.GetTrouble(), trouble) || (trouble == "") != (got.GetTrouble() == "") || got.GetSince().AsDuration() != since || got.GetTried().AsDuration() != tried {
				t.Errorf("got %v after %d questions, want %q for %v, tried %v ago, and %d", got, s.asked.Load(), trouble, since, tried, asked)
			}
		}
		at(10*time.Second, 1, "no answer for 3s", 7*time.Second, 7*time.Second)
		at(time.Minute, 2, "no answer for 3s", 67*time.Second, 4*time.Second)
		s.mended.Store(true)
		at(time.Minute, 3, "", 4*time.Second, 4*time.Second)
		at(30*time.Minute, 3, "", 30*time.Minute+4*time.Second, 30*time.Minute+4*time.Second)
		s.mended.Store(false)
		n := preemption.Notice{Source: preemption.SourceManual, ID: "x", Kind: preemption.KindManual, SeenAt: time.Now(), Stance: preemption.StanceDrain}
		if _, _, err := a.incidents.Join(n); err != nil {
			t.Fatal(err)
		}
		at(5*time.Second, 4, "no answer for 3s", 2*time.Second, 2*time.Second)
		at(10*time.Second, 4, "no answer for 3s", 12*time.Second, 12*time.Second)
	})
}

// tardy is a storage that takes its time with each content.
type tardy struct{ fallback.Storage }

func (s tardy) Put(ctx context.Context, name string, bytes int64, content io.Reader, fresh bool) error {
	select {
	case <-time.After(35 * time.Second):
		return s.Storage.Put(ctx, name, bytes, content, fresh)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A fallback that is as slow as a drain waits for is not one that takes nothing.
func TestFallbackThatIsSlowIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Agent{}
		a.fallback.log, a.fallback.lastResort = slog.New(slog.DiscardHandler), &lastresort.Storage{Name: "spill"}
		a.fallback.storage = tardy{fallback.NewDirectory(t.TempDir())}
		a.fallback.check(t.Context())
		if trouble := a.fallback.is.Load().trouble; trouble != "" {
			t.Errorf("got %s", trouble)
		}
	})
}

// endless is a storage whose sweep takes longer than the test.
type endless struct {
	fallback.Storage
	swept, asked atomic.Int64
}

func (s *endless) Sweep(ctx context.Context, _ time.Time, _ func(string) bool) (int, error) {
	s.swept.Add(1)
	<-ctx.Done()
	return 0, ctx.Err()
}

func (s *endless) Get(ctx context.Context, name string, from int64, into []byte) (int, error) {
	if strings.HasSuffix(name, "-that-is-not-there") {
		s.asked.Add(1)
	}
	return s.Storage.Get(ctx, name, from, into)
}

// The fallback is checked even while its sweep hangs, or takes hours on a large share.
func TestFallbackIsCheckedWhileItIsSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Agent{log: slog.New(slog.DiscardHandler)}
		a.fallback.log, a.fallback.incidents, a.fallback.lastResort = a.log, &a.incidents, &lastresort.Storage{Name: "spill"}
		var err error
		a.incidents.Keeper, err = preemption.OpenKeeper[work](preemption.KeeperConfig{Dir: t.TempDir(), Log: a.log, Clock: func() preemption.Moment { return preemption.Moment{Wall: time.Now()} }})
		if err != nil {
			t.Fatal(err)
		}
		s := &endless{Storage: fallback.NewDirectory(t.TempDir())}
		a.fallback.storage = s
		ctx, stop := context.WithCancel(t.Context())
		var tending sync.WaitGroup
		tending.Go(func() { _ = a.fallback.Run(ctx) })
		defer tending.Wait()
		defer stop()
		time.Sleep(10 * time.Minute)
		n := preemption.Notice{Source: preemption.SourceManual, ID: "x", Kind: preemption.KindManual, SeenAt: time.Now(), Stance: preemption.StanceDrain}
		if _, _, err := a.incidents.Join(n); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if s.swept.Load() != 1 || s.asked.Load() != 2 {
			t.Errorf("swept %d times and checked %d times, want once, and at the start and when the node began to leave", s.swept.Load(), s.asked.Load())
		}
		time.Sleep(2*time.Hour + time.Minute)
		if s.swept.Load() != 1 || s.asked.Load() != 4 {
			t.Errorf("swept %d times and checked %d times, want once, and every hour", s.swept.Load(), s.asked.Load())
		}
	})
}
