package migration

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// writeBehind has the disk begin on what was written while more comes, and lets a writer be at most two steps ahead of
// the disk. So the sync before a receipt is short however large the block, which matters most at a drain's deadline.
// (On a fast disk it costs nothing: docs/design/measured.md.)
//
// To wait for the disk is to hear what it refused, and the kernel tells that once for each opening of a file. Where the sync
// before a receipt must hear it too, because others' blocks lie in the same file, writing behind has an opening of its own.
type writeBehind struct {
	begun, done int64
	begunAt     atomic.Int64 // begun, for who syncs

	// drops has what the disk has taken leave the page cache, so that what comes next is written to the same few pages. Those
	// are the machine's already, where it has its memory from a host that takes back what is free: there it saved a third of a
	// drain's CPU (measured; docs/design/measured.md). Elsewhere, files that are in use here keep theirs. What it costs is a reader's
	// time in the next seconds: what landed is read back off the disk then (scrub.go), and that stays.
	drops bool
}

const writeBehindBytes = 8 << 20

func (w *writeBehind) wrote(f *os.File, end int64) error {
	if f == nil || end-w.begun < writeBehindBytes {
		return nil
	}
	err := unix.SyncFileRange(int(f.Fd()), w.begun, end-w.begun, unix.SYNC_FILE_RANGE_WRITE)
	if err == nil && w.begun > w.done {
		err = unix.SyncFileRange(int(f.Fd()), w.done, w.begun-w.done, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
	}
	if err == nil && w.drops {
		dropCached(f, w.done, w.begun-w.done)
	}
	w.done, w.begun = w.begun, end
	w.begunAt.Store(end)
	return unlessMissing(err)
}

// unlessMissing passes over the errors of a file system that has no sync_file_range: the sync does it all.
func unlessMissing(err error) error {
	switch err {
	case unix.ENOSYS, unix.EINVAL, unix.ESPIPE:
		return nil
	}
	return err
}

// cut forgets what was begun behind the end.
func (w *writeBehind) cut(end int64) {
	w.done, w.begun = min(w.done, end), min(w.begun, end)
	w.begunAt.Store(w.begun)
}

// dropCached has the next read of a part of a file ask the disk. What was not synced stays, and what cannot be dropped is
// read as it is in memory, which is no worse than not to look.
func dropCached(f *os.File, from, bytes int64) {
	if bytes > 0 {
		_ = unix.Fadvise(int(f.Fd()), from, bytes, unix.FADV_DONTNEED)
	}
}
