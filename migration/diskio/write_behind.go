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
// To wait for the disk is to hear what it refused, and the kernel tells that once for each opening of a file. Where the sync
// before a receipt must hear it too, because others' blocks lie in the same file, writing behind has an opening of its own.
type WriteBehind struct {
	Begun, done int64
	BegunAt     atomic.Int64 // begun, for who syncs

	// Drops has what the disk has taken leave the page cache, so that what comes next is written to the same few pages. Those
	// are the machine's already, where it has its memory from a host that takes back what is free: there it saved a third of a
	// drain's CPU (measured; docs/design/measured.md). Elsewhere, files that are in use here keep theirs. What it costs is a reader's
	// time in the next seconds: what landed is read back off the disk then (scrub.go), and that stays.
	Drops bool
}

// WriteBehindBytes is a step.
const WriteBehindBytes = 8 << 20

// Wrote says that a file has been written up to there. Nil: there is none to write behind in.
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

// UnlessMissing passes over the errors of a file system that has no sync_file_range: the sync does it all.
func UnlessMissing(err error) error {
	switch err {
	case unix.ENOSYS, unix.EINVAL, unix.ESPIPE:
		return nil
	}
	return err
}

// Cut forgets what was begun behind the end.
func (w *WriteBehind) Cut(end int64) {
	w.done, w.Begun = min(w.done, end), min(w.Begun, end)
	w.BegunAt.Store(w.Begun)
}

// DropCached has the next read of a part of a file ask the disk. What was not synced stays, and what cannot be dropped is
// read as it is in memory, which is no worse than not to look.
func DropCached(f *os.File, from, bytes int64) {
	if bytes > 0 {
		_ = unix.Fadvise(int(f.Fd()), from, bytes, unix.FADV_DONTNEED)
	}
}
