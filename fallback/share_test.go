package fallback_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/lifeboat/lifeboat/fallback"
	"github.com/lifeboat/lifeboat/fallback/storagetest"
)

// share is a mounted directory that is watched: by FUSE, over a directory of this machine.
type share struct {
	dir    string
	behind string                 // its files
	sync   func(unsynced int64)   // asked at each sync of a file
	rename func(to string)        // asked before each name that is given; nil: files may have several names, too
	create atomic.Pointer[func()] // asked at each new file
	gone   chan string            // names that were removed or given up for others
}

// shareNode is a file or a directory of it.
type shareNode struct {
	fs.LoopbackNode
	of *share

	mu       sync.Mutex
	unsynced int64 // bytes
}

func newShare(t *testing.T) *share {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounts a file system: needs root")
	}
	s := &share{dir: t.TempDir(), sync: func(int64) {}, gone: make(chan string, 100)}
	s.behind = t.TempDir()
	var st syscall.Stat_t
	if err := syscall.Stat(s.behind, &st); err != nil {
		t.Fatal(err)
	}
	tree := &fs.LoopbackRoot{Path: s.behind, Dev: st.Dev}
	tree.RootNode = &shareNode{LoopbackNode: fs.LoopbackNode{RootData: tree}, of: s}
	server, err := fs.Mount(s.dir, tree.RootNode, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "share", Name: "share"}})
	if err != nil {
		t.Skipf("FUSE cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(s.dir, syscall.MNT_DETACH); err != nil { // a call that was left behind may be in it still
			t.Error(err)
		}
		server.Wait()
	})
	return s
}

func (n *shareNode) WrapChild(context.Context, fs.InodeEmbedder) fs.InodeEmbedder {
	return &shareNode{LoopbackNode: fs.LoopbackNode{RootData: n.RootData}, of: n.of}
}

func (n *shareNode) Write(ctx context.Context, f fs.FileHandle, b []byte, off int64) (uint32, syscall.Errno) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unsynced += int64(len(b))
	return f.(fs.FileWriter).Write(ctx, b, off)
}

func (n *shareNode) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	n.mu.Lock()
	unsynced := n.unsynced
	n.unsynced = 0
	n.mu.Unlock()
	n.of.sync(unsynced)
	return 0
}

// Create opens a file that the kernel does not write past us.
func (n *shareNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	if asked := n.of.create.Load(); asked != nil {
		(*asked)()
	}
	inode, f, flags, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	return inode, struct {
		fs.FileWriter
		fs.FileReleaser
	}{f.(fs.FileWriter), f.(fs.FileReleaser)}, flags, 0
}

func (n *shareNode) Unlink(ctx context.Context, name string) syscall.Errno {
	defer func() { n.of.gone <- name }()
	return n.LoopbackNode.Unlink(ctx, name)
}

func (n *shareNode) Rename(ctx context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	defer func() { n.of.gone <- name }()
	if n.of.rename != nil {
		n.of.rename(newName)
	}
	return n.LoopbackNode.Rename(ctx, name, to, newName, flags)
}

func (n *shareNode) Link(ctx context.Context, to fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if n.of.rename != nil {
		return nil, syscall.EPERM
	}
	return n.LoopbackNode.Link(ctx, to, name, out)
}

// On a share without hard links, too, what another node puts at the last moment under a name that should be new stays.
func TestShareWithoutLinksKeepsWhatWasPutFirst(t *testing.T) {
	s := newShare(t)
	s.rename = func(to string) {
		if to != "taken" {
			return
		}
		if err := os.WriteFile(filepath.Join(s.behind, "a", to), []byte("theirs"), 0o600); err != nil {
			t.Error(err)
		}
	}
	d := fallback.NewDirectory(s.dir)
	for name, want := range map[string]string{"taken": "theirs", "free": "ours"} {
		err := d.Put(t.Context(), "a/"+name, 4, strings.NewReader("ours"), true)
		if (want == "ours") != (err == nil) || err != nil && !errors.Is(err, os.ErrExist) {
			t.Errorf("%s: got %v", name, err)
		}
		if got, err := os.ReadFile(filepath.Join(s.behind, "a", name)); string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
	wantNoneUnfinished(t, s.behind)
}

// A share takes into memory what it has to write, and a sync that has a large content to wait for takes longer than a share
// may be silent. So no sync has much to do.
func TestDirectorySyncsAsItWrites(t *testing.T) {
	s := newShare(t)
	var mu sync.Mutex
	most, first := int64(0), int64(0)
	s.sync = func(unsynced int64) {
		mu.Lock()
		defer mu.Unlock()
		most, first = max(most, unsynced), cmp.Or(first, unsynced)
	}
	const size = 40 << 20
	content := storagetest.ContentOf("x", size)
	if err := fallback.NewDirectory(s.dir).Put(t.Context(), "x", size, bytes.NewReader(content), false); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if most == 0 || most > 8<<20 {
		t.Errorf("a sync had %d MiB to write: a share that others use too may take 1 MB/s, and has 10 s", most>>20)
	}
	if first > 1<<20 {
		t.Errorf("the first sync had %d MiB to write: eight contents at once may have to share 1 MB/s", first>>20)
	}
	if got, err := os.ReadFile(filepath.Join(s.dir, "x")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("got %d bytes and %v, want what was put", len(got), err)
	}
}

// A content whose Put was given up, as the share hung, does not get its name once the share goes on: another may have it.
func TestContentThatWasGivenUpIsNotPutLater(t *testing.T) {
	s := newShare(t)
	d := fallback.NewDirectory(s.dir)
	ctx, cancel := context.WithCancel(t.Context())
	on := make(chan struct{})
	var hung atomic.Bool
	s.sync = func(unsynced int64) {
		if unsynced > 0 && !hung.Swap(true) {
			cancel()
			<-on
		}
	}
	if err := d.Put(ctx, "x", 3, strings.NewReader("old"), false); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if err := d.Put(t.Context(), "x", 3, strings.NewReader("new"), false); err != nil {
		t.Fatal(err)
	}
	<-s.gone // the second's name while it was unfinished
	close(on)
	<-s.gone // the first's
	if got, err := os.ReadFile(filepath.Join(s.dir, "x")); string(got) != "new" {
		t.Errorf("got %q, %v, want what was put last", got, err)
	}
}

// A share that is far away makes the names of several contents at once: in one directory the kernel would wait for each before it asks
// for the next.
func TestNamesAreMadeSideBySide(t *testing.T) {
	s := newShare(t)
	var under atomic.Int64
	two, once := make(chan struct{}), sync.Once{}
	s.create.Store(new(func() {
		if under.Add(1) == 2 {
			once.Do(func() { close(two) })
		}
		defer under.Add(-1)
		select {
		case <-two:
		case <-time.After(5 * time.Second):
			once.Do(func() {
				t.Error("no second name is asked for while the first is made")
				close(two)
			})
		}
	}))
	d := fallback.NewDirectory(s.dir)
	var puts sync.WaitGroup
	for i := range 32 {
		puts.Go(func() {
			if err := d.Put(t.Context(), fmt.Sprintf("%d/x", i), 1, strings.NewReader("x"), false); err != nil {
				t.Error(err)
			}
		})
	}
	puts.Wait()
}
