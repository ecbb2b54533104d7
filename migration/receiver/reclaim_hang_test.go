package receiver

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"

	"github.com/lifeboat/lifeboat/disks/fusedisk"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// A disk hangs while the space of removed blocks is given back there: blocks on other disks are removed all the same.
func TestRemovingIsNotHeldUpByOneDisk(t *testing.T) {
	n, f := onDisks(t, "b", nil, "d0", "d1")
	f.Give(n.More[0], 0)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 10000)), blockFrames(2, "cache/-/x-2", contentOf("x-2", 10000))))
	f.Give(n.More[0], 1<<40)
	f.Give(n.More[1], 0)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/y", contentOf("y", 10000))))
	r, err := n.Vault.Catalog.Get("cache/-/x")
	if err != nil {
		t.Fatal(err)
	}
	thaw := hangsOpen(t, n.SegmentPath(r.Segment))
	n.receive(t)
	gone := make(chan inventory.Count)
	go func() {
		for _, id := range []inventory.BlockID{"cache/-/x", "cache/-/y"} {
			removed, _ := n.receiver.Remove(t.Context(), "as is asked", func(h vault.Held) bool { return h.ID == id })
			gone <- removed
		}
	}()
	time.AfterFunc(500*time.Millisecond, func() { f.Set(f.Bad, n.More[1], true) })
	late := time.After(9 * time.Second)
	for _, id := range []inventory.BlockID{"cache/-/x", "cache/-/y"} {
		select {
		case removed := <-gone:
			if removed.Blocks != 1 {
				t.Errorf("%s: removed %+v", id, removed)
			}
		case <-late:
			thaw()
			t.Fatalf("%s: nothing is removed while a disk hangs", id)
		}
	}
	if segments := segmentsIn(t, n.More[0]); len(segments) > 0 {
		t.Errorf("the space of y is not given back: there is %v", segments)
	}
	// Once the disk is back, its space comes back as any does.
	thaw()
	f.Set(f.Bad, n.More[1], false)
	for n.Vault.Reclaim(t.Context()) == nil { // until the hanging reclaim is back; the stand-in for the segment is none
	}
}

// hangsAtUnlink is a file or directory on a FUSE file system that hangs when a file is removed, once it is told to.
type hangsAtUnlink struct {
	fs.LoopbackNode
	disk *unlinkingDisk
}

type unlinkingDisk struct {
	hangs          atomic.Bool
	removing, thaw chan struct{}
}

func (n *hangsAtUnlink) WrapChild(context.Context, fs.InodeEmbedder) fs.InodeEmbedder {
	return &hangsAtUnlink{fs.LoopbackNode{RootData: n.RootData}, n.disk}
}

func (n *hangsAtUnlink) Unlink(ctx context.Context, name string) syscall.Errno {
	if n.disk.hangs.CompareAndSwap(true, false) {
		close(n.disk.removing)
		<-n.disk.thaw
	}
	return n.LoopbackNode.Unlink(ctx, name)
}

// A disk hangs while landed blocks are removed there. Meanwhile blocks of other stores become files.
func TestRemovingThatHangsHoldsUpNoOtherStore(t *testing.T) {
	other, cfg := placeStore, placeStore
	other.Name, other.Paths = "other", []string{"other"}
	n, disk := newNode(t, "b", other), &unlinkingDisk{removing: make(chan struct{}), thaw: make(chan struct{})}
	cfg.Paths = []string{fusedisk.New(t, func(tree *fs.LoopbackRoot) fs.InodeEmbedder {
		return &hangsAtUnlink{fs.LoopbackNode{RootData: tree}, disk}
	})}
	s, err := inventory.OpenStore(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	n.Stores = append(n.Stores, s)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 2*PackedBytes)), blockFrames(2, "other/-/y", contentOf("y", 1000))))
	n.receive(t)
	disk.hangs.Store(true)
	var removing sync.WaitGroup
	removing.Go(func() {
		removed, err := n.receiver.Remove(t.Context(), "as is asked", func(vault.Held) bool { return true })
		if err != nil || removed.Blocks != 2 {
			t.Errorf("removed %+v, %v", removed, err)
		}
	})
	<-disk.removing
	select {
	case n.receiver.unpackerOf("other/-/y").gate <- struct{}{}:
		<-n.receiver.unpackerOf("other/-/y").gate
	default:
		t.Error("no files are made of other stores' blocks while a disk hangs")
	}
	close(disk.thaw)
	removing.Wait()
}
