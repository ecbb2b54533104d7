package migration

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Small blocks that lie side by side in segments are read together. Each has its own bytes, whatever files it has, and no bytes
// of its neighbours.
func TestSmallBlocksOfASegmentAreReadAsTheyCame(t *testing.T) {
	n := newNode(t, "b")
	content := map[string][]byte{}
	frames := func(id string) []byte {
		content[id] = contentOf(id, 3000)
		return blockFrames(1, id, content[id])
	}
	three := wire.Opening{ID: "spark/app/shuffle_1_2_0", Kind: inventory.KindShuffle, Layout: inventory.LayoutSpark,
		Members: []wire.MemberSize{{Name: "shuffle_1_2_0.data", Bytes: 400}, {Name: "shuffle_1_2_0.checksum.CRC32C", Bytes: 0}, {Name: "shuffle_1_2_0.index", Bytes: 16}}}
	data, index := contentOf("data", 400), make([]byte, 16)
	index[14], index[15] = 400>>8, 400&255
	sum := wire.NewSummer()
	stream := wire.AppendFrame(nil, wire.FrameOpen, 1, three.Append(nil))
	for _, member := range [][]byte{data, nil, index} {
		sum.Member(int64(len(member)))
		if len(member) > 0 {
			frame := wire.AppendFrame(nil, wire.FrameData, 1, member)
			f, err := wire.NewReader(bytes.NewReader(frame), wire.ChunkBytes).Next()
			if err != nil {
				t.Fatal(err)
			}
			stream = append(stream, frame...)
			sum.Chunk(f.Sum)
		}
	}
	whole := sum.Total()
	stream = wire.AppendFrame(stream, wire.FrameClose, 1, whole[:])
	wantDurable(t, landAll(t, n, frames("cache/-/first"), stream, frames("cache/-/rots"), frames("cache/-/misplaced"), frames("cache/-/removed"), frames("cache/-/last")))
	planned := map[string]inventory.Block{}
	find := func(id string) inventory.Block {
		b, err := n.Vault.Find(inventory.BlockID(id))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for id := range content {
		planned[id] = find(id)
	}

	var near vault.Reader
	defer near.Leave()
	read := func(id string) (bool, error) {
		got := make([]byte, 3000)
		is, err := near.Read(n.Vault, planned[id], 0, got)
		if is && err == nil && !bytes.Equal(got, content[id]) {
			t.Errorf("%s: was read with other bytes", id)
		}
		return is, err
	}
	for _, id := range []string{"cache/-/first", "cache/-/rots", "cache/-/misplaced", "cache/-/last", "cache/-/first"} {
		if is, err := read(id); !is || err != nil {
			t.Errorf("%s: got %v, %v, want it read", id, is, err)
		}
	}
	output := find(three.ID)
	for i, want := range [][]byte{data, {}, index} {
		got := make([]byte, len(want))
		if is, err := near.Read(n.Vault, output, i, got); !is || err != nil || !bytes.Equal(got, want) {
			t.Errorf("member %d of a map output: got %v, %v, %x, want %x", i, is, err, got, want)
		}
	}

	flip(t, filepath.Join(n.Dir, "vault/segments"), content["cache/-/rots"], 1000)
	flip(t, filepath.Join(n.Dir, "vault/segments"), []byte("cache/-/misplaced"), 10)
	for _, id := range []string{"cache/-/rots", "cache/-/misplaced"} {
		if is, err := read(id); !is || !errors.Is(err, wire.ErrCorrupt) {
			t.Errorf("%s: got %v, %v, want it named as corrupt", id, is, err)
		}
	}
	n.remove(t, func(h vault.Held) bool { return h.ID == "cache/-/removed" })
	if is, err := read("cache/-/removed"); is || err != nil {
		t.Errorf("what was removed: got %v, %v, want that it is not there", is, err)
	}
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/first", contentOf("news", 3000))))
	if is, err := read("cache/-/first"); !is || !errors.Is(err, inventory.ErrChanged) {
		t.Errorf("another version has landed: got %v, %v, want that it has changed", is, err)
	}
	r, err := n.Vault.Catalog.Get("cache/-/last")
	if err := errors.Join(err, os.Truncate(n.SegmentPath(r.Segment), r.Offset+r.OpenLen+100)); err != nil {
		t.Fatal(err)
	}
	if is, err := read("cache/-/last"); !is || !errors.Is(err, wire.ErrCorrupt) {
		t.Errorf("half of it is gone: got %v, %v, want it named as corrupt", is, err)
	}
}

// A bit that turned in a landed block is found by the drain that carries the block on, wherever it lies.
func TestDrainLosesACorruptBlockByName(t *testing.T) {
	place := with(filesStore, "cache")
	place.Land = inventory.LandPlace
	for where, c := range map[string]struct {
		stores []inventory.StoreConfig
		dir    string
	}{
		"in a segment":     {nil, "vault/segments"},
		"in a placed file": {[]inventory.StoreConfig{place}, "cache"},
	} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, want := cached(t, 3, 1000)
				b, then := newNode(t, "b", c.stores...), newNode(t, "c")
				a.drain(t, within(t, time.Minute), b)
				b.unpack()
				flip(t, filepath.Join(b.Dir, c.dir), contentOf("f-0001", 1000), 500)
				_, entries := b.drain(t, within(t, time.Minute), then)
				wantLost(t, map[string][]byte{"cache/-/f-0001": nil}, entries, "checksum")
				delete(want, "cache/-/f-0001")
				wantThere(t, want, entries, then)
			})
		})
	}
}
