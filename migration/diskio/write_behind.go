package diskio

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// WriteBehind has the disk begin on what was written while more comes, and lets a writer be at most two steps ahead of
// the disk. So the sync before a receipt is short however large the block, which matters most at a drain's deadline.
// (On a fast disk it costs nothing: docs/design/measured.md.)
//
// A wait for the disk returns the errors of earlier writes, and the kernel reports each of them once per opening of a file. The
// sync before a receipt must learn of them too where other blocks lie in the same file, so there writing behind has an opening of
// its own.
type WriteBehind struct {
	Begun, done int64        // where what the disk was told to begin on ends, and what it has taken
	BegunAt     atomic.Int64 // Begun, for the goroutine that syncs

	// Drops makes what the disk has taken leave the page cache, so that what comes next is written to the same few pages. On a
	// virtual machine whose host takes back free memory, those pages are the machine's already: there it saved a third of a drain's
	// CPU (measured; docs/design/measured.md). Elsewhere, files that are in use here keep their pages. It costs readers time in the
	// next seconds: then what landed is read back off the disk (scrub.go), and stays in memory.
	Drops bool
}

// WriteBehindBytes is the size of a step.
const WriteBehindBytes = 8 << 20

// Wrote says that f has been written up to end. A nil f is not written behind.
func (w *WriteBehind) Wrote(f *os.File, end int64) error {
	if f == nil || end-w.Begun < WriteBehindBytes {
		return nil
	}
	err := unix.SyncFileRange(int(f.Fd()), w.Begun, end-w.Begun, unix.SYNC_FILE_RANGE_WRITE)
	if err == nil && w.Begun > w.done {
		err = unix.SyncFileRange(int(f.Fd()), w.done, w.Begun-w.done, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
	}
	if err == nil && w.Drops {
		DropCached(f, w.done, w.Begun-w.done)
	}
	w.done, w.Begun = w.Begun, end
	w.BegunAt.Store(end)
	return UnlessMissing(err)
}

// UnlessMissing drops the errors of a file system that has no sync_file_range: there the sync before a receipt writes everything.
func UnlessMissing(err error) error {
	switch err {
	case unix.ENOSYS, unix.EINVAL, unix.ESPIPE:
		return nil
	}
	return err
}

// Cut forgets what was begun after end, where the file was cut off.
func (w *WriteBehind) Cut(end int64) {
	w.done, w.Begun = min(w.done, end), min(w.Begun, end)
	w.BegunAt.Store(w.Begun)
}

// DropCached makes the next read of a part of a file ask the disk. Pages that were not synced, or that cannot be dropped, stay:
// they are read as they are in memory, which is no worse than not to look.
func DropCached(f *os.File, from, bytes int64) {
	if bytes > 0 {
		_ = unix.Fadvise(int(f.Fd()), from, bytes, unix.FADV_DONTNEED)
	}
}
