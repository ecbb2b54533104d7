package migration

import (
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
		f.set(f.bad, n.vault.Dir, true)
		if room := n.receiver.grant(false).RoomBytes; room != 0 {
			t.Errorf("it tells of room for %d bytes", room)
		}
		time.Sleep(2 * diskio.LookAfter)
		for i, size := range []int{1000, 2 * packedBytes} {
			o := wire.Opening{ID: "cache/-/y", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: "y", Bytes: int64(size)}}}
			s.send(wire.AppendFrame(nil, wire.FrameOpen, uint32(2+i), o.Append(nil)))
			s.wantRefusal("records in " + n.vault.Dir)
			s.send(wire.AppendFrame(nil, wire.FrameAbort, uint32(2+i), nil))
		}
		s.send(x) // which is on record
		s.wantReceipt()
		f.set(f.bad, n.vault.Dir, false)
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
