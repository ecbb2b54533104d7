package receiver

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// running has the node's receiver run while do does something.

// An engine cleans up after its app, and with its own files it removes landed ones: they neither count nor are reported as
// held.
func TestWhatEnginesRemoveIsHeldNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b", with(placeStore, "cache"))
		wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", []byte("x")), blockFrames(2, "cache/-/y", []byte("y")), blockFrames(3, "cache/-/z", []byte("z"))))
		n.Reopen(t)
		n.running(t, func() {
			time.Sleep(5 * time.Minute)
			if got := n.Vault.Count(); got != (inventory.Count{Blocks: 3, Bytes: 3}) {
				t.Errorf("all is in its place, and counted: %+v", got)
			}
			if err := os.Remove(filepath.Join(n.Dir, "cache/x")); err != nil {
				t.Error(err)
			}
			write(t, filepath.Join(n.Dir, "cache/y"), []byte("the engine's own"))
			time.Sleep(5 * time.Minute)
		})
		if got := n.Vault.Count(); got != (inventory.Count{Blocks: 1, Bytes: 1}) {
			t.Errorf("one is in its place, and counted: %+v", got)
		}
		if len(n.Gone) != 2 {
			t.Errorf("told of %v", n.Gone)
		}
		if got := n.Content(t, "cache/-/y"); !bytes.Equal(got, []byte("the engine's own")) {
			t.Errorf("what the engine put there: %q", got)
		}
		if got := n.Content(t, "cache/-/z"); !bytes.Equal(got, []byte("z")) {
			t.Errorf("what nobody touched: %q", got)
		}
	})
}

// A disk that is not mounted looks as if an engine had removed all its files.
func TestADirectoryWhereNothingLandedTakesNothingAway(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "cache"))
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", []byte("x"))))
	mounted := filepath.Join(n.Dir, "cache")
	if err := os.Rename(mounted, mounted+"-elsewhere"); err != nil {
		t.Fatal(err)
	}
	empty, err := inventory.OpenStore(n.Stores[0].StoreConfig) // it makes the directory, as the agent's start does
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	n.Stores[0] = empty
	n.Reopen(t)
	n.receive(t)
	n.receiver.DropGhosts(t.Context())
	if got := n.Vault.Count(); got != (inventory.Count{Blocks: 1, Bytes: 1}) {
		t.Errorf("counted %+v", got)
	}
}

// The coordinator sends readers to a holder. If a reader finds the block's file removed there, the block is not held from then
// on, before DropGhosts looks.
func TestGhostThatAReaderMeetsIsLaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b", with(placeStore, "cache"))
		wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", []byte("x")), blockFrames(2, "cache/-/y", []byte("y"))))
		n.Reopen(t)
		n.Landed = nil
		n.running(t, func() {
			time.Sleep(5 * time.Minute)
			if err := os.Remove(filepath.Join(n.Dir, "cache/x")); err != nil {
				t.Error(err)
			}
			for id, want := range map[string]int{"cache/-/x": 404, "cache/-/y": 200, "cache/-/z": 404} {
				w := httptest.NewRecorder()
				n.Reader().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/blocks/"+id, nil))
				if w.Code != want {
					t.Errorf("%s: got %d, want %d", id, w.Code, want)
				}
			}
			time.Sleep(time.Second)
		})
		if got := n.Vault.Count(); got != (inventory.Count{Blocks: 1, Bytes: 1}) || len(n.Gone) != 1 || len(n.Landed) > 0 {
			t.Errorf("%+v rest there; told of %v, which is gone, and of %v", got, n.Gone, n.Landed)
		}
	})
}

// A ghost shows when its block comes again. If a newer version has landed under its id since the ghost was read, that
// version stays.
func TestGhostIsLaidOnlyWhileItIsOne(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "cache"))
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", []byte("x"))))
	ghost, err := n.Vault.Catalog.Get("cache/-/x")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(n.Dir, "cache/x")); err != nil {
		t.Fatal(err)
	}
	wantDurable(t, landAll(t, n, blockFrames(2, "cache/-/x", []byte("newer"))))
	if len(n.Gone) != 1 || n.Why != takenOver {
		t.Errorf("told of %v, %q; want what the engine removed", n.Gone, n.Why)
	}
	if err := n.receiver.lay(ghost); err != nil {
		t.Fatal(err)
	}
	if got := n.Vault.Count(); got != (inventory.Count{Blocks: 1, Bytes: 5}) || len(n.Gone) != 1 {
		t.Errorf("%+v rest there, and told of %v", got, n.Gone)
	}
}
