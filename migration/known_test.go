package migration

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// The node's own file of that name may be as large as its disk. One of another size is other content, which need not be read:
// that would take longer than a disk may take over one read, and the disk would be taken to hang.
func TestOwnFileOfAnotherSizeIsNotRead(t *testing.T) {
	n := newNode(t, "b", with(filesStore, "cache"))
	f := newFakeDisks(1<<30, n.vault.Dir, n.stores[0].Paths[0])
	n.disks = f
	own := filepath.Join(n.stores[0].Paths[0], "x")
	write(t, own, nil)
	if err := os.Truncate(own, 400<<30); err != nil { // a hole: it reads as fast as memory
		t.Skip(err)
	}
	ctx, stop := n.receiving(t)
	s := n.stream(t, ctx)
	s.send(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
	if v := s.verdict(); v.Code != wire.VerdictConflict {
		t.Errorf("got %+v, want a conflict", v)
	}
	s.conn.Close()
	stop()
	if len(f.faults) > 0 {
		t.Errorf("disks are blamed: %v", f.faults)
	}
}

// theStream is the receiver's side of the only one that there is.
func (n *node) theStream() *inbound {
	n.receiver.mu.Lock()
	defer n.receiver.mu.Unlock()
	for in := range n.receiver.live {
		return in
	}
	return nil
}

// Work that takes long because there is much of it is no disk that hangs, and no node that does: the one who watches the disks
// leaves it alone, and the sender hears from this node all the while.
func TestWorkThatGoesOnIsNotTakenToHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b")
		f := newFakeDisks(1<<30, n.vault.Dir)
		n.disks = f
		ctx, stop := n.receiving(t)
		s := n.stream(t, ctx)
		synctest.Wait()
		s.conn.SetReadDeadline(time.Now().Add(time.Minute))
		in, over := n.theStream(), make(chan error, 1)
		go func() {
			over <- in.on(&n.vault.Dir, func() error {
				step := in.goesOn()
				for range 12 {
					time.Sleep(diskio.Overdue / 2)
					step(&n.vault.Dir)
				}
				return nil
			})
		}()
		began := time.Now()
		for range 12 {
			said, err := s.in.Next()
			if vs, _ := wire.ParseVerdicts(said.Payload); err != nil || len(vs) > 0 {
				t.Fatalf("heard %v, %v, want nothing but that it goes on", vs, err)
			}
			if silence := time.Since(began); silence >= peerTimeout {
				t.Errorf("nothing was heard for %v", silence)
			}
			began = time.Now()
		}
		if err := <-over; err != nil {
			t.Error(err)
		}
		s.send(blockFrames(1, "cache/-/x", contentOf("x", 1000)))
		s.wantReceipt()
		s.conn.Close()
		stop()
		if len(f.faults) > 0 {
			t.Errorf("disks are blamed: %v", f.faults)
		}
	})
}

// slowDisks let whoever opens a file wait.
type slowDisks struct{ *fakeDisks }

func (d slowDisks) Readable(p string) bool {
	time.Sleep(diskio.LookAfter)
	return d.fakeDisks.Readable(p)
}

// Whatever is read to be compared with what comes says with each chunk that it goes on: the node's own file, and what landed.
func TestReadingBackGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b", with(filesStore, "cache"))
		x := contentOf("x", 3*wire.ChunkBytes+1)
		write(t, filepath.Join(n.stores[0].Paths[0], "x"), x)
		ctx, stop := n.receiving(t)
		slow := slowDisks{newFakeDisks(0)}
		n.vault.Watch(slow)
		n.stores[0].Watch(slow)
		s := n.stream(t, ctx)
		s.conn.SetReadDeadline(time.Now().Add(time.Minute))
		for i, what := range []string{"the node's own file", "what landed"} {
			go s.conn.Write(blockFrames(uint32(i), "cache/-/x", x))
			if said, err := s.in.Next(); err != nil || !bytes.Equal(said.Payload, wire.AppendVerdicts(nil, nil)) {
				t.Errorf("%s was read: heard %q, %v, want that it goes on", what, said.Payload, err)
			}
			s.wantReceipt()
		}
		steps := 0
		r, err := n.vault.Catalog.Get("cache/-/x")
		if err == nil {
			err = n.receiver.intact(r, func(*string) { steps++ })
		}
		if err != nil || steps != 1+4 {
			t.Errorf("a block of 4 chunks was opened and read back in %d, %v", steps, err)
		}
		steps = 0
		if err := contradictsOwn(n.stores[0], r, "b", func(*string) { steps++ }); err != nil || steps != 1+1+4 {
			t.Errorf("a file of 4 chunks was found, opened and read in %d, %v", steps, err)
		}
		s.conn.Close()
		stop()
	})
}

// A large block that comes again has come whole when it is found to be here: it replaces what landed, which is not read.
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
			if at[i], err = n.vault.Catalog.Get(inventory.BlockID(id)); err != nil {
				t.Fatal(err)
			}
		}
		moved := at[0].Segment != at[1].Segment || at[0].Offset != at[1].Offset
		if want := size > mostReadBack; moved != want {
			t.Errorf("a block of %d bytes came again: it is another copy now: %v, want %v", size, moved, want)
		}
		if got := n.content(t, id); !bytes.Equal(got, x) {
			t.Errorf("a block of %d bytes does not read as what came", size)
		}
	}
}

// A peer that says that it is at work may have a large file to compare with. It has half of the time, for others have to do it otherwise.
func TestPeerAtWorkHoldsItsBlocksForHalfOfTheTime(t *testing.T) {
	for name, c := range map[string]struct{ works, least, most time.Duration }{
		"for ever": {time.Hour, time.Minute, time.Minute + 2*peerTimeout},
		"for long": {50 * time.Second, 50 * time.Second, 55 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, want := cached(t, 20, 50_000)
				other := newNode(t, "c")
				tr := newTrip(t, a, other)
				later, began := after(5*time.Second, tr.cfg.Peers), time.Now()
				tr.cfg.Peers = func() []Peer { return append([]Peer{{Node: "b"}}, later()...) }
				tr.fakes = map[string]func(net.Conn){"b": func(conn net.Conn) {
					defer conn.Close()
					fr := wire.NewReader(conn, wire.ChunkBytes)
					fr.Next()
					conn.Write(wire.AppendFrame(nil, wire.FrameGrant, 0, wire.Grant{RoomBytes: 1 << 40, VaultBytes: 1 << 40}.Append(nil)))
					go io.Copy(io.Discard, conn)
					for err := error(nil); err == nil && time.Since(began) < c.works; time.Sleep(diskio.LookAfter) {
						_, err = conn.Write(wire.AppendFrame(nil, wire.FrameReceipts, 0, wire.AppendVerdicts(nil, nil)))
					}
				}}
				_, entries := tr.run(within(t, 2*time.Minute))
				wantThere(t, want, entries, other)
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("took %v, want %v to %v", took, c.least, c.most)
				}
			})
		})
	}
}
