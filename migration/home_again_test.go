package migration

import (
	"bytes"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// A block that was handed on comes home, where its file still is, and the file changes afterwards. The old bytes are not served, sent,
// counted or named any more.
func TestBlockThatChangesAfterItCameHome(t *testing.T) {
	for name, store := range map[string]inventory.StoreConfig{"vault": filesStore, "place": placeStore} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := newNode(t, "a", with(store, "cache")), newNode(t, "b")
				x := filepath.Join(a.Dir, "cache/x")
				write(t, x, contentOf("old", 2*wire.ChunkBytes))
				write(t, filepath.Join(a.Dir, "cache/y"), contentOf("y", 1000))
				a.drain(t, within(t, time.Minute), b)
				if sum, _ := b.drain(t, within(t, time.Minute), a); sum.Moved.Blocks != 2 || a.Vault.Count().Blocks != 2 {
					t.Fatalf("%d blocks came home, and %+v rest there", sum.Moved.Blocks, a.Vault.Count())
				}
				time.Sleep(time.Second)
				write(t, x, contentOf("newer", 2*wire.ChunkBytes))
				for _, rested := range []int64{2, 1} {
					if got := a.Content(t, "cache/-/x"); !bytes.Equal(got, contentOf("newer", 2*wire.ChunkBytes)) {
						t.Errorf("a serves %.20q, want the newer version", got)
					}
					if got := a.Content(t, "cache/-/y"); !bytes.Equal(got, contentOf("y", 1000)) {
						t.Errorf("a serves %.20q as what has not changed", got)
					}
					if got := a.Vault.Count(); got.Blocks != rested {
						t.Errorf("%+v rest at a, want %d blocks", got, rested)
					}
					sum, entries := a.drain(t, within(t, time.Minute), newNode(t, "c"))
					if moved := outcome(t, entries, manifest.Moved); sum.Moved.Blocks != 2 || len(moved) != 2 || len(entries) != 2 || moved["cache/-/x"].Bytes != 2*wire.ChunkBytes {
						t.Errorf("moved %+v %v, want each block once", sum, entries)
					}
					a.receiver.DropGhosts(t.Context())
				}
			})
		})
	}
}
