package migration

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// unmounted has a node come up without the disk of its first store, and returns how to mount it again.
func (n *node) unmounted(t *testing.T) (mount func()) {
	t.Helper()
	dir := n.stores[0].Paths[0]
	open := func() {
		s, err := inventory.OpenStore(n.stores[0].StoreConfig) // makes the directory, as the agent's start does
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		s.System = s.Device(0)
		n.stores[0] = s
		n.reopen(t)
	}
	if err := os.Rename(dir, dir+"-elsewhere"); err != nil {
		t.Fatal(err)
	}
	open()
	return func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(dir+"-elsewhere", dir); err != nil {
			t.Fatal(err)
		}
		open()
	}
}

// What landed in place on a disk that is not mounted when the agent starts is not gone, and does not go since others land.
func TestWhatLandedOnADiskThatIsNotMountedIsNotForgotten(t *testing.T) {
	for name, size := range map[string]int{"small": 1000, "large": packedBytes + 1} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "b", with(placeStore, "cache"))
			x, y := blockFrames(1, "cache/-/x", contentOf("x", size)), blockFrames(2, "cache/-/y", contentOf("y", size))
			wantDurable(t, landAll(t, n, x))
			n.unpack()
			mount := n.unmounted(t)
			wantDurable(t, landAll(t, n, y)) // elsewhere
			n.unpack()
			if why := n.stores[0].Away(filepath.Join(n.dir, "cache")); why == nil || !strings.Contains(why.Error(), "not mounted") {
				t.Errorf("of the directory it says %v", why)
			}
			n.receiver.dropGhosts(t.Context())
			n.receiver.lookAt(t.Context(), &diskio.Work{}, "cache/-/x")
			r, err := n.vault.Catalog.Get("cache/-/x")
			if err != nil || len(n.gone) > 0 {
				t.Fatalf("its record: %v; told that %v are gone, since %q", err, n.gone, n.why)
			}
			if got := n.asks("cache/-/x", "a", r.Tag()); got != http.StatusServiceUnavailable {
				t.Errorf("its source has it forgotten: got %d, want 503", got)
			}
			if v := landAll(t, n, x); v[0].Code == wire.VerdictDurable || !strings.Contains(v[0].Reason, "not mounted") {
				t.Errorf("it came again: got %+v, want it refused", v[0])
			}
			rd := n.reader()
			rd.Fetch = &reading.Fetcher{Locate: func(context.Context, inventory.BlockID, bool) (reading.Location, error) {
				return reading.Location{}, nil
			}}
			for id, want := range map[string]int{"cache/-/x": 503, "cache/-/y": 200, "cache/-/z": 404} {
				if got, _, _ := get(t, rd, id, ""); got != want {
					t.Errorf("%s: got %d, want %d", id, got, want)
				}
			}
			_, entries := n.drain(t, within(t, 20*time.Second), newNode(t, "c"))
			if moved, lost := outcome(t, entries, manifest.Moved), outcome(t, entries, manifest.Lost); len(moved) != 1 || moved["cache/-/y"].ID == "" || !strings.Contains(lost["cache/-/x"].Reason, "not mounted") {
				t.Errorf("it leaves: got %v", entries)
			}
			mount()
			n.receive(t)
			n.receiver.dropGhosts(t.Context())
			if got := n.content(t, "cache/-/x"); !bytes.Equal(got, contentOf("x", size)) {
				t.Error("when it is mounted again, it is other bytes")
			}
			if why := n.stores[0].Away(filepath.Join(n.dir, "cache")); why != nil || n.vault.Count().Blocks != 2 {
				t.Errorf("mounted again: %v; %+v rest there", why, n.vault.Count())
			}
		})
	}
}

// A directory that nothing has landed in is as it should be, and so is one that is mounted, and empty.
func TestEmptyDirectoriesThatTakeBlocks(t *testing.T) {
	for name, mounted := range map[string]bool{"new": false, "formatted anew": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "b", with(placeStore, "cache"))
			if mounted {
				wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", packedBytes+1))))
			}
			n.unmounted(t)
			if mounted {
				n.stores[0].System++
			}
			wantDurable(t, landAll(t, n, blockFrames(2, "cache/-/y", contentOf("y", packedBytes+1))))
			if _, err := os.Stat(filepath.Join(n.dir, "cache/y")); err != nil {
				t.Error(err)
			}
		})
	}
}
