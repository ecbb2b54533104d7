package receiver

import (
	"bytes"
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/lifeboat/lifeboat/disks/fusedisk"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// slowToMake is a directory on a disk that takes its time to make a file.
type slowToMake struct{ fs.LoopbackNode }

func (n *slowToMake) WrapChild(context.Context, fs.InodeEmbedder) fs.InodeEmbedder {
	return &slowToMake{fs.LoopbackNode{RootData: n.RootData}}
}

func (n *slowToMake) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	<-time.After(diskio.LookAfter + diskio.LookAfter/10)
	return n.LoopbackNode.Create(ctx, name, flags, mode, out)
}

// A stream keeps the room that it set aside for further blocks, even if its disk took long to make the segment.
func TestRoomIsKeptThoughASegmentTakesLongToMake(t *testing.T) {
	n := newNode(t, "b")
	slow := fusedisk.New(t, func(tree *fs.LoopbackRoot) fs.InodeEmbedder { return &slowToMake{fs.LoopbackNode{RootData: tree}} })
	n.More = []string{slow}
	n.Room = func(p string) int64 {
		if p == slow {
			return 1 << 40
		}
		return 0
	}
	n.Reopen(t)
	n.receive(t)
	in := newInbound(n.receiver, "a", nil)
	f, err := wire.NewReader(bytes.NewReader(blockFrames(1, "cache/-/x", contentOf("x", 1000))), 1<<20).Next()
	if err != nil {
		t.Fatal(err)
	}
	o := wire.Opening{ID: "cache/-/x", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: "x", Bytes: 1000}}}
	if err := in.landInVault(f, o); err != nil {
		t.Fatal(err)
	}
	released := false
	release := in.ahead.release
	in.ahead.release = func(int64) { released = true; release(0) }
	in.room.drop(0) // the block has its verdict
	if released {
		t.Error("the stream's room is given to others, and the stream takes it all the same")
	}
	if in.part(); !released {
		t.Error("the stream is over, and its room stays set aside")
	}
}
