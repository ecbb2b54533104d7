package migration

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// A block that no peer has room for is never settled. Files that are written meanwhile are sent all the same.
func TestBlockThatFitsNowhereHoldsUpNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
		b.Room = roomFor(1 << 20)
		write(t, filepath.Join(a.Dir, "cache/large"), contentOf("large", 2<<20))
		write(t, filepath.Join(a.Dir, "cache/small"), contentOf("small", 10))
		for i := range 5 {
			name := fmt.Sprint("cache/new-", i)
			time.AfterFunc(time.Duration(5+30*i)*time.Second, func() { write(t, filepath.Join(a.Dir, name), contentOf(name, 10)) })
		}
		sum, entries := a.drain(t, within(t, 3*time.Minute), b)
		moved := outcome(t, entries, manifest.Moved)
		for i := range 5 {
			if id := fmt.Sprintf("cache/-/new-%d", i); moved[id].Peer != "b" {
				t.Errorf("%s, of %d s after the beginning, was not moved", id, 5+30*i)
			}
		}
		if sum.Moved.Blocks != 6 || sum.Lost.Blocks != 1 {
			t.Errorf("got %+v, want all but the large one moved", sum)
		}
	})
}

// The deadline comes before all blocks of the first look are sent. Blocks that were written or changed meanwhile are named as
// well.
func TestWhatIsWrittenBeforeTheDeadlineIsNamed(t *testing.T) {
	for _, at := range []time.Duration{5 * time.Second, 15 * time.Second, 44 * time.Second} { // looks are ten seconds apart
		synctest.Test(t, func(t *testing.T) {
			a, want := cached(t, 200, 100_000)
			tr := newTrip(t, a, newNode(t, "b"))
			tr.cfg.MaxBytesPerSecond, tr.cfg.Connections = 200_000, 1 // less than half of it can be sent in time
			written := make(chan struct{})
			time.AfterFunc(at, func() {
				defer close(written)
				write(t, filepath.Join(a.Dir, "cache/new"), contentOf("new", 10))
				for id := range want {
					write(t, filepath.Join(a.Dir, "cache", inventory.BlockID(id).Name()), contentOf("other", 100_001))
				}
			})
			sum, entries := tr.run(within(t, 45*time.Second))
			moved, lost := outcome(t, entries, manifest.Moved), outcome(t, entries, manifest.Lost)
			<-written
			want["cache/-/new"] = nil
			for id := range want {
				if moved[id].ID == "" && lost[id].ID == "" {
					t.Errorf("changed after %v: %s is neither moved nor lost", at, id)
				}
			}
			if n := sum.Moved.Blocks + sum.Lost.Blocks; n != 201 {
				t.Errorf("changed after %v: the account has %d blocks, want 201: %+v", at, n, sum)
			}
		})
	}
}

// slow is a layout that takes long to look through.
type slow struct {
	inventory.FilesLayout
	takes time.Duration
	saw   func(began, ended time.Time)
}

func (l slow) Scan(ctx context.Context, s *inventory.Store, part int, before inventory.Past, yield func(inventory.Item, error) bool) bool {
	began := time.Now()
	if !await.Sleep(ctx, l.takes) {
		return false
	}
	defer l.saw(began, time.Now())
	return l.FilesLayout.Scan(ctx, s, part, before, yield)
}

// Looks take resources from sending: while blocks are left they are far apart. They go on until the deadline.
func TestLooksAreFarBetweenWhileBlocksAreLeft(t *testing.T) {
	for _, takes := range []time.Duration{0, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			a, _ := cached(t, 1, 1000)
			until := time.Now().Add(time.Hour)
			var mu sync.Mutex
			least, last := time.Hour, time.Time{}
			a.Stores[0].Shape = slow{takes: takes, saw: func(began, ended time.Time) {
				mu.Lock()
				defer mu.Unlock()
				if !last.IsZero() && ended.Before(until) {
					least = min(least, began.Sub(last))
				}
				if ended.Before(until) {
					last = ended
				}
			}}
			a.drain(t, within(t, time.Until(until))) // no peer takes it
			want := max(lookAnyway, lookShare*takes)
			if least < want || until.Sub(last) > 2*want {
				t.Errorf("looks of %v: %v between them, and the last one %v before the deadline, want %v between them", takes, least, until.Sub(last), want)
			}
		})
	}
}
