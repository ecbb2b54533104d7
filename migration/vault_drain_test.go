package migration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/disks/smalldisk"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/nodetest"
	"github.com/lifeboat/lifeboat/migration/wire"
	"go.etcd.io/bbolt"
)

func TestCorruptCatalogValueIsNamed(t *testing.T) {
	n := newNode(t, "b")
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 10)), blockFrames(2, "cache/-/y", contentOf("y", 10))))
	err := n.Vault.Catalog.DB().Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("blocks"))
		v := bytes.Clone(b.Get([]byte("cache/-/x")))
		v[len(v)/2] ^= 1
		return b.Put([]byte("cache/-/x"), v)
	})
	if err != nil {
		t.Fatal(err)
	}
	if status, _, _ := n.Get(t, "cache/-/x", ""); status != 500 {
		t.Errorf("status %d, want 500", status)
	}
	var held []inventory.BlockID
	var faults []string
	for h, err := range n.Vault.Held() {
		if err != nil {
			faults = append(faults, err.Error())
			continue
		}
		held = append(held, h.ID)
	}
	if !slices.Equal(held, []inventory.BlockID{"cache/-/y"}) || len(faults) != 1 || !strings.Contains(faults[0], "cache/-/x") {
		t.Errorf("held %v, faults %v", held, faults)
	}
	synctest.Test(t, func(t *testing.T) {
		_, entries := n.drain(t, within(t, time.Minute), newNode(t, "c"))
		wantLost(t, map[string][]byte{"cache/-/x": nil}, entries, "checksum")
	})
}

func TestFileAlreadyInThePlaceIsNeverOverwritten(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "c0", "c1"))
	for name, p := range map[string]string{"x": "c0/x", "y": "c1/y", "dir/z": "c0/dir", "s/t": "c1/s"} {
		write(t, filepath.Join(n.Dir, p), []byte("the engine's own "+name)) // "dir" and "s" are files where directories should be
	}
	// Where directories cannot be made the vault takes the block. Where the engine has another content under the very id,
	// nobody does: two contents under one id would be worth nothing to a reader.
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/dir/z", contentOf("dir/z", 100)), blockFrames(2, "cache/-/s/t", contentOf("s/t", 100))))
	for _, name := range []string{"x", "y"} {
		for _, v := range landAll(t, n, blockFrames(1, "cache/-/"+name, contentOf(name, 100))) {
			if v.Code != wire.VerdictConflict {
				t.Errorf("%s: got %+v, want a conflict", name, v)
			}
		}
	}
	for _, p := range []string{"c0/x", "c1/y", "c0/dir", "c1/s"} {
		if b, err := os.ReadFile(filepath.Join(n.Dir, p)); err != nil || !bytes.HasPrefix(b, []byte("the engine's own")) {
			t.Errorf("%s is now %.20q, %v", p, b, err)
		}
	}
	for _, name := range []string{"dir/z", "s/t"} {
		if got := n.Content(t, "cache/-/"+name); !bytes.Equal(got, contentOf(name, 100)) {
			t.Errorf("%s does not read as what came", name)
		}
	}
	// All of it leaves again, from wherever it lies.
	synctest.Test(t, func(t *testing.T) {
		c := newNode(t, "c")
		_, entries := n.drain(t, within(t, time.Minute), c)
		for _, name := range []string{"dir/z", "s/t", "x", "y"} {
			if !slices.ContainsFunc(entries, func(e manifest.Entry) bool { return e.ID == "cache/-/"+name && e.Outcome == manifest.Moved }) {
				t.Errorf("%s did not leave", name)
			}
		}
	})
}

func TestDiskFullOnTheReceiver(t *testing.T) {
	for _, land := range []inventory.StoreConfig{filesStore, placeStore} {
		t.Run(land.Land, func(t *testing.T) {
			small := smalldisk.New(t, 4<<20)
			a := newNode(t, "a", with(filesStore, "cache"))
			want := map[string][]byte{}
			for i := range 100 {
				name := fmt.Sprintf("f-%04d", i)
				want["cache/-/"+name] = contentOf(name, 100_000)
				write(t, filepath.Join(a.Dir, "cache", name), want["cache/-/"+name])
			}
			synctest.Test(t, func(t *testing.T) {
				b := &node{Node: &nodetest.Node{Name: "b", Dir: small, Room: plenty, ID: a.ID}, plain: true} // it believes that it has room
				if land.Land == inventory.LandPlace {
					c := with(land, filepath.Join(small, "cache"))
					s, err := inventory.OpenStore(c)
					if err != nil {
						t.Fatal(err)
					}
					defer s.Close()
					b.Stores = append(b.Stores, s)
				}
				b.Open(t)
				c := newNode(t, "c")
				tr := newTrip(t, a, b, c)
				_, entries := tr.run(within(t, 2*time.Minute))
				wantThere(t, want, entries, b, c)
				held := len(b.LandedBlocks())
				if held == 100 {
					t.Error("a disk of 4 MiB took 10 MB")
				}
				if used := b.SegmentBytes(t); used > int64(held)*101_000 {
					t.Errorf("segments hold %d bytes for %d blocks: what did not land takes room", used, held)
				}
			})
		})
	}
}
