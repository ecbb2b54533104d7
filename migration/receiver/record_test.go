package receiver

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/disks/smalldisk"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// A block that lands on a well disk has its record on the catalog's disk. If that one keeps nothing, blocks are refused at their
// opening, and not once they are complete.
func TestNothingLandsThatCannotBeRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", []inventory.StoreConfig{with(placeStore, "cache")}, "d0")
		ctx, stop := n.receiving(t)
		s := n.stream(t, ctx)
		x := blockFrames(1, "cache/-/x", contentOf("x", 1000))
		s.Send(x)
		s.WantReceipt()
		f.Set(f.Bad, n.Vault.Dir, true)
		if room := n.receiver.grant(false).RoomBytes; room != 0 {
			t.Errorf("it tells of room for %d bytes", room)
		}
		time.Sleep(2 * diskio.LookAfter)
		for i, size := range []int{1000, 2 * PackedBytes} {
			o := wire.Opening{ID: "cache/-/y", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: "y", Bytes: int64(size)}}}
			s.Send(wire.AppendFrame(nil, wire.FrameOpen, uint32(2+i), o.Append(nil)))
			s.WantRefusal("records in " + n.Vault.Dir)
			s.Send(wire.AppendFrame(nil, wire.FrameAbort, uint32(2+i), nil))
		}
		s.Send(x) // it is on record
		s.WantReceipt()
		f.Set(f.Bad, n.Vault.Dir, false)
		s.Send(blockFrames(4, "cache/-/y", contentOf("y", 1000)))
		s.WantReceipt()
		s.Conn.Close()
		stop()
		f.WantNothingReserved(t)
	})
}

// A fault of the catalog's disk is reported.
func TestFaultOfTheCatalogIsTold(t *testing.T) {
	small := smalldisk.New(t, 8<<20)
	n, f := onDisks(t, "b", nil, "d0")
	if err := n.Vault.Close(); err != nil {
		t.Fatal(err)
	}
	n.Dir = small
	n.Open(t)
	smalldisk.Fill(t, small)
	var many [][]byte
	for i := range uint32(500) {
		many = append(many, blockFrames(i+1, fmt.Sprint("cache/-/", i), contentOf("x", 10)))
	}
	landAll(t, n, many...)
	if f.Faults[filepath.Join(small, "vault")] == nil {
		t.Errorf("told of %v, want of the catalog's disk", f.Faults)
	}
}

// failMeta has each write of the catalog's meta page fail once the page is written, as when its sync fails, until heal.
func failMeta(c *catalog.Catalog) (heal func()) {
	write := reflect.ValueOf(c.DB()).Elem().FieldByName("ops").FieldByName("writeAt").Addr().UnsafePointer()
	at := (*func([]byte, int64) (int, error))(write)
	was := *at
	*at = func(b []byte, off int64) (int, error) {
		n, err := was(b, off)
		if off < 2*int64(os.Getpagesize()) {
			err = syscall.EIO
		}
		return n, err
	}
	return func() { *at = was }
}

// If the catalog's disk fails at the very end of a commit, the records are in force and may yet be gone after a power cut. The blocks get no
// receipts, and stay: the records of what was here before are replaced.
func TestCommitThatFailsAtItsEndKeepsTheBlocks(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "cache"))
	version := func(v int64) (frames [][]byte, want map[string][]byte) {
		want = map[string][]byte{"other/-/small": contentOf(fmt.Sprint("s", v), 1000), "cache/-/large": contentOf(fmt.Sprint("l", v), 2*PackedBytes)}
		for id, content := range want {
			o := wire.Opening{ID: id, Kind: inventory.KindCache, Layout: inventory.LayoutFiles, ModTime: v * 1e9, Members: []wire.MemberSize{{Name: inventory.BlockID(id).Name(), Bytes: int64(len(content))}}}
			frames = append(frames, openingFrames(uint32(len(frames)+1), o, content))
		}
		return frames, want
	}
	older, _ := version(1)
	wantDurable(t, landAll(t, n, older...))
	newer, want := version(2)
	heal := failMeta(n.Vault.Catalog)
	for _, v := range landAll(t, n, newer...) {
		if v.Code == wire.VerdictDurable {
			t.Errorf("transfer %d has a receipt", v.Transfer)
		}
	}
	heal()
	for range 2 {
		for id, content := range want {
			if got := n.Content(t, id); !bytes.Equal(got, content) {
				t.Errorf("%s: %d other bytes", id, len(got))
			}
		}
		n.Reopen(t)
	}
	wantDurable(t, landAll(t, n, newer...))
}

// While one disk of a store does not answer, nothing lands in the store's places: the room of its other disks does not
// count.
func TestRoomIsNotThatOfAStoreWithoutOneOfItsDisks(t *testing.T) {
	n, f := onDisks(t, "b", []inventory.StoreConfig{with(placeStore, "c0", "c1")}, "d0")
	f.Give(n.More[0], 100_000)
	n.receive(t)
	if got, want := n.receiver.grant(false).RoomBytes, int64(1<<30-1+1<<30-2+100_000); got != want {
		t.Errorf("room for %d bytes, want %d", got, want)
	}
	f.Set(f.Bad, n.Stores[0].Paths[1], true)
	if got := n.receiver.grant(false).RoomBytes; got != 100_000 {
		t.Errorf("room for %d bytes, want that of the vault's disk", got)
	}
	if v := landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 2*PackedBytes))); v[0].Code != wire.VerdictFull {
		t.Errorf("got %+v, want a refusal for want of room", v)
	}
}
