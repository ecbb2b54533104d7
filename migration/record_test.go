package migration

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/disks/smalldisk"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// A block that lies on a disk which is well has its record on that of the catalog. When that one keeps nothing, blocks are refused
// before they come, and not once they have come whole.
func TestNothingLandsThatCannotBeRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", []inventory.StoreConfig{with(placeStore, "cache")}, "d0")
		ctx, stop := n.receiving(t)
		s := n.stream(t, ctx)
		x := blockFrames(1, "cache/-/x", contentOf("x", 1000))
		s.send(x)
		s.wantReceipt()
		f.set(f.bad, n.vault.dir, true)
		if room := n.receiver.grant(false).RoomBytes; room != 0 {
			t.Errorf("it tells of room for %d bytes", room)
		}
		time.Sleep(2 * diskio.LookAfter)
		for i, size := range []int{1000, 2 * packedBytes} {
			o := wire.Opening{ID: "cache/-/y", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: "y", Bytes: int64(size)}}}
			s.send(wire.AppendFrame(nil, wire.FrameOpen, uint32(2+i), o.Append(nil)))
			s.wantRefusal("records in " + n.vault.dir)
			s.send(wire.AppendFrame(nil, wire.FrameAbort, uint32(2+i), nil))
		}
		s.send(x) // which is on record
		s.wantReceipt()
		f.set(f.bad, n.vault.dir, false)
		s.send(blockFrames(4, "cache/-/y", contentOf("y", 1000)))
		s.wantReceipt()
		s.conn.Close()
		stop()
		f.wantNothingReserved(t)
	})
}

// Who watches the disks hears of what the catalog's refused.
func TestFaultOfTheCatalogIsTold(t *testing.T) {
	small := smalldisk.New(t, 8<<20)
	n, f := onDisks(t, "b", nil, "d0")
	if err := n.vault.Close(); err != nil {
		t.Fatal(err)
	}
	n.dir = small
	n.open(t)
	smalldisk.Fill(t, small)
	var many [][]byte
	for i := range uint32(500) {
		many = append(many, blockFrames(i+1, fmt.Sprint("cache/-/", i), contentOf("x", 10)))
	}
	landAll(t, n, many...)
	if f.faults[filepath.Join(small, "vault")] == nil {
		t.Errorf("told of %v, want of the catalog's disk", f.faults)
	}
}

// While one disk of a store does not answer, nothing lands in its place: the room of the store's other disks is nobody's.
func TestRoomIsNotThatOfAStoreWithoutOneOfItsDisks(t *testing.T) {
	n, f := onDisks(t, "b", []inventory.StoreConfig{with(placeStore, "c0", "c1")}, "d0")
	f.give(n.more[0], 100_000)
	n.receive(t)
	if got, want := n.receiver.grant(false).RoomBytes, int64(1<<30-1+1<<30-2+100_000); got != want {
		t.Errorf("room for %d bytes, want %d", got, want)
	}
	f.set(f.bad, n.stores[0].Paths[1], true)
	if got := n.receiver.grant(false).RoomBytes; got != 100_000 {
		t.Errorf("room for %d bytes, want that of the vault's disk", got)
	}
	if v := landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 2*packedBytes))); v[0].Code != wire.VerdictFull {
		t.Errorf("got %+v, want a refusal for want of room", v)
	}
}

func FuzzRecords(f *testing.F) {
	o := wire.Opening{ID: "cache/-/x", Members: []wire.MemberSize{{Name: "x", Bytes: 1}}}
	f.Add(appendRecord(nil, record{Opening: o, Placed: []placed{{0, "x", 1, []byte("abcd")}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseRecord(b); err == nil {
			if _, err := parseRecord(appendRecord(nil, r)); err != nil {
				t.Errorf("record %+v: %v", r, err)
			}
		}
	})
}

func TestRecordsRoundTrip(t *testing.T) {
	o := wire.Opening{ID: "spark/blockmgr-a/shuffle_1_2_0", Kind: inventory.KindShuffle, Layout: inventory.LayoutSpark, ModTime: -5,
		Members: []wire.MemberSize{{Name: "shuffle_1_2_0.data", Bytes: 1 << 40}, {Name: "shuffle_1_2_0.index", Bytes: 0}}}
	r := record{Opening: o, From: "a", Landed: time.Unix(0, 99), Sum: wire.Sum{1, 2}, Segment: 3, Offset: 4, OpenLen: 5, Length: 6,
		Placed: []placed{{1, "p", 7, []byte("abcd")}}}
	if got, err := parseRecord(appendRecord(nil, r)); err != nil || !bytes.Equal(appendRecord(nil, got), appendRecord(nil, r)) {
		t.Errorf("record: got %+v, %v", got, err)
	}
}
