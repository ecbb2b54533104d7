package receiver

import (
	"errors"
	"io/fs"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/nodetest"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// isAt reports whether a stream works on a directory.
func (r *Receiver) isAt(dir string) bool {
	r.streams.mu.Lock()
	defer r.streams.mu.Unlock()
	for in := range r.live {
		if at, _, is := in.work.On(time.Now()); is && at == dir {
			return true
		}
	}
	return false
}

// The disk of data_dir hangs while the catalog's meta page is written, and no look at the catalog can begin. Senders and readers hear of it
// as soon as the disk is known to be unwell, and no block is taken that could not be recorded.
func TestCatalogThatHangsHoldsNobodyUp(t *testing.T) {
	n, f := onDisks(t, "b", nil, "d0")
	ctx, stop := n.receiving(t)
	s := n.stream(t, ctx)
	s.Send(blockFrames(1, "cache/-/w", contentOf("w", 1000)))
	s.WantReceipt()
	thaw := nodetest.HangMeta(n.Vault.Catalog)
	defer thaw()
	f.Set(f.Bad, n.Vault.Dir, true)
	s.Send(blockFrames(2, "cache/-/x", contentOf("x", 1000)))
	began := time.Now()
	for !n.receiver.isAt(n.Vault.Dir) {
		runtime.Gosched()
	}
	go n.Vault.Catalog.Forget("cache/-/none") // a write that does not end
	select {
	case err := <-s.Over:
		if hung := (*diskio.SilentError)(nil); !errors.As(err, &hung) || hung.Dir != n.Vault.Dir {
			t.Errorf("the stream ended with %v", err)
		}
	case <-time.After(diskio.Overdue):
		t.Fatalf("the stream goes on %v after its catalog hangs", time.Since(began))
	}
	next := n.stream(t, ctx)
	if next.Grant.RoomBytes != 0 {
		t.Errorf("the next one is granted %d bytes", next.Grant.RoomBytes)
	}
	next.Send(blockFrames(1, "cache/-/y", contentOf("y", 1000)))
	if f, err := next.Next(); err == nil { // else the stream was ended first, which is no receipt either
		if said, err := wire.ParseVerdicts(f.Payload); err != nil || len(said) != 1 || said[0].Code == wire.VerdictDurable {
			t.Errorf("got %v, %v, want the block refused", said, err)
		}
	}

	for range 3 {
		if _, err := n.Vault.Catalog.Get("cache/-/w"); !diskio.IsSilent(err) {
			t.Errorf("a look at the catalog said %v", err)
		}
	}
	if took := time.Since(began); took > diskio.Overdue {
		t.Errorf("that took %v", took)
	}
	thaw()
	n.Vault.Catalog.Forget("cache/-/none")
	if _, err := n.Vault.Catalog.Get("cache/-/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was given up on is there: %v", err)
	}
	next.Conn.Close()
	stop()
}

// A disk that is well may take longer over a write. Blocks that come meanwhile are taken once it is done, as with any file that is written,
// and readers wait for it.
func TestCatalogOnASlowDiskIsWaitedFor(t *testing.T) {
	n, _ := onDisks(t, "b", nil, "d0")
	ctx, stop := n.receiving(t)
	defer stop()
	s := n.stream(t, ctx)
	s.Send(blockFrames(1, "cache/-/w", contentOf("w", 1000)))
	s.WantReceipt()
	thaw := nodetest.HangMeta(n.Vault.Catalog)
	defer thaw()
	go n.Vault.Catalog.Forget("cache/-/none")
	<-time.After(diskio.Suspect / 2) // amid that write, which counts as long by now
	time.AfterFunc(3*diskio.Suspect/2, thaw)
	s.Send(blockFrames(2, "cache/-/x", contentOf("x", 1000)))
	if _, err := n.Vault.Catalog.Get("cache/-/w"); err != nil {
		t.Errorf("a look at the catalog said %v", err)
	}
	s.WantReceipt()
	s.Conn.Close()
}

// hangCatalog has the catalog hang amid a write, together with its disk, until goOn is called.
func (n *node) hangCatalog(f *nodetest.Disks) (goOn func()) {
	thaw := nodetest.HangMeta(n.Vault.Catalog)
	changed := await.Beside(func() { n.Vault.Catalog.Forget("cache/-/none") })
	<-time.After(diskio.Suspect / 2)
	f.Set(f.Bad, n.Vault.Dir, true)
	return sync.OnceFunc(func() {
		thaw()
		<-changed
		f.Set(f.Bad, n.Vault.Dir, false)
	})
}

// Blocks that are to become files when the catalog hangs become files once it is back.
func TestBlocksWaitToBecomeFilesWhileTheCatalogHangs(t *testing.T) {
	n, f := onDisks(t, "b", []inventory.StoreConfig{with(placeStore, "cache")}, "d0")
	want := n.pack(t, 5, 1000)
	u, goOn := n.receiver.unpackers.all[0], n.hangCatalog(f)
	defer goOn()
	u.pass(t.Context())
	wantWaiting(t, n, 5, 0)
	goOn()
	u.mu.Lock()
	u.retry = time.Now()
	u.mu.Unlock()
	u.pass(t.Context())
	n.WantFiles(t, want)
}

// A catalog that hangs is not taken for an empty one: a node that is back does not say that it has asked about all its
// blocks.
func TestNobodyHasCaughtUpWhileTheCatalogHangs(t *testing.T) {
	n, f := onDisks(t, "b", nil, "d0")
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 1000))))
	defer n.hangCatalog(f)()
	if n.receiver.CatchUp(t.Context(), CatchUp{}) {
		t.Error("it says that all were asked")
	}
}

// Nor is a directory of the vault that is back taken for empty: its blocks are reported once the catalog answers.
func TestBlocksAreHeldAgainOnceTheCatalogSaysSo(t *testing.T) {
	n, f := onDisks(t, "b", nil, "d0")
	f.Give(n.More[0], 1<<40)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 1000))))
	n.Landed = nil
	goOn := n.hangCatalog(f)
	defer goOn()
	back := map[string]bool{n.More[0]: true}
	n.receiver.revive(t.Context(), back)
	goOn()
	n.receiver.revive(t.Context(), back)
	if got := n.LandedBlocks(); len(got) != 1 || len(back) > 0 {
		t.Errorf("told of %v, and %v are yet to be told of", got, back)
	}
}

// Nor are its blocks taken for changed or gone: they go on waiting to become files, and a removal returns why it does not remove them.
func TestBlocksHaveNotChangedForACatalogThatHangs(t *testing.T) {
	n, f := onDisks(t, "b", []inventory.StoreConfig{with(placeStore, "cache")}, "d0")
	var rec catalog.Record
	for id := range n.pack(t, 1, 1000) {
		r, err := n.Vault.Catalog.Get(inventory.BlockID(id))
		if err != nil {
			t.Fatal(err)
		}
		rec = r
	}
	defer n.hangCatalog(f)()
	u := n.receiver.unpackers.all[0]
	u.take(time.Now())
	u.again(rec)
	wantWaiting(t, n, 1, 0)
	gone, err := n.receiver.removeBatch([]catalog.Record{rec}, func([]catalog.Record) {})
	if gone.Blocks != 0 || !diskio.IsSilent(err) {
		t.Errorf("%d blocks were removed (%v)", gone.Blocks, err)
	}
}
