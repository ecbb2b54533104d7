package receiver

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/disks/smalldisk"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Blocks that were promised room on a disk that then becomes full are kept: neither those that wait for their sync nor
// those that are still coming are sent elsewhere.
func TestFullDiskKeepsWhatHasItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", nil, "d0")
		synced := make(chan struct{})
		n.Vault.Flush = func(*os.File) error { <-synced; return nil }
		ctx, stop := n.receiving(t)
		s := n.stream(t, ctx)
		s.Send(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
		rest := s.Begin(blockFrames(2, "cache/-/y", contentOf("y", 2*wire.ChunkBytes)))
		time.Sleep(gather)
		f.Set(f.Full, n.More[0], true)
		time.Sleep(2 * diskio.LookAfter)
		s.Send(rest)
		close(synced)
		s.WantReceipt()
		s.WantReceipt()
		s.Send(blockFrames(3, "cache/-/z", contentOf("z", 1000)))
		s.WantRefusal("full")
		s.Conn.Close()
		stop()
		f.WantNothingReserved(t)
	})
}

// Several blocks are written together, and the disk has no room for all of them. Those that are on the disk get their
// receipts.
func TestFullDiskKeepsWhatItHasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", nil, "d0")
		if err := n.Vault.Close(); err != nil {
			t.Fatal(err)
		}
		smalldisk.Mount(t, n.More[0], "size=44k")
		n.Open(t)
		ctx, stop := n.receiving(t)
		s := n.stream(t, ctx)
		var frames []byte
		id := func(i uint32) string { return fmt.Sprintf("cache/-/f-%d", i) }
		for i := range uint32(8) {
			frames = append(frames, blockFrames(i+1, id(i+1), contentOf(id(i+1), 10_000))...)
		}
		s.Send(frames)
		for codes := map[uint32]wire.VerdictCode{}; len(codes) < 8; {
			frame, err := s.Next()
			if err != nil {
				t.Fatal(err)
			}
			vs, err := wire.ParseVerdicts(frame.Payload)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range vs {
				codes[v.Transfer] = v.Code
				want := wire.VerdictFull
				if v.Transfer <= 4 {
					want = wire.VerdictDurable
				}
				if v.Code != want {
					t.Errorf("block %d: verdict %d %q, want %d", v.Transfer, v.Code, v.Reason, want)
				}
			}
		}
		s.Conn.Close()
		stop()
		f.WantNothingReserved(t)
		n.Reopen(t)
		for i := range uint32(4) {
			if got, want := n.Content(t, id(i+1)), contentOf(id(i+1), 10_000); string(got) != string(want) {
				t.Errorf("%s came back with %d other bytes", id(i+1), len(got))
			}
		}
	})
}

// A block whose receipt was lost comes again, and the disks are full, perhaps of the block itself. It needs no room, and no
// other block gets in with it.
func TestFullDiskKnowsWhatIsThere(t *testing.T) {
	for name, store := range map[string][]inventory.StoreConfig{"in a segment": nil, "in place": {with(placeStore, "cache")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, f := onDisks(t, "b", store, "d0")
				ctx, stop := n.receiving(t)
				x := contentOf("x", 2*wire.ChunkBytes)
				first := n.stream(t, ctx)
				first.Send(blockFrames(1, "cache/-/x", x))
				first.WantReceipt()
				first.Conn.Close()
				for p := range f.Room {
					f.Give(p, 100)
				}
				s := n.stream(t, ctx)
				s.Send(blockFrames(1, "cache/-/x", x))
				s.WantReceipt()
				s.Send(blockFrames(2, "cache/-/x", contentOf("changed", 2*wire.ChunkBytes)))
				s.WantRefusal("full")
				s.Send(blockFrames(3, "cache/-/x", contentOf("x", 2*wire.ChunkBytes+1)))
				s.WantRefusal("full")
				s.Send(blockFrames(4, "cache/-/y", contentOf("y", 1000)))
				s.WantRefusal("full")
				s.Send(blockFrames(5, "cache/-/x", x))
				s.WantReceipt()
				for p := range f.Room {
					f.Set(f.Bad, p, true)
				}
				s.Send(blockFrames(6, "cache/-/x", x)) // that disk may not be able to keep it any more
				s.WantRefusal("full")
				s.Conn.Close()
				stop()
				for p := range f.Room {
					f.Set(f.Bad, p, false)
				}
				f.WantNothingReserved(t)
				if got := n.Vault.Count(); got != (inventory.Count{Blocks: 1, Bytes: 2 * wire.ChunkBytes}) {
					t.Errorf("%+v rest there, want x alone", got)
				}
				if got := n.Content(t, "cache/-/x"); !bytes.Equal(got, x) {
					t.Errorf("x is %d other bytes", len(got))
				}
			})
		})
	}
}

// A block comes again on a new stream while its first copy has taken the disk's last room and waits for the sync. It gets a
// receipt if the first copy does, and a refusal if that is refused.
func TestFullDiskKnowsWhatIsBeingCommitted(t *testing.T) {
	for name, fault := range map[string]error{"kept": nil, "lost": syscall.EIO} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, f := onDisks(t, "b", nil, "d0")
				synced := make(chan struct{})
				n.Vault.Flush = func(*os.File) error { <-synced; return fault }
				ctx, stop := n.receiving(t)
				x := contentOf("x", 2*wire.ChunkBytes)
				first := n.stream(t, ctx)
				first.Send(blockFrames(1, "cache/-/x", x))
				time.Sleep(2 * gather)
				first.Conn.Close()
				for p := range f.Room {
					f.Give(p, 100)
				}
				s, other := n.stream(t, ctx), n.stream(t, ctx)
				s.Send(blockFrames(1, "cache/-/x", x))
				other.Send(blockFrames(1, "cache/-/x", contentOf("changed", 2*wire.ChunkBytes)))
				time.Sleep(2 * gather)
				close(synced)
				if fault == nil {
					s.WantReceipt()
				} else {
					s.WantRefusal("full")
				}
				other.WantRefusal("full")
				s.Conn.Close()
				other.Conn.Close()
				stop()
				f.WantNothingReserved(t)
				if fault == nil && !bytes.Equal(n.Content(t, "cache/-/x"), x) {
					t.Error("x is other bytes")
				}
			})
		})
	}
}
