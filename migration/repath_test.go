package migration

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// A failed disk is taken out of a store's directories, and a new one is put among them. Blocks that landed in the other directories are
// still found.
func TestWhatLandedInPlaceSurvivesAChangeOfDirectories(t *testing.T) {
	for name, dirs := range map[string][]string{
		"exchanged": {"c2", "c0", "c1"}, "one more": {"new", "c0", "c1", "c2"}, "one less": {"c1", "c2"}, "two less": {"c2"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "b", with(placeStore, "c0", "c1", "c2"))
			var streams [][]byte
			for i := range 30 {
				streams = append(streams, blockFrames(uint32(i+1), fmt.Sprintf("cache/-/f%d", i), contentOf(fmt.Sprint(i), 100)))
			}
			wantDurable(t, landAll(t, n, streams...))
			was := map[string]string{} // the directory of each
			for r, err := range n.Vault.Catalog.All() {
				if err != nil || len(r.Placed) != 1 {
					t.Fatalf("%+v, %v", r, err)
				}
				was[r.ID] = filepath.Base(n.Stores[0].Paths[r.Placed[0].Root])
			}
			for _, dirs := range [][]string{dirs, {"c1", "c0", "c2"}, dirs} { // restarts
				s, err := inventory.OpenStore(with(placeStore, join(n.Dir, dirs)...))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				n.Stores[0] = s
				n.Reopen(t)
				n.receive(t)
				n.receiver.DropGhosts(t.Context())
			}
			here := 0
			for i := range 30 {
				id := fmt.Sprintf("cache/-/f%d", i)
				for _, dir := range dirs {
					if was[id] != dir {
						continue
					}
					here++
					if r, err := n.Vault.Catalog.Get(inventory.BlockID(id)); err != nil || r.Placed[0].Root != slices.Index(dirs, dir) {
						t.Errorf("%s in %s: got %+v, %v", id, dir, r.Placed, err)
					} else if got := n.Content(t, id); !bytes.Equal(got, contentOf(fmt.Sprint(i), 100)) {
						t.Errorf("%s: got %q", id, got)
					}
				}
			}
			if len(n.Gone) > 0 || here == 0 {
				t.Errorf("%d are here, told that these are gone: %v", here, n.Gone)
			}
			sum, entries := n.drain(t, within(t, time.Minute), newNode(t, "c"))
			for id, e := range outcome(t, entries, manifest.Lost) {
				if slices.Contains(dirs, was[id]) || !strings.Contains(e.Reason, "paths") {
					t.Errorf("%s in %s: got %+v", id, was[id], e)
				}
			}
			if sum.Moved.Blocks != int64(here) || sum.Lost.Blocks != int64(30-here) {
				t.Errorf("got %+v, want %d moved, and the others named as lost", sum, here)
			}
		})
	}
}

func join(dir string, names []string) (paths []string) {
	for _, name := range names {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}
