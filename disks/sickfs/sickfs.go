// Package sickfs is a FUSE file system for tests that falls ill on demand: it hangs, errs, is slow, or lies about sync. It
// is well again when it is healed, and ends with its test. The product never links it.
package sickfs

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// FS is a file system in memory, of files in one directory, that has the ailment it is given.
type FS struct {
	fs.Inode
	ailment atomic.Value // an Ailment
	hold    atomic.Pointer[chan struct{}]
}

// Ailment is what is wrong with a file system.
type Ailment string

const (
	Well     Ailment = ""
	Hangs    Ailment = "hangs"
	Errs     Ailment = "errors"
	Slow     Ailment = "slow"
	Lies     Ailment = "lies about sync"
	Flips    Ailment = "flips a bit"
	SizeErrs Ailment = "cannot tell its size"
	SyncErrs Ailment = "errors at sync"
)

// Slowness is what a sync takes on a file system that is Slow.
const Slowness = 200 * time.Millisecond

// Fall gives the file system an ailment.
func (s *FS) Fall(ill Ailment) {
	if ill == Hangs {
		hold := make(chan struct{})
		s.hold.Store(&hold)
	}
	s.ailment.Store(ill)
}

// Heal ends the ailment, and lets calls go on that hung.
func (s *FS) Heal() {
	s.ailment.Store(Well)
	if hold := s.hold.Swap(nil); hold != nil {
		close(*hold)
	}
}

// suffer is called by all that moves data. It hangs or errs as the ailment says.
func (s *FS) suffer() syscall.Errno {
	switch s.ailment.Load() {
	case Hangs:
		if hold := s.hold.Load(); hold != nil {
			<-*hold
		}
	case Errs:
		return syscall.EIO
	}
	return 0
}

func (s *FS) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	if s.ailment.Load() == SizeErrs {
		return syscall.EIO
	}
	out.Bsize, out.Frsize, out.NameLen = 4096, 4096, 255
	out.Blocks, out.Bfree, out.Bavail = 1<<20, 1<<19, 1<<19
	return 0
}

func (s *FS) Create(ctx context.Context, name string, _, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	f := &file{sick: s}
	return s.NewPersistentInode(ctx, f, fs.StableAttr{Mode: mode}), nil, 0, 0
}

func (s *FS) Unlink(context.Context, string) syscall.Errno { return 0 }

type file struct {
	fs.Inode
	sick *FS

	mu   sync.Mutex // guards what follows
	data []byte
}

func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, 0, 0
}

func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	out.Mode, out.Size = syscall.S_IFREG|0o600, uint64(len(f.data))
	return 0
}

func (f *file) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n, ok := in.GetSize(); ok {
		f.data = append(f.data, make([]byte, max(0, int(n)-len(f.data)))...)[:n]
	}
	out.Mode, out.Size = syscall.S_IFREG|0o600, uint64(len(f.data))
	return 0
}

func (f *file) Write(_ context.Context, _ fs.FileHandle, b []byte, off int64) (uint32, syscall.Errno) {
	if e := f.sick.suffer(); e != 0 {
		return 0, e
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if end := int(off) + len(b); end > len(f.data) {
		f.data = append(f.data, make([]byte, end-len(f.data))...)
	}
	copy(f.data[off:], b)
	return uint32(len(b)), 0
}

func (f *file) Fsync(ctx context.Context, _ fs.FileHandle, _ uint32) syscall.Errno {
	if e := f.sick.suffer(); e != 0 {
		return e
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.sick.ailment.Load() {
	case Slow:
		time.Sleep(Slowness)
	case Lies:
		clear(f.data)
	case SyncErrs:
		return syscall.EIO
	}
	return 0
}

func (f *file) Read(_ context.Context, _ fs.FileHandle, b []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if e := f.sick.suffer(); e != 0 {
		return nil, e
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	if off < int64(len(f.data)) {
		n = copy(b, f.data[off:])
	}
	if f.sick.ailment.Load() == Flips && n > 100 {
		b[100] ^= 4
	}
	return fuse.ReadResultData(b[:n]), 0
}

// Mount mounts the file system, well, at dir. When the test ends, it is healed and unmounted. Without FUSE the test is
// skipped.
func (s *FS) Mount(t testing.TB, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root mounts file systems")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skipf("no FUSE on this machine: %v", err)
	}
	s.ailment.Store(Well)
	server, err := fs.Mount(dir, s, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "sick", Name: "sick"}})
	if err != nil {
		t.Skipf("FUSE cannot be mounted: %v", err)
	}
	var st unix.Stat_t
	t.Cleanup(func() { s.end(t, server, dir, st.Dev) })
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
}

// patience is how long the end of a server is waited for, before its connection is aborted and once more after. A file
// system in an image file on this one writes a last time when it is unmounted, and each write is a trip to the server.
const patience = time.Minute

func (s *FS) end(t testing.TB, server *fuse.Server, dir string, device uint64) {
	s.Heal()
	_ = unix.Unmount(dir, unix.MNT_DETACH) // the test may have done so
	ended := make(chan struct{})
	go func() { defer close(ended); server.Wait() }()
	select {
	case <-ended:
		return
	case <-time.After(patience):
	}
	t.Logf("waited %s for the end of the FUSE server at %s", patience, dir)
	if err := os.WriteFile(fmt.Sprintf("/sys/fs/fuse/connections/%d/abort", unix.Minor(device)), []byte("1"), 0); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Errorf("gave up on the FUSE server at %s", dir)
	}
}
