package receiver

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/disks/fusedisk"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// acrossDisks is a map output whose data belong on one of three disks, and whose index belongs on another.
func acrossDisks(data, index int, bytes int64) (o wire.Opening) {
	for m := 0; ; m++ {
		base := fmt.Sprintf("shuffle_0_%d_0", m)
		d, _ := inventory.SparkPlace(base+".data", 3)
		i, _ := inventory.SparkPlace(base+".index", 3)
		if d == data && i == index {
			return wire.Opening{ID: "spark/app-1-1/" + base, Kind: inventory.KindShuffle, Layout: inventory.LayoutSpark,
				Members: []wire.MemberSize{{Name: base + ".data", Bytes: bytes}, {Name: base + ".index", Bytes: wire.ChunkBytes}}}
		}
	}
}

func membersFrames(transfer uint32, o wire.Opening) []byte {
	b := wire.AppendFrame(nil, wire.FrameOpen, transfer, o.Append(nil))
	s := wire.NewSummer()
	for _, m := range o.Members {
		s.Member(m.Bytes)
		for left := m.Bytes; left > 0; left -= wire.ChunkBytes {
			c := contentOf(m.Name, int(min(left, wire.ChunkBytes)))
			b = wire.AppendFrame(b, wire.FrameData, transfer, c)
			s.Chunk(crc32.Checksum(c, wire.Castagnoli))
		}
	}
	sum := s.Total()
	return wire.AppendFrame(b, wire.FrameClose, transfer, sum[:])
}

// A map output lies on several disks. If one disk does not take its part, only that one is reported.
func TestFaultIsToldOfTheDiskThatHasIt(t *testing.T) {
	for _, row := range []struct{ data, index, full int }{{0, 2, 0}, {0, 2, 2}, {2, 0, 0}, {2, 0, 2}} {
		told := func(t *testing.T, bytes int64, code wire.VerdictCode) {
			n, f := onDisks(t, "b", []inventory.StoreConfig{with(sparkStore, "s0", "s1", "s2")}, "v")
			dir := n.Stores[0].Paths[row.full]
			if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
				t.Skip("only root mounts file systems: ", err)
			}
			t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
			s, err := inventory.OpenStore(n.Stores[0].StoreConfig)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			n.Stores[0] = s
			if said := landAll(t, n, membersFrames(1, acrossDisks(row.data, row.index, bytes))); said[0].Code != code {
				t.Errorf("got %+v, want verdict %d", said[0], code)
			}
			n.unpack()
			for p, err := range f.Faults {
				if p != dir {
					t.Errorf("%s is blamed: %v", p, err)
				}
			}
			if f.Faults[dir] == nil {
				t.Error("nobody was told")
			}
		}
		t.Run(fmt.Sprint("as it lands", row), func(t *testing.T) { told(t, 8*wire.ChunkBytes, wire.VerdictFull) })
		t.Run(fmt.Sprint("as it becomes files", row), func(t *testing.T) { told(t, wire.ChunkBytes, wire.VerdictDurable) })
	}
}

// Nor is one disk reported as hanging for another.
func TestLandingSaysWhichDiskItIsAt(t *testing.T) {
	n := newNode(t, "b", with(sparkStore, "s0", "s1", "s2"))
	o, w := acrossDisks(2, 0, 8*wire.ChunkBytes), new(diskio.Work)
	l, err := landInPlace(n.Stores[0], o, []int{2, 0}, n.Vault.Catalog, w)
	if err != nil {
		t.Fatal(err)
	}
	defer l.abort()
	for member, root := range []int{2, 0} {
		if err := l.data(member, wire.Frame{Payload: contentOf("x", wire.ChunkBytes)}); err != nil {
			t.Fatal(err)
		}
		if dir, _, _ := w.On(time.Now()); dir != n.Stores[0].Paths[root] || dir != *l.at() {
			t.Errorf("member %d: at %s, want %s", member, dir, n.Stores[0].Paths[root])
		}
	}
}

// A block that comes again is compared with its earlier copy, which may lie on another disk than the one it lands on.
func TestReadBackThatHangsIsOnItsOwnDisk(t *testing.T) {
	n, f := onDisks(t, "b", nil, "d0", "d1")
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 1000))))
	old, err := n.Vault.Catalog.Get("cache/-/x")
	if err != nil {
		t.Fatal(err)
	}
	file := vault.SegmentFile(n.More[0], old.Segment)
	if err := errors.Join(os.Remove(file), unix.Mkfifo(file, 0o600)); err != nil { // opening it hangs until somebody writes
		t.Fatal(err)
	}
	f.Give(n.More[0], 0)
	n.receive(t)
	in := newInbound(n.receiver, "a", nil)
	l := &landed{Record: old, lying: &lying{dirs: n.More[1:]}}
	over := make(chan error, 1)
	go func() { over <- in.meet(l, earlier{Record: old}) }()
	dir, hangs := "", false
	for !hangs {
		runtime.Gosched()
		dir, _, hangs = in.work.On(time.Now())
	}
	w, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err = errors.Join(err, w.Close(), <-over); err != nil || l.already {
		t.Errorf("a pipe was read: %v", err)
	}
	if dir != n.More[0] {
		t.Errorf("%s was taken to hang, want %s", dir, n.More[0])
	}
}

// hangsAtLook is a file or directory on a FUSE file system that hangs when a name with a certain ending is looked up.
type hangsAtLook struct {
	fs.LoopbackNode
	name    string
	looking chan struct{}
	thaw    chan struct{}
}

func (n *hangsAtLook) WrapChild(context.Context, fs.InodeEmbedder) fs.InodeEmbedder {
	return &hangsAtLook{fs.LoopbackNode{RootData: n.RootData}, n.name, n.looking, n.thaw}
}

func (n *hangsAtLook) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if strings.HasSuffix(name, n.name) {
		select {
		case n.looking <- struct{}{}:
		default:
		}
		<-n.thaw
	}
	return n.LoopbackNode.Lookup(ctx, name, out)
}

// A node looks for its own block under an id in all directories of the store. If one hangs, no other is reported.
func TestLookAtTheOwnStoreThatHangsIsOnItsOwnDisk(t *testing.T) {
	o := acrossDisks(1, 2, 3)
	shuffle := strings.TrimPrefix(o.ID, "spark/app-1-1/")
	for _, row := range []struct{ store, id, hangs string }{{"cache", "cache/-/x", "x"}, {"spark", "spark/blockmgr-1/" + shuffle, ".data"}} {
		t.Run(row.store, func(t *testing.T) {
			root := &hangsAtLook{name: row.hangs, looking: make(chan struct{}, 1), thaw: make(chan struct{})}
			disk := fusedisk.New(t, func(tree *fs.LoopbackRoot) fs.InodeEmbedder { root.RootData = tree; return root })
			cfg := filesStore
			if row.store == "spark" {
				cfg = sparkStore
			}
			cfg.Paths = []string{t.TempDir(), disk, t.TempDir()}
			s, err := inventory.OpenStore(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			dir, sub := inventory.SparkPlace(shuffle+".index", 3)
			write(t, filepath.Join(s.Paths[dir], "blockmgr-1", sub, shuffle+".index"), indexOf(3))
			_, sub = inventory.SparkPlace(shuffle+".data", 3)
			write(t, filepath.Join(disk, "blockmgr-1", sub, "another"), nil)
			n := newNode(t, "b")
			n.Stores = []*inventory.Store{s}
			n.receive(t)
			in := newInbound(n.receiver, "a", nil)
			over := make(chan struct{})
			go func() {
				defer close(over)
				in.recognise([]*landed{{lying: new(lying), Record: catalog.Record{Opening: wire.Opening{ID: row.id, Members: []wire.MemberSize{{Name: inventory.BlockID(row.id).Name(), Bytes: 3}}}}}})
			}()
			select {
			case <-root.looking:
			case <-over:
				t.Fatal("nothing was looked at there")
			}
			if at, _, _ := in.work.On(time.Now()); at != disk {
				t.Errorf("%q is taken to hang, want %q", at, disk)
			}
			close(root.thaw)
			<-over
			if at, _, busy := in.work.On(time.Now()); busy {
				t.Errorf("%s is still watched", at)
			}
		})
	}
}

// hangsAtLink is a file or directory on a FUSE file system that hangs when a file gets its name.
type hangsAtLink struct {
	fs.LoopbackNode
	linking chan struct{}
	thaw    chan struct{}
}

func (n *hangsAtLink) WrapChild(context.Context, fs.InodeEmbedder) fs.InodeEmbedder {
	return &hangsAtLink{fs.LoopbackNode{RootData: n.RootData}, n.linking, n.thaw}
}

func (n *hangsAtLink) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n.linking <- struct{}{}
	<-n.thaw
	return n.LoopbackNode.Link(ctx, target, name, out)
}

// A map output lies on several disks. If one of them hangs while its files get their names, blocks go on landing on the
// others.
func TestCommitThatHangsIsOnItsOwnDisk(t *testing.T) {
	root := &hangsAtLink{linking: make(chan struct{}), thaw: make(chan struct{})}
	disk := fusedisk.New(t, func(tree *fs.LoopbackRoot) fs.InodeEmbedder { root.RootData = tree; return root })
	cfg := sparkStore
	cfg.Paths = []string{t.TempDir(), disk, t.TempDir()}
	s, err := inventory.OpenStore(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	n := newNode(t, "b")
	n.Stores = []*inventory.Store{s}
	ctx, stop := n.receiving(t)
	to := n.stream(t, ctx)
	to.Send(membersFrames(1, acrossDisks(1, 2, PackedBytes)))
	<-root.linking
	if dirs := n.receiver.commit.stuck(time.Now().Add(diskio.Overdue)); len(dirs) != 1 || dirs[0] != disk {
		t.Errorf("%q are taken to hang, want %q", dirs, disk)
	}
	close(root.thaw)
	to.WantReceipt()
	to.Conn.Close()
	stop()
	if dirs := n.receiver.commit.stuck(time.Now().Add(diskio.Overdue)); len(dirs) > 0 {
		t.Errorf("%q are taken to hang when all is done", dirs)
	}
}
