package disks

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fakeDisks stands for the kernel: what is mounted, and how each device answers.
type fakeDisks struct {
	mu     sync.Mutex // guards what follows
	table  mounts
	moved  bool
	answer func(task) answer
	count  counters
	hold   chan struct{} // while not nil, all questions hang
	still  time.Duration // for how long the monitor will stand still once

	asked, under, most atomic.Int64
	written            atomic.Int64
	deaf               bool          // kill does not help
	stuck              chan struct{} // nil: a closed prober ends at once; else once this is closed
	killed             chan struct{}
}

func (f *fakeDisks) changed() bool {
	f.mu.Lock()
	if still := f.still; still > 0 {
		f.still = 0
		f.mu.Unlock()
		time.Sleep(still)
		f.mu.Lock()
	}
	defer f.mu.Unlock()
	defer func() { f.moved = false }()
	return f.moved
}

func (f *fakeDisks) read() (mounts, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table, nil
}

func (f *fakeDisks) remount(all mounts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.table, f.moved = all, true
}

func (f *fakeDisks) probe(t task, at func(string)) answer {
	f.asked.Add(1)
	f.most.Store(max(f.most.Load(), f.under.Add(1)))
	defer f.under.Add(-1)
	f.written.Add(t.Write)
	at(stepSync)
	f.mu.Lock()
	hold, tell, killed := f.hold, f.answer, f.killed
	f.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-killed:
			return answer{Lost: true, finding: finding{Why: "killed"}}
		}
	}
	return tell(t)
}

func (f *fakeDisks) kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.deaf {
		close(f.killed)
		f.killed = make(chan struct{})
	}
}

func (f *fakeDisks) end() {
	if f.stuck != nil {
		<-f.stuck
	}
}

func (f *fakeDisks) close() error { return nil }

func (f *fakeDisks) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hold = make(chan struct{})
}

func (f *fakeDisks) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.hold)
	f.hold = nil
}

func (f *fakeDisks) say(tell func(task) answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = tell
}

const gib = 1 << 30

// fine is the answer of a disk of 100 GiB that is half full and writes 100 MiB/s.
func fine(t task) answer {
	took := time.Duration(t.Write) * time.Second / (100 << 20)
	return answer{finding: good, Dir: t.Dir, Room: extent{Total: 100 * gib, Free: 50 * gib}, Sized: true, Wrote: took, Read: took}
}

const twoDisks = `1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 8:17 / /mnt/a rw - ext4 /dev/sdb1 rw
3 1 8:33 / /mnt/b rw - ext4 /dev/sdc1 rw
`

// inBubble runs a test of a monitor whose disks are fakes: one fake answers all questions to all devices.
func inBubble(t *testing.T, cfg Config, test func(t *testing.T, m *Monitor, f *fakeDisks)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeDisks{table: table1(t, twoDisks), answer: fine, killed: make(chan struct{})}
		cfg.Log = cmp.Or(cfg.Log, slog.New(slog.NewTextHandler(t.Output(), nil)))
		m := New(cfg)
		m.sys = sysfs(t.TempDir())
		m.openTable = func() (table, error) { return f, nil }
		m.newProber = func() prober { return f }
		m.counters = func(number) (counters, bool) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.count, f.count != counters{}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() {
			if err := m.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		synctest.Wait()
		test(t, m, f)
		cancel()
		run.Wait()
	})
}

func healths(m *Monitor) string {
	var all []string
	for _, d := range m.Snapshot() {
		all = append(all, d.Health.String())
	}
	return strings.Join(all, " ")
}
