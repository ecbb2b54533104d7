package receiver

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/lifeboat/lifeboat/disks/fusedisk"
	"github.com/lifeboat/lifeboat/disks/smalldisk"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// linklessNode is a file or directory on a file system without hard links.
type linklessNode struct{ fs.LoopbackNode }

func (*linklessNode) Link(context.Context, fs.InodeEmbedder, string, *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return nil, syscall.EPERM
}

func (n *linklessNode) WrapChild(context.Context, fs.InodeEmbedder) fs.InodeEmbedder {
	return &linklessNode{fs.LoopbackNode{RootData: n.RootData}}
}

// A store may be on a file system without hard links. A block that lands there gets its name all the same, and overwrites
// nothing.
func TestBlockLandsWhereThereAreNoHardLinks(t *testing.T) {
	n, cfg := newNode(t, "b"), placeStore
	cfg.Paths = []string{fusedisk.New(t, func(tree *fs.LoopbackRoot) fs.InodeEmbedder { return &linklessNode{fs.LoopbackNode{RootData: tree}} })}
	s, err := inventory.OpenStore(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	n.Stores = []*inventory.Store{s}
	content := contentOf("x", 2*PackedBytes)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/dir/x", content)))
	if got, err := os.ReadFile(filepath.Join(cfg.Paths[0], "dir/x")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("got %d bytes in its place, %v", len(got), err)
	}
	content = contentOf("y", 2*PackedBytes)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/dir/x", content))) // a newer version of a landed block
	if got := n.Content(t, "cache/-/dir/x"); !bytes.Equal(got, content) {
		t.Error("the newer version does not read as what came")
	}
}

// A newer version takes the place of an older one, and then is not kept. Its file must not stay: without a record it would be the store's
// own, which nobody removes, and would stand against every later version.
func TestNewerVersionThatIsNotKeptLeavesNoFile(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "cache"))
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 2*PackedBytes))))
	o := wire.Opening{
		ID: "cache/-/x", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Origin: "a", ModTime: time.Now().UnixNano(),
		Members: []wire.MemberSize{{Name: "x", Bytes: 0}},
	}
	staged, err := landInPlace(n.Stores[0], o, []int{0}, n.Vault.Catalog, new(diskio.Work))
	if err != nil {
		t.Fatal(err)
	}
	l, err := staged.finish(wire.Frame{}, catalog.Record{Opening: o, From: "a"})
	if err != nil {
		t.Fatal(err)
	}
	l.disowned = errStopping // its sender was told that it is not kept, while a disk hung
	newCommitter(n.Vault, nil, func([]vault.Held) {}).durable([]*landed{l}, new(diskio.Work))
	if !errors.Is(l.fault, errStopping) {
		t.Fatalf("its fault is %v", l.fault)
	}
	if info, err := os.Lstat(filepath.Join(n.Dir, "cache/x")); err == nil {
		t.Errorf("a file of %d bytes stays that nobody has on record", info.Size())
	}
}

// Another file system may be mounted below a store's directory. A staged file cannot be moved there, so the block lands in the vault.
func TestBlockWhosePlaceIsOnAnotherFileSystemLandsInTheVault(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "cache"))
	sub := filepath.Join(n.Dir, "cache/sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	smalldisk.Mount(t, sub, "size=1m")
	content := contentOf("x", 2*PackedBytes)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/sub/deep/x", content)))
	if got := n.Content(t, "cache/-/sub/deep/x"); !bytes.Equal(got, content) {
		t.Error("it does not read as what came")
	}
	if r, err := n.Vault.Catalog.Get("cache/-/sub/deep/x"); err != nil || r.Segment == 0 {
		t.Errorf("got %+v, %v, want it in a segment", r, err)
	}
}
