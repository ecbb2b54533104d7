package disks

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Killed processes do not end even though they had nothing to do. The monitor ends without them.
func TestEndWaitsForNoProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeDisks{table: table1(t, twoDisks), answer: fine, killed: make(chan struct{}), stuck: make(chan struct{})}
		m := New(Config{Paths: []string{"/mnt/a", "/mnt/b"}})
		m.sys = sysfs(t.TempDir())
		m.openTable = func() (table, error) { return f, nil }
		m.newProber = func() prober { return f }
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() {
			if err := m.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		synctest.Wait()
		began := time.Now()
		cancel()
		run.Wait()
		if took := time.Since(began); took > farewell {
			t.Errorf("Run ended after %s, want %s at most", took, farewell)
		}
		close(f.stuck)
	})
}

// Nor does a running monitor wait for one, when the disk that it was for is not watched any more.
func TestMonitorWaitsForNoProcess(t *testing.T) {
	inBubble(t, Config{Paths: []string{"/mnt/a", "/mnt/b"}}, func(t *testing.T, m *Monitor, f *fakeDisks) {
		time.Sleep(time.Second)
		f.stuck = make(chan struct{})
		defer close(f.stuck)
		m.setPaths([]string{"/mnt/b"})
		time.Sleep(time.Minute)
		m.mu.Lock()
		defer m.mu.Unlock()
		if p := m.places[0]; p.judge.state.Health != Healthy || time.Since(p.answered) > 10*time.Second {
			t.Errorf("got %v %q, and the last answer is %v old", p.judge.state.Health, p.judge.state.Why, time.Since(p.answered))
		}
	})
}
