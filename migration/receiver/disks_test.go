package receiver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

func TestVaultDirectoryThatIsGoneAtStartComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", nil, "d0", "d1")
		wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 1000))))
		f.Give(n.More[0], 0)
		wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/y", contentOf("y", 1000))))
		if a, b := segmentsIn(t, n.More[0]), segmentsIn(t, n.More[1]); len(a) != 1 || len(b) != 1 {
			t.Fatalf("segments %v and %v, want one on each disk", a, b)
		}
		aside := n.More[1] + "-unmounted"
		if err := os.Rename(n.More[1], aside); err != nil {
			t.Fatal(err)
		}
		n.Reopen(t)
		if got := heldIDs(t, n.Vault); !slices.Equal(got, []string{"cache/-/x"}) {
			t.Errorf("held %v, want x alone", got)
		}
		if _, err := os.Stat(n.More[1]); err == nil {
			t.Error("a directory was made where a disk should be mounted")
		}
		n.Landed = nil
		_, stop := n.receiving(t)
		time.Sleep(5 * diskio.LookAfter)
		if err := os.Rename(aside, n.More[1]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * diskio.LookAfter)
		stop()
		if got := n.LandedBlocks(); len(got) != 1 || got[0].ID != "cache/-/y" {
			t.Errorf("told of %v, want y, once", got)
		}
		if got := heldIDs(t, n.Vault); len(got) != 2 {
			t.Errorf("held %v, want both", got)
		}
		for _, name := range []string{"x", "y"} {
			if got := n.Content(t, "cache/-/"+name); string(got) != string(contentOf(name, 1000)) {
				t.Errorf("%s: %d other bytes", name, len(got))
			}
		}
	})
}

// A block in a directory that is away may still be there: it is neither reported as gone nor forgotten, even when its
// source asks for that.
func TestWhatLiesInADirectoryThatIsAwayIsNotGone(t *testing.T) {
	n, f := onDisks(t, "b", nil, "d0", "d1")
	f.Give(n.More[0], 0)
	x := blockFrames(1, "cache/-/x", contentOf("x", 1000))
	wantDurable(t, landAll(t, n, x))
	f.Give(n.More[0], 1<<30)
	aside := n.More[1] + "-unmounted"
	if err := os.Rename(n.More[1], aside); err != nil {
		t.Fatal(err)
	}
	n.Reopen(t)
	nobody := &reading.Fetcher{Locate: func(context.Context, inventory.BlockID, bool) (reading.Location, error) {
		return reading.Location{}, nil
	}}
	rd := n.Reader()
	rd.Fetch = nobody
	if status, _, _ := get(t, rd, "cache/-/x", ""); status != http.StatusServiceUnavailable {
		t.Errorf("a reader: got %d, want 503", status)
	}
	if status, _, _ := ask(t, rd, http.MethodHead, "/blocks/cache/-/x", http.Header{"Lifeboat-Hop": {"2"}}); status != http.StatusInternalServerError {
		t.Errorf("another agent: got %d, want 500", status)
	}
	flush := n.Vault.Flush
	n.Vault.Flush = func(*os.File) error { return syscall.EIO }
	if v := landAll(t, n, x); v[0].Code == wire.VerdictDurable {
		t.Errorf("it came again to a disk that takes nothing: got %+v", v)
	}
	n.Vault.Flush = flush
	r, err := n.Vault.Catalog.Get("cache/-/x")
	if err != nil {
		t.Fatalf("its record is gone: %v; told %q", err, n.Why)
	}
	if got := n.asks("cache/-/x", "a", r.Tag()); got != http.StatusServiceUnavailable {
		t.Errorf("its source has it forgotten: got %d, want 503", got)
	}
	if err := os.Rename(aside, n.More[1]); err != nil {
		t.Fatal(err)
	}
	n.Reopen(t)
	if got := n.Content(t, "cache/-/x"); !bytes.Equal(got, contentOf("x", 1000)) {
		t.Errorf("when it is back: %d other bytes", len(got))
	}
}

// A segment that was begun and never committed while another directory was away may have a number that is in use.
func TestStraySegmentsOfADirectoryThatComesBack(t *testing.T) {
	n, f := onDisks(t, "b", nil, "d0")
	f.Give(n.Vault.Dir, 1<<40)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 1000))))
	f.Give(n.Vault.Dir, 0)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/y", contentOf("y", 1000))))
	for _, no := range []uint32{1, 7} { // 1 is x's, on the other disk
		write(t, vault.SegmentFile(n.More[0], no), []byte("begun"))
	}
	n.Reopen(t)
	if got := segmentsIn(t, n.More[0]); len(got) != 1 || got[0] != vault.SegmentFile(n.More[0], 2) {
		t.Errorf("segments %v, want the committed one", got)
	}
	for _, name := range []string{"x", "y"} {
		if got := n.Content(t, "cache/-/"+name); string(got) != string(contentOf(name, 1000)) {
			t.Errorf("%s: %d other bytes", name, len(got))
		}
	}
}

func TestManySendersAreNeverGrantedMoreThanThereIs(t *testing.T) {
	const blocks, size = 40, 50_000
	n, f := onDisks(t, "b", nil, "d0", "d1")
	for _, d := range n.More {
		f.Give(d, 10*size)
	}
	ctx, stop := n.receiving(t)
	var sending sync.WaitGroup
	var durable, full sync.Map
	for i := range blocks / 4 {
		sending.Go(func() {
			s := n.stream(t, ctx)
			defer s.Conn.Close()
			for j := range 4 {
				id := fmt.Sprintf("cache/-/f-%d-%d", i, j)
				go s.Conn.Write(blockFrames(uint32(j+1), id, contentOf(id, size)))
				switch v := s.Verdict(); v.Code {
				case wire.VerdictDurable:
					durable.Store(id, true)
				case wire.VerdictFull:
					full.Store(id, true)
				default:
					t.Errorf("%s: %d %s", id, v.Code, v.Reason)
				}
			}
		})
	}
	sending.Wait()
	stop()
	for d, most := range f.Most {
		if most > f.Room[d] {
			t.Errorf("%d bytes of %s were promised, there are %d", most, d, f.Room[d])
		}
	}
	f.WantNothingReserved(t)
	took := f.Wrote[n.More[0]] + f.Wrote[n.More[1]]
	if took < size || f.Wrote[n.More[0]] == 0 {
		t.Errorf("told of %d bytes flushed", took)
	}
}

// A sync that does not return holds up only the blocks on its disk, and not for ever. Those blocks are not kept if it
// returns after all.
func TestHungSyncHoldsOnlyItsOwnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", nil, "d0", "d1")
		thaw := make(chan struct{})
		n.Vault.Flush = func(file *os.File) error {
			if diskio.Below(file.Name(), n.More[0]) {
				<-thaw
			}
			return nil
		}
		ctx, stop := n.receiving(t)
		one, other := n.stream(t, ctx), n.stream(t, ctx)
		one.Send(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
		time.Sleep(time.Second) // x is being synced, on the disk with most room
		f.Give(n.More[1], 2<<30)
		began := time.Now()
		for i := range uint32(3) {
			other.Send(blockFrames(1+i, fmt.Sprint("cache/-/y", i), contentOf("y", 1000)))
			other.WantReceipt()
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the other disk's blocks took %v", took)
		}
		go io.Copy(io.Discard, other.Conn) // it is told that this node is there
		one.WantRefusal(n.More[0] + " does not answer")
		if took := time.Since(began); took > diskio.Overdue+2*diskio.LookAfter {
			t.Errorf("refused after %v, a sender waits %v", took, senderWaits)
		}
		f.Give(n.More[0], 8<<30)
		one.Send(blockFrames(2, "cache/-/x", contentOf("x", 1000)))
		one.WantReceipt() // though that disk has more room
		one.Send(blockFrames(3, "cache/-/w", contentOf("w", 1000)))
		one.WantReceipt()
		go io.Copy(io.Discard, one.Conn)
		close(thaw)
		time.Sleep(time.Second)
		if took := stop(); took > time.Second {
			t.Errorf("stopped after %v", took)
		}
		if got := heldIDs(t, n.Vault); len(got) != 5 || len(n.LandedBlocks()) != 5 {
			t.Errorf("held %v, told of %d", got, len(n.LandedBlocks()))
		}
		f.WantNothingReserved(t)
		r, err := n.Vault.Catalog.Get("cache/-/x")
		if dir, _ := n.Vault.Home(r.Segment); err != nil || dir != n.More[1] {
			t.Errorf("x lies in %s (%v), want it where it was receipted", dir, err)
		}
	})
}

// Whatever a disk does, the senders hear that this node is there: a silent node counts as gone.
func TestReceiverSaysThatItIsThereWhileASyncHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := onDisks(t, "b", nil, "d0")
		thaw := make(chan struct{})
		n.Vault.Flush = func(*os.File) error { <-thaw; return nil }
		ctx, stop := n.receiving(t)
		s := n.stream(t, ctx)
		s.Send(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
		began := time.Now()
		for i := range time.Duration(5) {
			f, err := s.In.Next()
			if at := time.Since(began).Round(time.Millisecond); err != nil || f.Type != wire.FrameAlive || at != (i+1)*wire.AliveEvery {
				t.Errorf("after %v a frame of type %d, %v", at, f.Type, err)
			}
		}
		close(thaw)
		s.WantReceipt()
		stop()
	})
}

func TestReceiverStopsThoughASyncHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", nil, "d0")
		thaw := make(chan struct{})
		n.Vault.Flush = func(*os.File) error { <-thaw; return nil }
		ctx, stop := n.receiving(t)
		s := n.stream(t, ctx)
		s.Send(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
		time.Sleep(time.Second)
		go s.WantRefusal("does not answer")
		if took := stop(); took > diskio.Overdue+4*time.Second {
			t.Errorf("stopped after %v", took)
		}
		f.WantNothingReserved(t)
		close(thaw)
		<-s.Over
		synctest.Wait()
		if got := heldIDs(t, n.Vault); len(got) != 0 {
			t.Errorf("held %v after a refusal", got)
		}
	})
}

// hangs is a disk that takes nothing until it thaws.
type hangs chan struct{}

func (h hangs) WriteBoth(head, tail []byte) (int, error) { <-h; return len(head) + len(tail), nil }

// A write that hangs ends its stream, so that the sender goes elsewhere, and leaves everything else alone.
func TestHungWriteEndsItsStream(t *testing.T) {
	for _, told := range []bool{false, true} {
		t.Run(fmt.Sprint("told=", told), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, f := onDisks(t, "b", nil, "d0", "d1")
				seg, err := n.Vault.Acquire(n.More[0])
				if err != nil {
					t.Fatal(err)
				}
				thaw := make(hangs)
				seg.WriteBy(thaw)
				n.Vault.Release(seg, false)
				ctx, stop := n.receiving(t)
				s := n.stream(t, ctx)
				began := time.Now()
				s.Send(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
				patience := diskio.Overdue + 2*diskio.LookAfter
				if told {
					time.Sleep(2 * diskio.Suspect)
					f.Set(f.Bad, n.More[0], true)
					patience = 2*diskio.Suspect + diskio.LookAfter
				}
				for { // a refusal may come before the stream's end
					f, err := s.Next()
					if err != nil {
						break
					}
					if vs, _ := wire.ParseVerdicts(f.Payload); slices.ContainsFunc(vs, func(v wire.Verdict) bool { return v.Code == wire.VerdictDurable }) {
						t.Error("a receipt for what hangs")
					}
				}
				if took := time.Since(began); took > patience {
					t.Errorf("the stream ended after %v, want %v", took, patience)
				}
				if err := <-s.Over; !diskio.IsSilent(err) && !strings.Contains(fmt.Sprint(err), "does not answer") {
					t.Errorf("got %v", err)
				}
				again := n.stream(t, ctx)
				again.Send(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
				again.WantReceipt()
				if took := stop(); took > 2*diskio.Suspect {
					t.Errorf("stopped after %v", took)
				}
				close(thaw)
				synctest.Wait()
				f.WantNothingReserved(t)
				if f.Faults[n.More[0]] == nil {
					t.Error("nobody was told")
				}
			})
		})
	}
}

func TestDiskThatTurnsBadMidReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := onDisks(t, "b", nil, "d0", "d1")
		ctx, stop := n.receiving(t)
		s := n.stream(t, ctx)
		x := contentOf("x", 2*wire.ChunkBytes)
		o := wire.Opening{ID: "cache/-/x", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: "x", Bytes: int64(len(x))}}}
		s.Send(wire.AppendFrame(nil, wire.FrameOpen, 1, o.Append(nil)))
		s.Send(wire.AppendFrame(nil, wire.FrameData, 1, x[:wire.ChunkBytes]))
		synctest.Wait()
		f.Set(f.Bad, n.More[0], true)
		s.Send(wire.AppendFrame(nil, wire.FrameData, 1, x[wire.ChunkBytes:]))
		s.WantRefusal(n.More[0] + " takes no blocks any more")
		s.Send(wire.AppendFrame(nil, wire.FrameAbort, 1, nil))
		s.Send(blockFrames(2, "cache/-/x", contentOf("x", 1000)))
		s.WantReceipt()
		f.Set(f.Full, n.More[1], true)
		f.Set(f.Full, n.Vault.Dir, true)
		s.Send(blockFrames(3, "cache/-/y", contentOf("y", 1000)))
		s.WantRefusal("no disk takes blocks")
		s.Conn.Close()
		stop()
		f.WantNothingReserved(t)
		if a, b := segmentsIn(t, n.More[0]), segmentsIn(t, n.More[1]); len(a) != 0 || len(b) != 1 {
			t.Errorf("segments %v and %v, want the block on the second disk", a, b)
		}
	})
}

func TestPlaceIsTakenFromTheDisks(t *testing.T) {
	files := with(inventory.StoreConfig{Name: "cache", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Land: inventory.LandPlace}, "c0", "c1")
	n, f := onDisks(t, "b", []inventory.StoreConfig{files, with(sparkStore, "s0", "s1")}, "v")
	c0, c1 := n.Stores[0].Paths[0], n.Stores[0].Paths[1]
	f.Give(c1, 1<<31)
	for _, name := range []string{"x", "y", "z"} {
		wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/"+name, contentOf(name, 1000))))
		if _, err := os.Stat(filepath.Join(c1, name)); err != nil {
			t.Errorf("not on the roomiest disk: %v", err)
		}
	}
	// A newer version goes to the disk of the older one, even if another is roomier, or to the vault.
	f.Give(c0, 1<<32)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("newer", 1000))))
	if _, err := os.Stat(filepath.Join(c0, "x")); err == nil {
		t.Error("two versions side by side")
	}
	if got := n.Content(t, "cache/-/x"); string(got) != string(contentOf("newer", 1000)) {
		t.Error("the older version is read")
	}
	name := "rdd_0_1" // where Spark puts a file is not ours to choose
	root, _ := inventory.SparkPlace(name, 2)
	f.Full[n.Stores[1].Paths[root]] = true
	o := wire.Opening{ID: "spark/app-1-1/" + name, Kind: inventory.KindShuffle, Layout: inventory.LayoutSpark, Members: []wire.MemberSize{{Name: name, Bytes: 1000}}}
	wantDurable(t, landAll(t, n, openingFrames(1, o, contentOf(name, 1000))))
	if r, err := n.Vault.Catalog.Get(inventory.BlockID(o.ID)); err != nil || r.Segment == 0 {
		t.Errorf("%v, segment %d, want it in the vault", err, r.Segment)
	}
	f.Full[n.Stores[1].Paths[root]] = false
	o.ID = "spark/app-1-2/" + name
	wantDurable(t, landAll(t, n, openingFrames(1, o, contentOf(name, 1000))))
	if r, err := n.Vault.Catalog.Get(inventory.BlockID(o.ID)); err != nil || r.Segment != 0 {
		t.Errorf("%v, segment %d, want it in place", err, r.Segment)
	}
	f.WantNothingReserved(t)
}
