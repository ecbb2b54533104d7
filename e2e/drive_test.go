package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/disks/fusedisk"
)

// drive is a disk with a cache that a cut of its power empties: of what was written since the last flush, the disk then has some sectors and
// not others, whichever was written first. It is a file, to be used through a loop device: FUSE is told of each write at once, and hears a
// flush as an fsync. A write that the kernel wants on the disk at once (FUA) has one after it.
type drive struct {
	fs.Inode
	file string

	mu    sync.Mutex
	image *os.File // what is read
	undo  []extent // what image held before each write since the last flush
	bytes int      // of undo
	cuts  int      // whoever opened the file before the last one writes nothing any more
}

// extent is what was in a place.
type extent struct {
	at  int64
	was []byte
}

const (
	sectorBytes = 4096     // written whole or not at all: ext4 and btrfs take that for granted of their superblocks
	cacheBytes  = 64 << 20 // what is beyond that is on the disk, the oldest first
)

// newDrive makes a drive with a file system on it. It has to be made before the fleet that uses it, so that the fleet ends first: FUSE
// ends when nobody has the drive's file open.
func newDrive(t *testing.T, bytes int64, kind string) *drive {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	makeImage(t, image, bytes, kind)
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	d := &drive{image: f}
	dir := fusedisk.New(t, func(*fs.LoopbackRoot) fs.InodeEmbedder { return &bay{drive: d} })
	d.file = filepath.Join(dir, "drive")
	return d
}

// bay is the directory that a drive's file is in.
type bay struct {
	fs.Inode
	drive *drive
}

func (b *bay) OnAdd(ctx context.Context) {
	b.AddChild("drive", b.NewPersistentInode(ctx, b.drive, fs.StableAttr{Mode: syscall.S_IFREG}), false)
}

func (d *drive) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	info, err := d.image.Stat()
	if err == nil {
		out.Mode, out.Size = syscall.S_IFREG|0o600, uint64(info.Size())
	}
	return fs.ToErrno(err)
}

// Open keeps the kernel from having a cache above the drive's. Who opens the file is known by the cuts before.
func (d *drive) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cuts, fuse.FOPEN_DIRECT_IO, 0
}

func (d *drive) Read(_ context.Context, _ fs.FileHandle, b []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	n, err := d.image.ReadAt(b, at)
	if err != nil && err != io.EOF {
		return nil, fs.ToErrno(err)
	}
	return fuse.ReadResultData(b[:n]), 0
}

func (d *drive) Write(_ context.Context, opened fs.FileHandle, b []byte, at int64) (uint32, syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if opened != d.cuts {
		return uint32(len(b)), 0
	}
	was := make([]byte, len(b))
	if _, err := d.image.ReadAt(was, at); err != nil {
		return 0, fs.ToErrno(err)
	}
	d.undo, d.bytes = append(d.undo, extent{at, was}), d.bytes+len(was)
	for ; d.bytes > cacheBytes; d.undo = d.undo[1:] {
		d.bytes -= len(d.undo[0].was)
	}
	n, err := d.image.WriteAt(b, at)
	return uint32(n), fs.ToErrno(err)
}

func (d *drive) Fsync(_ context.Context, opened fs.FileHandle, _ uint32) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if opened == d.cuts {
		d.undo, d.bytes = nil, 0
	}
	return 0
}

// cut empties the cache. About that share of the sectors that were written since the last flush are as they were before their last write,
// or before an earlier one.
func (d *drive) cut(share float64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	undo := d.undo
	d.undo, d.bytes, d.cuts = nil, 0, d.cuts+1
	return lose(d.image, undo, share)
}

func lose(image *os.File, undo []extent, share float64) error {
	kept := map[int64]bool{}
	for _, e := range slices.Backward(undo) {
		for len(e.was) > 0 {
			sector := e.at / sectorBytes
			n := min(int64(len(e.was)), (sector+1)*sectorBytes-e.at)
			if kept[sector] = kept[sector] || rand.Float64() >= share; !kept[sector] {
				if _, err := image.WriteAt(e.was[:n], e.at); err != nil {
					return err
				}
			}
			e.at, e.was = e.at+n, e.was[n:]
		}
	}
	return nil
}

// Without a flush a drive loses what was written to it, and with one it does not, on each file system. Else the stories that cut its power
// would show nothing.
func TestDriveLosesWhatIsNotFlushed(t *testing.T) {
	onEach(t, func(t *testing.T, fs string) {
		disk := newPowered(t, fs)
		t.Parallel()
		content, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned, as O_DIRECT wants it
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(content)
		for i, row := range []struct {
			name string
			flag int
			sync func(fd int) error
			kept bool
		}{
			{"sync_file_range", 0, func(fd int) error {
				return unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
			}, false},
			{"O_DIRECT", unix.O_DIRECT, func(int) error { return nil }, false},
			{"fdatasync", 0, unix.Fdatasync, true},
			{"syncfs", os.O_TRUNC, unix.Syncfs, true}, // XFS's flushes nothing if its log is clean, as after a write into space that the file had
		} {
			all := true
			for try := 0; all && try < 3 && (try == 0 || !row.kept); try++ { // the kernel may flush on its own at just that moment
				path := filepath.Join(disk.dir, row.name)
				clear(content)
				if err := os.WriteFile(path, content, 0o600); err != nil {
					t.Fatal(err)
				}
				disk.writeAll()
				for j := range content {
					content[j] = byte(i + 1)
				}
				f, err := os.OpenFile(path, os.O_WRONLY|row.flag, 0)
				if err != nil {
					t.Fatal(err)
				}
				_, err = f.Write(content)
				if err = errors.Join(err, row.sync(int(f.Fd())), f.Close()); err != nil {
					t.Fatal(err)
				}
				disk.cutLosing(0.5)
				got, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				all = bytes.Equal(got, content)
			}
			if all != row.kept {
				t.Errorf("after %s and a cut: all is there: %t, want %t", row.name, all, row.kept)
			}
		}
	})
}
