package migration

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// running has the node's receiver run while something is done.
func (n *node) running(t *testing.T, do func()) {
	t.Helper()
	n.receive(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { n.receiver.Run(ctx) })
	do()
	cancel()
	running.Wait()
}

// An engine cleans up behind its app, and with its own files what had landed: nothing of that counts, nor is said to be here.
func TestWhatEnginesRemoveIsHeldNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b", with(placeStore, "cache"))
		wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", []byte("x")), blockFrames(2, "cache/-/y", []byte("y")), blockFrames(3, "cache/-/z", []byte("z"))))
		n.reopen(t)
		n.running(t, func() {
			time.Sleep(5 * time.Minute)
			if got := n.vault.Count(); got != (inventory.Count{Blocks: 3, Bytes: 3}) {
				t.Errorf("all is in its place, and counted: %+v", got)
			}
			if err := os.Remove(filepath.Join(n.dir, "cache/x")); err != nil {
				t.Error(err)
			}
			write(t, filepath.Join(n.dir, "cache/y"), []byte("the engine's own"))
			time.Sleep(5 * time.Minute)
		})
		if got := n.vault.Count(); got != (inventory.Count{Blocks: 1, Bytes: 1}) {
			t.Errorf("one is in its place, and counted: %+v", got)
		}
		if len(n.gone) != 2 {
			t.Errorf("told of %v", n.gone)
		}
		if got := n.content(t, "cache/-/y"); !bytes.Equal(got, []byte("the engine's own")) {
			t.Errorf("what the engine put there: %q", got)
		}
		if got := n.content(t, "cache/-/z"); !bytes.Equal(got, []byte("z")) {
			t.Errorf("what nobody touched: %q", got)
		}
	})
}

// A disk that was not mounted looks as if an engine had removed all.
func TestADirectoryWhereNothingLandedTakesNothingAway(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "cache"))
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", []byte("x"))))
	mounted := filepath.Join(n.dir, "cache")
	if err := os.Rename(mounted, mounted+"-elsewhere"); err != nil {
		t.Fatal(err)
	}
	empty, err := inventory.OpenStore(n.stores[0].StoreConfig) // makes the directory, as the agent's start does
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	n.stores[0] = empty
	n.reopen(t)
	n.receive(t)
	n.receiver.dropGhosts(t.Context())
	if got := n.vault.Count(); got != (inventory.Count{Blocks: 1, Bytes: 1}) {
		t.Errorf("counted %+v", got)
	}
}

// Readers are sent to whom the coordinator knows: what one of them does not find is not held from then on, before anybody looks
// for what engines have removed.
func TestGhostThatAReaderMeetsIsLaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b", with(placeStore, "cache"))
		wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", []byte("x")), blockFrames(2, "cache/-/y", []byte("y"))))
		n.reopen(t)
		n.landed = nil
		n.running(t, func() {
			time.Sleep(5 * time.Minute)
			if err := os.Remove(filepath.Join(n.dir, "cache/x")); err != nil {
				t.Error(err)
			}
			for id, want := range map[string]int{"cache/-/x": 404, "cache/-/y": 200, "cache/-/z": 404} {
				w := httptest.NewRecorder()
				n.reader().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/blocks/"+id, nil))
				if w.Code != want {
					t.Errorf("%s: got %d, want %d", id, w.Code, want)
				}
			}
			time.Sleep(time.Second)
		})
		if got := n.vault.Count(); got != (inventory.Count{Blocks: 1, Bytes: 1}) || len(n.gone) != 1 || len(n.landed) > 0 {
			t.Errorf("%+v rest there; told of %v, which is gone, and of %v", got, n.gone, n.landed)
		}
	})
}

// Spark's shuffle services remove the data and index files of a shuffle that is over, and know of no checksums. Those go, too, whoever
// notices first, with the directories that were made for them.
func TestNothingIsLeftOfAMapOutputThatAnEngineRemoved(t *testing.T) {
	const app = "application_1_1"
	for name, asked := range map[string]bool{"a reader meets it": true, "nobody asks": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, n := newNode(t, "a", with(sparkStore, "d0")), newNode(t, "b", with(sparkStore, "d0"))
				writeMapOutput(t, []string{filepath.Join(a.dir, "d0", app, "blockmgr-x")}, 1, 2, 1000)
				a.drain(t, t.Context(), n)
				n.reopen(t)
				files := func(what string) []string {
					all, err := filepath.Glob(filepath.Join(n.dir, "d0", app, "blockmgr-lifeboat", what))
					if err != nil {
						t.Fatal(err)
					}
					return all
				}
				n.running(t, func() {
					time.Sleep(5 * time.Minute)
					removed := append(files("??/*.data"), files("??/*.index")...)
					if len(removed) != 2 || len(files("??/*.checksum.*")) != 1 {
						t.Fatalf("it landed as %v", files("??/*"))
					}
					for _, f := range removed {
						if err := os.Remove(f); err != nil {
							t.Error(err)
						}
					}
					if asked {
						n.reader().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodHead, "/blocks/spark/"+app+"/shuffle_1_2_0.index", nil))
						time.Sleep(time.Second)
					} else {
						time.Sleep(5 * time.Minute)
					}
				})
				if left := files("*"); len(left) > 0 || len(n.gone) != 1 || n.why != takenOver {
					t.Errorf("it left %v, and told of %v, %q", left, n.gone, n.why)
				}
			})
		})
	}
}

// A ghost is met when its block comes again. What landed under its id since it was looked at is none, and stays.
func TestGhostIsLaidOnlyWhileItIsOne(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "cache"))
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", []byte("x"))))
	ghost, err := n.vault.Catalog.Get("cache/-/x")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(n.dir, "cache/x")); err != nil {
		t.Fatal(err)
	}
	wantDurable(t, landAll(t, n, blockFrames(2, "cache/-/x", []byte("newer"))))
	if len(n.gone) != 1 || n.why != takenOver {
		t.Errorf("told of %v, %q; want what the engine removed", n.gone, n.why)
	}
	if err := n.receiver.lay(ghost); err != nil {
		t.Fatal(err)
	}
	if got := n.vault.Count(); got != (inventory.Count{Blocks: 1, Bytes: 5}) || len(n.gone) != 1 {
		t.Errorf("%+v rest there, and told of %v", got, n.gone)
	}
}
