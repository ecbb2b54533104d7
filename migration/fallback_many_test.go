package migration

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/lastresort"
)

// A storage takes 30 ms for each small content, and many at once.
func TestManySmallBlocksGoToTheFallbackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 4000, 100)
		s := newLarder()
		s.latency = 30 * time.Millisecond
		tr := newTrip(t, a)
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		began := time.Now()
		sum, entries := tr.run(within(t, 30*time.Second)) // four at once would have moved 1300
		if sum.Lost.Blocks != 0 {
			t.Fatalf("got %+v after %v", sum, time.Since(began))
		}
		wantInFallback(t, tr.cfg.Fallback, want, entries)
		if s.most > mostSmall {
			t.Errorf("%d uploads at once, want %d at most", s.most, mostSmall)
		}
	})
}

// Large blocks are in memory in parts of some MiB, and the link is the bottleneck: there are never more of them under
// way than streams.
func TestLargeBlocksGoToTheFallbackFewAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := cached(t, 1000, 100)
		for i := range 100 {
			write(t, filepath.Join(a.Dir, "cache", fmt.Sprint("large", i)), contentOf("large", smallUpload+1))
		}
		s := newLarder()
		s.latency = 30 * time.Millisecond
		tr := newTrip(t, a)
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		if sum, _ := tr.run(within(t, 30*time.Second)); sum.Lost.Blocks != 0 {
			t.Errorf("got %+v", sum)
		}
		if s.mostLarge > 4 {
			t.Errorf("%d large uploads at once, want 4 at most", s.mostLarge)
		}
	})
}

// A storage that refuses too many at once gets fewer.
func TestFallbackThatRefusesGetsFewerAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 3000, 100)
		s := newLarder()
		s.latency = 30 * time.Millisecond
		refused := 0
		s.trip = func(string) error { // s.mu is held
			if s.busy > 40 {
				refused++
				return errors.New("slow down")
			}
			return nil
		}
		tr := newTrip(t, a)
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		began := time.Now()
		sum, entries := tr.run(within(t, time.Minute))
		if sum.Lost.Blocks != 0 {
			t.Fatalf("got %+v after %v", sum, time.Since(began))
		}
		wantInFallback(t, tr.cfg.Fallback, want, entries)
		t.Logf("took %v, %d refused, %d at once", time.Since(began), refused, s.most)
		if refused > 500 {
			t.Errorf("%d were refused of 6000: there should have been fewer at once", refused)
		}
	})
}

// A storage that is full still takes what was on its way. It is not reported to be well because of that.
func TestFallbackThatFillsUpIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := cached(t, 8, 100)
		s := newLarder()
		s.rate = 10_000 // slow, so that the refusal is known first
		s.trip = func(name string) error {
			if strings.HasPrefix(name, "lifeboat-blocks/") && strings.ContainsAny(name[len(name)-1:], "1357") {
				return errors.New("no space left on device")
			}
			return nil
		}
		var said strings.Builder
		tr := newTrip(t, a)
		tr.cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		tr.cfg.Fallback.Streams = 8
		sum, _ := tr.run(within(t, 20*time.Second))
		if sum.Moved.Blocks != 4 {
			t.Errorf("%d blocks moved, want 4", sum.Moved.Blocks)
		}
		if strings.Count(said.String(), "peer in trouble") != 1 || strings.Contains(said.String(), "well again") {
			t.Errorf("want it told once to be in trouble: %s", &said)
		}
	})
}
