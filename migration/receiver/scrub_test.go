package receiver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// scrubbing runs the node's receiver, which reads back what lands at that rate, until stop is called.
func (n *node) scrubbing(t testing.TB, bytesPerSecond int64) (broken func() []vault.Held, stop func()) {
	t.Helper()
	var mu sync.Mutex
	var all []vault.Held
	tune := n.tune
	n.tune = func(cfg *Config) {
		if tune != nil {
			tune(cfg)
		}
		cfg.ScrubBytesPerSecond = bytesPerSecond
		cfg.Broken = func(h vault.Held) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, h)
		}
	}
	n.receive(t)
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.receiver.Run(ctx) })
	return func() []vault.Held {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}, func() { end(); running.Wait() }
}

// A landed block is read back once, in a segment or in place, wherever a bit turned. A broken block is gone for readers,
// with its file, and all others are well.
func TestScrubFindsWhatRots(t *testing.T) {
	place := with(inventory.StoreConfig{Name: "place", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Land: inventory.LandPlace}, "place")
	big := 5 * wire.ChunkBytes // larger than blocks that wait in segments
	for name, c := range map[string]struct{ id, dir string }{
		"in a segment": {"cache/-/x-3", "vault/segments"},
		"in place":     {"place/-/y-3", "place"},
	} {
		for _, at := range []int{0, wire.ChunkBytes + 107, big - 1} {
			t.Run(fmt.Sprint(name, " at ", at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := newNode(t, "b", with(filesStore, "cache"), place)
					want := map[string][]byte{}
					var frames [][]byte
					for i := range 6 {
						for _, id := range []string{fmt.Sprint("cache/-/x-", i), fmt.Sprint("place/-/y-", i)} {
							want[id] = contentOf(id, big)
							frames = append(frames, blockFrames(uint32(len(frames)+1), id, want[id]))
						}
					}
					wantDurable(t, landAll(t, n, frames...))
					broken, stop := n.scrubbing(t, 1<<30)
					defer stop()
					flip(t, filepath.Join(n.Dir, c.dir), want[c.id][max(0, at-50):min(at+50, big)], min(at, 50))
					time.Sleep(scrubAfter + time.Second)
					if got := broken(); len(got) != 1 || string(got[0].ID) != c.id || got[0].From != "a" || got[0].Bytes != int64(big) {
						t.Fatalf("found %v, want %s of a", got, c.id)
					}
					if status := n.answer(t, c.id); status != http.StatusNotFound {
						t.Errorf("a block that was broken and is removed: status %d", status)
					}
					for id, content := range want {
						if id != c.id && !slices.Equal(n.Content(t, id), content) {
							t.Errorf("%s is well, and is not served", id)
						}
					}
					if got := n.Vault.Count(); got.Blocks != 11 {
						t.Errorf("%d blocks are counted, want 11", got.Blocks)
					}
				})
			})
		}
	}
}

// A day later everything that rests here is read back again, though nothing landed meanwhile; before that nothing is.
func TestScrubComesBackTheNextDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b", with(filesStore, "cache"))
		want := landApps(t, n, 3, 2*wire.ChunkBytes)
		broken, stop := n.scrubbing(t, 1<<30)
		defer stop()
		time.Sleep(time.Hour)
		once, _ := n.receiver.Scrubbed()
		n.removeOne(t, "cache/app-1/x1")
		flip(t, filepath.Join(n.Dir, "vault/segments"), want["cache/app-2/x1"][:100], 5)
		time.Sleep(22 * time.Hour)
		if again, _ := n.receiver.Scrubbed(); again != once || once == 0 || len(broken()) > 0 {
			t.Errorf("%d bytes were read back in an hour, %d in a day, and %v found: want it once", once, again, broken())
		}
		time.Sleep(2 * time.Hour)
		if got := broken(); len(got) != 1 || got[0].ID != "cache/app-2/x1" {
			t.Errorf("found %v, want what rotted since", got)
		}
	})
}

// removeOne removes one block, which leaves a hole in its segment.
func (n *node) removeOne(t testing.TB, id string) {
	t.Helper()
	if gone, err := n.receiver.Remove(t.Context(), "at an operator's word", func(h vault.Held) bool { return string(h.ID) == id }); err != nil || gone.Blocks != 1 {
		t.Fatalf("removed %v, %v", gone, err)
	}
}

// Reading back is as slow as configured, and slower while blocks come in.
func TestScrubGivesWay(t *testing.T) {
	const rate = 1 << 20
	took := func(busy bool) (d time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, "b", with(filesStore, "cache"))
			landApps(t, n, 4, wire.ChunkBytes)
			var refuses atomic.Bool
			n.tune = func(cfg *Config) {
				cfg.Admit = func(bool) Admission {
					if refuses.Load() {
						return Admission{Refused: "this node leaves itself", Retry: time.Second}
					}
					return Admission{}
				}
			}
			refuses.Store(busy)
			_, stop := n.scrubbing(t, rate)
			defer stop()
			began := time.Now()
			for d = 0; d < time.Hour; d = time.Since(began) {
				if read, _ := n.receiver.Scrubbed(); read >= 8*wire.ChunkBytes {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
		return d - scrubAfter
	}
	idle, busy := took(false), took(true)
	if idle < 500*time.Millisecond || idle > 3*time.Second {
		t.Errorf("2 MiB were read back in %s, want some 2 s at 1 MiB/s", idle)
	}
	if busy < 4*idle {
		t.Errorf("2 MiB were read back in %s while the disks were wanted for something else, in %s when not", busy, idle)
	}
}

// Without a rate only a block that a reader met is read back: if it is broken it is removed, as scrub would have.
func TestReaderFindsWhatScrubWouldHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b", with(filesStore, "cache"))
		want := landApps(t, n, 2, 1000)
		broken, stop := n.scrubbing(t, 0)
		defer stop()
		flip(t, filepath.Join(n.Dir, "vault/segments"), want["cache/app-1/x1"][:100], 5)
		time.Sleep(48 * time.Hour)
		if got := broken(); len(got) > 0 {
			t.Fatalf("found %v, though nothing is to be read back", got)
		}
		n.receiver.Suspect("cache/app-2/x0") // this one is well
		n.receiver.Suspect("cache/app-1/x1")
		synctest.Wait()
		if got := broken(); len(got) != 1 || got[0].ID != "cache/app-1/x1" {
			t.Errorf("found %v, want what the reader met", got)
		}
		if got := n.LandedBlocks(); len(got) == 0 || got[len(got)-1].ID != "cache/app-2/x0" {
			t.Errorf("told of %v, want the one that is well at last", got)
		}
	})
}

// answer returns the status of a read without a server, so that it works in a bubble.
func (n *node) answer(t testing.TB, id string) int {
	t.Helper()
	w := httptest.NewRecorder()
	n.Reader().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/blocks/"+id, nil))
	return w.Code
}
