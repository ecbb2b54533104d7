package migration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// rich is a vault with blocks of every fate: whole, replaced, refused, removed.
func rich(t *testing.T) (n *node, want map[string][]byte, not []string) {
	n, want = newNode(t, "b"), map[string][]byte{}
	var frames [][]byte
	for i := range 40 {
		id, size := fmt.Sprintf("cache/app-%d/x%d", i%2, i), 1000*i
		want[id] = contentOf(id, size)
		frames = append(frames, blockFrames(uint32(i+1), id, want[id]))
	}
	want["cache/-/large"] = contentOf("large", 2*wire.ChunkBytes+5)
	frames = append(frames, blockFrames(90, "cache/-/large", want["cache/-/large"]), blockFrames(91, "cache/gone/y", []byte("y")), blockFrames(92, "cache/gone/z", contentOf("z", 40<<10)))
	wantDurable(t, landAll(t, n, frames...))
	newer := wire.Opening{ID: "cache/app-0/x4", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, ModTime: 7, Members: []wire.MemberSize{{Name: "x4", Bytes: 5}}}
	want[newer.ID] = []byte("newer")
	wantDurable(t, landAll(t, n, openingFrames(1, newer, want[newer.ID])))
	n.remove(t, ofApp("gone")) // that frees space of removed blocks; blocks that are refused later keep theirs
	other := wire.Opening{ID: "cache/app-0/x6", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Origin: "z", ModTime: 9, Members: []wire.MemberSize{{Name: "x6", Bytes: 7}}}
	if said := landAll(t, n, openingFrames(1, other, []byte("another"))); said[0].Code != wire.VerdictConflict {
		t.Fatalf("got %+v, want a conflict", said)
	}
	return n, want, []string{"cache/gone/y", "cache/gone/z"}
}

// A damaged catalog does not keep an agent from starting: it is set aside, and the blocks in the segments are served. Removed and refused
// blocks do not come back.
func TestCatalogIsMadeAnewFromTheSegments(t *testing.T) {
	flip := func(t *testing.T, p string, at ...int64) {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range at {
			b[i] ^= 4
		}
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	page := int64(os.Getpagesize())
	// leaves spoils a field of every page that has records.
	leaves := func(t *testing.T, p string, at int, value byte) {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for one := range slices.Chunk(b, int(page)) {
			if bytes.Contains(one, []byte("cache/app-1/")) && one[8] == 2 {
				one[at] = value
			}
		}
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, damage := range map[string]func(t *testing.T, p string){
		"fewer records in a leaf": func(t *testing.T, p string) { leaves(t, p, 10, 3) },
		"another type of page":    func(t *testing.T, p string) { leaves(t, p, 8, 1) },
		"a key somewhere else":    func(t *testing.T, p string) { leaves(t, p, 16+3*16+5, 40) },
		"bits in both meta pages": func(t *testing.T, p string) { flip(t, p, 40, page+40) },
		"its type":                func(t *testing.T, p string) { flip(t, p, 16, page+16) },
		"cut in half":             func(t *testing.T, p string) { os.Truncate(p, 3*page) },
		"cut to a few bytes":      func(t *testing.T, p string) { os.Truncate(p, 100) },
		"empty":                   func(t *testing.T, p string) { os.Truncate(p, 0) },
		"gone":                    func(t *testing.T, p string) { os.Remove(p) },
		"a directory":             func(t *testing.T, p string) { os.Remove(p); os.Mkdir(p, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			n, want, not := rich(t)
			p := filepath.Join(n.Vault.Dir, "catalog.db")
			n.Vault.Close()
			damage(t, p)
			n.Open(t)
			n.wantRich(t, want, not)
			if aside, _ := filepath.Glob(p + ".damaged-*"); len(aside) != 1 && name != "gone" {
				t.Errorf("set aside is %q", aside)
			}
			n.Reopen(t)
			n.wantRich(t, want, not)
			if made := n.Vault.TakeRemade(); len(made) != 0 {
				t.Errorf("made anew a second time: %+v", made)
			}
		})
	}
}

func (n *node) wantRich(t *testing.T, want map[string][]byte, not []string) {
	t.Helper()
	var bytesWanted int64
	for id, b := range want {
		bytesWanted += int64(len(b))
		if got := n.Content(t, id); !bytes.Equal(got, b) {
			t.Errorf("%s: %d bytes, want %d", id, len(got), len(b))
		}
	}
	for _, id := range not {
		if status, _, _ := n.Get(t, id, ""); status != 404 {
			t.Errorf("%s: status %d, want that it stays removed", id, status)
		}
	}
	if got := n.Vault.Count(); got != (inventory.Count{Blocks: int64(len(want)), Bytes: bytesWanted}) {
		t.Errorf("counted %+v, want %d blocks, %d bytes", got, len(want), bytesWanted)
	}
	for h, err := range n.Vault.Held() {
		if err != nil || h.From != "a" {
			t.Errorf("%s is from %q (%v)", h.ID, h.From, err)
		}
	}
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/large", want["cache/-/large"])))
}

// Whichever bit of the catalog flips, the vault opens, no block is served with other bytes than its own, none is lost except one whose own
// record has the bit, and new blocks land.
func TestAnyBitOfTheCatalog(t *testing.T) {
	n, want, _ := rich(t)
	p := filepath.Join(n.Vault.Dir, "catalog.db")
	n.Vault.Close()
	good, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	rnd, page := rand.New(rand.NewPCG(1, 2)), os.Getpagesize()
	for range 60 {
		bad := bytes.Clone(good)
		// Mostly in a page's header and its keys, and mostly in a byte that is not 0.
		at := rnd.IntN(len(bad)/page)*page + rnd.IntN(page>>(6*rnd.IntN(2)))
		for bad[at] == 0 && rnd.IntN(8) != 0 {
			at = rnd.IntN(len(bad)/page)*page + rnd.IntN(page>>(6*rnd.IntN(2)))
		}
		bad[at] ^= 1 << rnd.IntN(8)
		if err := os.WriteFile(p, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		n.Open(t)
		lost := 0
		for id, b := range want {
			var got []byte
			c, err := n.LandedFile(inventory.BlockID(id))
			if err == nil {
				got, err = io.ReadAll(c)
				c.Close()
			}
			switch {
			case err != nil:
				lost++
			case !bytes.Equal(got, b):
				t.Errorf("byte %d: %s is served with other bytes", at, id)
			}
		}
		if lost > 1 {
			t.Errorf("byte %d: %d blocks are not served", at, lost)
		}
		wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/new", []byte("new"))))
		n.Vault.Close()
		for _, left := range [...]string{p, p + ".damaged-*"} {
			all, _ := filepath.Glob(left)
			for _, f := range all {
				os.RemoveAll(f)
			}
		}
	}
}

// When the catalog is made anew, a block that is no longer whole is named, and the blocks around it are found.
func TestBrokenBlocksAreNamedWhenTheCatalogIsMadeAnew(t *testing.T) {
	n, want, _ := rich(t)
	r, err := n.Vault.Catalog.Get("cache/app-1/x21")
	if err != nil {
		t.Fatal(err)
	}
	o, err := n.Vault.Catalog.Get("cache/app-1/x33")
	if err != nil {
		t.Fatal(err)
	}
	segment := n.SegmentPath(r.Segment)
	n.Vault.Close()
	b, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	b[r.Offset+r.Length-100] ^= 1 // in its data
	b[o.Offset+20] ^= 1           // in its opening, so its id is lost
	if err := os.WriteFile(segment, b, 0o600); err != nil {
		t.Fatal(err)
	}
	os.Truncate(filepath.Join(n.Dir, "vault", "catalog.db"), 0)
	n.Open(t)
	delete(want, "cache/app-1/x21")
	delete(want, "cache/app-1/x33")
	made := n.Vault.TakeRemade()
	if len(made) != 2 || made[0].Ruin.Why == nil || len(made[1].Broken) != 1 || made[1].Broken[0].ID != "cache/app-1/x21" {
		t.Errorf("told %+v", made)
	}
	n.wantRich(t, want, []string{"cache/app-1/x21", "cache/app-1/x33"})
}

// A disk that is away while the catalog is made anew is read when it is back. Until then the node counts no block as one of its own.
func TestDirectoryThatIsAwayWhileTheCatalogIsMadeAnew(t *testing.T) {
	n := newNode(t, "b")
	n.Vault.Close()
	second := filepath.Join(t.TempDir(), "second")
	n.More = []string{second}
	n.Open(t)
	n.Room = func(p string) int64 {
		if p == second {
			return 2 << 40
		}
		return 1 << 40
	}
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", []byte("x"))))
	if _, err := os.Stat(vault.SegmentFile(second, 1)); err != nil {
		t.Fatal(err)
	}
	n.Vault.Close()
	if err := os.Rename(second, second+".away"); err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(n.Dir, "vault", "catalog.db")
	if err := os.Truncate(p, 100); err != nil {
		t.Fatal(err)
	}
	n.Open(t)
	if why := n.Vault.Away()[second]; why == nil || !strings.Contains(why.Error(), "mkdir") {
		t.Fatalf("away because %v", why)
	}
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/y", []byte("y"))))
	if err := os.Rename(second+".away", second); err != nil {
		t.Fatal(err)
	}
	if back := n.Vault.Revive(t.Context()); len(back) != 1 {
		t.Fatalf("%q is back", back)
	}
	for range 2 {
		for id, want := range map[string]string{"cache/-/x": "x", "cache/-/y": "y"} {
			if got := n.Content(t, id); string(got) != want {
				t.Errorf("%s: got %q", id, got)
			}
		}
		n.Reopen(t)
	}
}

// A new data_dir has no catalog, while blocks lie on the other disks. They are read, and not removed like blocks without a receipt.
func TestSegmentsOfAnotherDirectoryOutliveTheCatalog(t *testing.T) {
	n, _ := onDisks(t, "b", nil, "d0")
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 1000))))
	if err := errors.Join(n.Vault.Close(), os.RemoveAll(n.Vault.Dir)); err != nil {
		t.Fatal(err)
	}
	n.Open(t)
	if got := n.Content(t, "cache/-/x"); !bytes.Equal(got, contentOf("x", 1000)) {
		t.Errorf("%d other bytes", len(got))
	}
}

// A record that cannot be read has only its block's name. A drain names that block as lost, unless it sends only blocks that were born
// here.
func TestDrainWithARecordThatCannotBeRead(t *testing.T) {
	for _, own := range []bool{false, true} {
		a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
		wantDurable(t, landAll(t, a, blockFrames(1, "cache/-/x", []byte("x")), blockFrames(2, "cache/-/y", []byte("y"))))
		write(t, filepath.Join(a.Dir, "cache/own"), []byte("own"))
		err := a.Vault.Catalog.DB().Update(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("blocks")).Put([]byte("cache/-/x"), []byte("broken"))
		})
		if err != nil {
			t.Fatal(err)
		}
		tr := newTrip(t, a, b)
		tr.cfg.Own = own
		sum, entries := tr.run(within(t, time.Minute))
		if _, moved := outcome(t, entries, manifest.Moved)["cache/-/own"]; !moved {
			t.Errorf("own=%v: got %v", own, entries)
		}
		if _, lost := outcome(t, entries, manifest.Lost)["cache/-/x"]; lost == own {
			t.Errorf("own=%v: got %+v, %v", own, sum, entries)
		}
	}
}
