package receiver

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/nodetest"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// senderWaits is how long a sender lets its peer say nothing (peerTimeout in migration/lane.go).
const senderWaits = 10 * time.Second

// The node's own file of a block's name may be as large as its disk. A file of another size has other content, and need not
// be read. To read it would take longer than a disk may take over one read, and the disk would count as hanging.
func TestOwnFileOfAnotherSizeIsNotRead(t *testing.T) {
	n := newNode(t, "b", with(filesStore, "cache"))
	f := newFakeDisks(1<<30, n.Vault.Dir, n.Stores[0].Paths[0])
	n.Disks = f
	own := filepath.Join(n.Stores[0].Paths[0], "x")
	write(t, own, nil)
	if err := os.Truncate(own, 400<<30); err != nil { // a hole: it reads as fast as memory
		t.Skip(err)
	}
	ctx, stop := n.receiving(t)
	s := n.stream(t, ctx)
	s.Send(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
	if v := s.Verdict(); v.Code != wire.VerdictConflict {
		t.Errorf("got %+v, want a conflict", v)
	}
	s.Conn.Close()
	stop()
	if len(f.Faults) > 0 {
		t.Errorf("disks are blamed: %v", f.Faults)
	}
}

// theStream returns the receiver's side of the only stream.
func (n *node) theStream() *inbound {
	n.receiver.streams.mu.Lock()
	defer n.receiver.streams.mu.Unlock()
	for in := range n.receiver.live {
		return in
	}
	return nil
}

// Work that takes long because there is much of it is no hang of the disk or of the node: oversee leaves it alone, and the
// sender hears from this node all the while.
func TestWorkThatGoesOnIsNotTakenToHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b")
		f := newFakeDisks(1<<30, n.Vault.Dir)
		n.Disks = f
		ctx, stop := n.receiving(t)
		s := n.stream(t, ctx)
		synctest.Wait()
		s.Conn.SetReadDeadline(time.Now().Add(time.Minute))
		in, over := n.theStream(), make(chan error, 1)
		go func() {
			over <- in.on(&n.Vault.Dir, func() error {
				step := in.goesOn()
				for range 12 {
					time.Sleep(diskio.Overdue / 2)
					step(&n.Vault.Dir)
				}
				return nil
			})
		}()
		began := time.Now()
		for range 12 {
			said, err := s.Next()
			if vs, _ := wire.ParseVerdicts(said.Payload); err != nil || len(vs) > 0 {
				t.Fatalf("heard %v, %v, want nothing but that it goes on", vs, err)
			}
			if silence := time.Since(began); silence >= senderWaits {
				t.Errorf("nothing was heard for %v", silence)
			}
			began = time.Now()
		}
		if err := <-over; err != nil {
			t.Error(err)
		}
		s.Send(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
		s.WantReceipt()
		s.Conn.Close()
		stop()
		if len(f.Faults) > 0 {
			t.Errorf("disks are blamed: %v", f.Faults)
		}
	})
}

// slowDisks make each opening of a file wait.
type slowDisks struct{ *nodetest.Disks }

func (d slowDisks) Readable(p string) bool {
	time.Sleep(diskio.LookAfter)
	return d.Disks.Readable(p)
}

// Each read that compares earlier bytes with a block says with every chunk that it goes on: of the node's own file, and of a
// landed copy.
func TestReadingBackGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b", with(filesStore, "cache"))
		x := contentOf("x", 3*wire.ChunkBytes+1)
		write(t, filepath.Join(n.Stores[0].Paths[0], "x"), x)
		ctx, stop := n.receiving(t)
		slow := slowDisks{newFakeDisks(0)}
		n.Vault.Watch(slow)
		n.Stores[0].Watch(slow)
		s := n.stream(t, ctx)
		s.Conn.SetReadDeadline(time.Now().Add(time.Minute))
		for i, what := range []string{"the node's own file", "what landed"} {
			go s.Conn.Write(blockFrames(uint32(i), "cache/-/x", x))
			if said, err := s.Next(); err != nil || !bytes.Equal(said.Payload, wire.AppendVerdicts(nil, nil)) {
				t.Errorf("%s was read: heard %q, %v, want that it goes on", what, said.Payload, err)
			}
			s.WantReceipt()
		}
		steps := 0
		r, err := n.Vault.Catalog.Get("cache/-/x")
		if err == nil {
			err = n.receiver.intact(r, func(*string) { steps++ })
		}
		if err != nil || steps != 1+4 {
			t.Errorf("a block of 4 chunks was opened and read back in %d, %v", steps, err)
		}
		steps = 0
		if err := contradictsOwn(n.Stores[0], r, "b", func(*string) { steps++ }); err != nil || steps != 1+1+4 {
			t.Errorf("a file of 4 chunks was found, opened and read in %d, %v", steps, err)
		}
		s.Conn.Close()
		stop()
	})
}

// A large block that comes again is complete by the time its earlier copy is found: it replaces that copy, which is not
// read.
func TestLargeBlockThatComesAgainReplacesWhatLanded(t *testing.T) {
	n := newNode(t, "b")
	for _, size := range []int{2 * wire.ChunkBytes, mostReadBack + 1} {
		id := fmt.Sprint("cache/-/", size)
		x := contentOf(id, size)
		frames := blockFrames(1, id, x)
		var at [2]catalog.Record
		for i := range at {
			wantDurable(t, landAll(t, n, frames))
			var err error
			if at[i], err = n.Vault.Catalog.Get(inventory.BlockID(id)); err != nil {
				t.Fatal(err)
			}
		}
		moved := at[0].Segment != at[1].Segment || at[0].Offset != at[1].Offset
		if want := size > mostReadBack; moved != want {
			t.Errorf("a block of %d bytes came again: it is another copy now: %v, want %v", size, moved, want)
		}
		if got := n.Content(t, id); !bytes.Equal(got, x) {
			t.Errorf("a block of %d bytes does not read as what came", size)
		}
	}
}
