package migration

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

// What was promised room on a disk that then becomes full is kept: neither what waits for its sync nor what is still coming
// is sent elsewhere.
func TestFullDiskKeepsWhatHasItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", nil, "d0")
		synced := make(chan struct{})
		n.vault.Flush = func(*os.File) error { <-synced; return nil }
		ctx, stop := n.receiving(t)
		s := n.stream(t, ctx)
		s.send(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
		rest := s.begin(blockFrames(2, "cache/-/y", contentOf("y", 2*wire.ChunkBytes)))
		time.Sleep(gather)
		f.set(f.full, n.more[0], true)
		time.Sleep(2 * diskio.LookAfter)
		s.send(rest)
		close(synced)
		s.wantReceipt()
		s.wantReceipt()
		s.send(blockFrames(3, "cache/-/z", contentOf("z", 1000)))
		s.wantRefusal("full")
		s.conn.Close()
		stop()
		f.wantNothingReserved(t)
	})
}

// Of blocks that were written together those that are on the disk get their receipts when it has no room for the rest.
func TestFullDiskKeepsWhatItHasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", nil, "d0")
		if err := n.vault.Close(); err != nil {
			t.Fatal(err)
		}
		smalldisk.Mount(t, n.more[0], "size=44k")
		n.open(t)
		ctx, stop := n.receiving(t)
		s := n.stream(t, ctx)
		var frames []byte
		id := func(i uint32) string { return fmt.Sprintf("cache/-/f-%d", i) }
		for i := range uint32(8) {
			frames = append(frames, blockFrames(i+1, id(i+1), contentOf(id(i+1), 10_000))...)
		}
		s.send(frames)
		for codes := map[uint32]wire.VerdictCode{}; len(codes) < 8; {
			frame, err := s.in.Next()
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
		s.conn.Close()
		stop()
		f.wantNothingReserved(t)
		n.reopen(t)
		for i := range uint32(4) {
			if got, want := n.content(t, id(i+1)), contentOf(id(i+1), 10_000); string(got) != string(want) {
				t.Errorf("%s came back with %d other bytes", id(i+1), len(got))
			}
		}
	})
}

// A block whose receipt was lost comes again, and finds the disks full, of itself perhaps: it needs no room, and nothing else
// gets in with it.
func TestFullDiskKnowsWhatIsThere(t *testing.T) {
	for name, store := range map[string][]inventory.StoreConfig{"in a segment": nil, "in place": {with(placeStore, "cache")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, f := onDisks(t, "b", store, "d0")
				ctx, stop := n.receiving(t)
				x := contentOf("x", 2*wire.ChunkBytes)
				first := n.stream(t, ctx)
				first.send(blockFrames(1, "cache/-/x", x))
				first.wantReceipt()
				first.conn.Close()
				for p := range f.room {
					f.give(p, 100)
				}
				s := n.stream(t, ctx)
				s.send(blockFrames(1, "cache/-/x", x))
				s.wantReceipt()
				s.send(blockFrames(2, "cache/-/x", contentOf("changed", 2*wire.ChunkBytes)))
				s.wantRefusal("full")
				s.send(blockFrames(3, "cache/-/x", contentOf("x", 2*wire.ChunkBytes+1)))
				s.wantRefusal("full")
				s.send(blockFrames(4, "cache/-/y", contentOf("y", 1000)))
				s.wantRefusal("full")
				s.send(blockFrames(5, "cache/-/x", x))
				s.wantReceipt()
				for p := range f.room {
					f.set(f.bad, p, true)
				}
				s.send(blockFrames(6, "cache/-/x", x)) // which that disk may no longer keep
				s.wantRefusal("full")
				s.conn.Close()
				stop()
				for p := range f.room {
					f.set(f.bad, p, false)
				}
				f.wantNothingReserved(t)
				if got := n.vault.Count(); got != (inventory.Count{Blocks: 1, Bytes: 2 * wire.ChunkBytes}) {
					t.Errorf("%+v rest there, want x alone", got)
				}
				if got := n.content(t, "cache/-/x"); !bytes.Equal(got, x) {
					t.Errorf("x is %d other bytes", len(got))
				}
			})
		})
	}
}

// A block comes again, on a new stream, while the disk that its first copy took the last room of has yet to sync that: it is
// owed the receipt that the first is, and a refusal if the first has one.
func TestFullDiskKnowsWhatIsBeingCommitted(t *testing.T) {
	for name, fault := range map[string]error{"kept": nil, "lost": syscall.EIO} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, f := onDisks(t, "b", nil, "d0")
				synced := make(chan struct{})
				n.vault.Flush = func(*os.File) error { <-synced; return fault }
				ctx, stop := n.receiving(t)
				x := contentOf("x", 2*wire.ChunkBytes)
				first := n.stream(t, ctx)
				first.send(blockFrames(1, "cache/-/x", x))
				time.Sleep(2 * gather)
				first.conn.Close()
				for p := range f.room {
					f.give(p, 100)
				}
				s, other := n.stream(t, ctx), n.stream(t, ctx)
				s.send(blockFrames(1, "cache/-/x", x))
				other.send(blockFrames(1, "cache/-/x", contentOf("changed", 2*wire.ChunkBytes)))
				time.Sleep(2 * gather)
				close(synced)
				if fault == nil {
					s.wantReceipt()
				} else {
					s.wantRefusal("full")
				}
				other.wantRefusal("full")
				s.conn.Close()
				other.conn.Close()
				stop()
				f.wantNothingReserved(t)
				if fault == nil && !bytes.Equal(n.content(t, "cache/-/x"), x) {
					t.Error("x is other bytes")
				}
			})
		})
	}
}
