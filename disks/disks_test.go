package disks

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shirou/gopsutil/v3/disk"
	"golang.org/x/sys/unix"
)

func TestUsageIsWhatTheKernelSays(t *testing.T) {
	dir := t.TempDir()
	got, err := Usage(dir)
	if err != nil {
		t.Fatal(err)
	}
	var want unix.Statfs_t
	if err := unix.Statfs(dir, &want); err != nil {
		t.Fatal(err)
	}
	if total := int64(want.Blocks) * int64(want.Bsize); got.Path != dir || got.TotalBytes != total {
		t.Errorf("got %+v, want a total of %d at %s", got, total, dir)
	}
	// Others write to this disk too, so what is usable may have moved a little.
	const leeway = 1 << 30
	if usable := int64(want.Bavail) * int64(want.Bsize); got.UsableBytes < usable-leeway || got.UsableBytes > usable+leeway {
		t.Errorf("usable: got %d, want about %d", got.UsableBytes, usable)
	}
	if _, err := Usage(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path that is not there: got %v", err)
	}
}

func TestSpaceOfOddFileSystems(t *testing.T) {
	below := int64(-4096)
	for name, row := range map[string]struct {
		stat          disk.UsageStat
		total, usable int64
	}{
		"plain":              {disk.UsageStat{Total: 1000, Free: 400, InodesTotal: 10, InodesFree: 1}, 1000, 400},
		"full":               {disk.UsageStat{Total: 1000, InodesTotal: 10, InodesFree: 1}, 1000, 0},
		"below zero":         {disk.UsageStat{Total: 1000, Free: uint64(below)}, 1000, 0},
		"out of inodes":      {disk.UsageStat{Total: 1000, Free: 400, InodesTotal: 10}, 1000, 0},
		"counts no inodes":   {disk.UsageStat{Total: 1000, Free: 400}, 1000, 400},
		"larger than we can": {disk.UsageStat{Total: math.MaxUint64, Free: math.MaxInt64}, math.MaxInt64, math.MaxInt64},
		"more than there is": {disk.UsageStat{Total: 1000, Free: 4000}, 1000, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := space("/d", &row.stat), (Space{"/d", row.total, row.usable}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// sick is a disk that hangs while told to.
type sick struct {
	calls, under atomic.Int64
	most         atomic.Int64 // calls that were under way at once
	thaw         atomic.Pointer[chan struct{}]
	fail         atomic.Pointer[error]
}

func (s *sick) usage(path string) (Space, error) {
	s.most.Store(max(s.most.Load(), s.under.Add(1)))
	defer s.under.Add(-1)
	n := s.calls.Add(1)
	if thaw := s.thaw.Load(); thaw != nil {
		<-*thaw
	}
	if err := s.fail.Load(); err != nil {
		return Space{}, *err
	}
	return Space{Path: path, TotalBytes: 1000, UsableBytes: n}, nil
}

func (s *sick) freeze() (thaw func()) {
	hold := make(chan struct{})
	s.thaw.Store(&hold)
	return func() { s.thaw.Store(nil); close(hold) }
}

func newSickMeter(maxAge time.Duration) (*Meter, *sick) {
	s, m := new(sick), NewMeter(maxAge)
	m.usage = s.usage
	return m, s
}

func TestMeterKeepsAnAnswerForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := newSickMeter(10 * time.Second)
		for range 101 {
			if _, err := m.Space(t.Context(), "/d"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if got := s.calls.Load(); got != 10 {
			t.Errorf("asked the disk %d times in 101 s, want one in eleven", got)
		}
		if got, err := m.Space(t.Context(), "/other"); err != nil || got.Path != "/other" {
			t.Errorf("another path: got %+v, %v", got, err)
		}
	})
}

func TestHungDiskHangsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := newSickMeter(10 * time.Second)
		thaw := s.freeze()
		_, err := m.Space(t.Context(), "/d")
		if hung, ok := errors.AsType[*HungError](err); !ok || hung.Age >= 0 || hung.For != time.Second {
			t.Errorf("a disk that never answered: got %v", err)
		}
		thaw()
		synctest.Wait()
		good, err := m.Space(t.Context(), "/d")
		if err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Minute)
		thaw = s.freeze()
		start := time.Now()
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				got, err := m.Space(t.Context(), "/d")
				if hung, ok := errors.AsType[*HungError](err); !ok || got != good || hung.Age != 61*time.Second {
					t.Errorf("got %+v, %v, want the last answer, 61s old", got, err)
				}
			})
		}
		callers.Wait()
		if took := time.Since(start); took != time.Second {
			t.Errorf("callers waited %v, want 1s", took)
		}
		time.Sleep(time.Hour)
		start = time.Now()
		if _, err := m.Space(t.Context(), "/d"); err == nil || time.Since(start) != 0 {
			t.Errorf("a disk known to hang: got %v after %v, want an error at once", err, time.Since(start))
		}
		if got, err := m.Space(t.Context(), "/well"); err == nil { // frozen too, but asked on its own
			t.Errorf("got %+v", got)
		}
		if got := s.under.Load(); got != 2 {
			t.Errorf("%d calls under way for two paths, want 2", got)
		}
		thaw()
		synctest.Wait()
		if got, err := m.Space(t.Context(), "/d"); err != nil || got == good {
			t.Errorf("after the thaw: got %+v, %v, want a new answer", got, err)
		}
	})
}

func TestCallerMayGiveUpFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := newSickMeter(0)
		thaw := s.freeze()
		defer thaw()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := m.Space(ctx, "/d"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the caller's deadline", err)
		}
	})
}

func TestErrorIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := newSickMeter(time.Hour)
		gone := errors.New("no such device")
		s.fail.Store(&gone)
		if _, err := m.Space(t.Context(), "/d"); !errors.Is(err, gone) {
			t.Errorf("got %v, want %v", err, gone)
		}
		s.fail.Store(nil)
		if _, err := m.Space(t.Context(), "/d"); err != nil {
			t.Errorf("after it came back: got %v", err)
		}
		if got := s.most.Load(); got != 1 {
			t.Errorf("%d calls at once, want 1", got)
		}
	})
}
