package fallback

import (
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// syncs has those who put small contents at the same time share a sync of the whole file system, where that is a local one: each
// waits for one that was begun after its bytes, or its name, had reached the kernel. One is under way while the next finds company.
type syncs struct {
	mu   sync.Mutex
	next *round // that finds company
	last *round // that has begun, and may be over
	each bool   // to each its own: the file system is no local one, or has more to write than what is put there
}

// round is those who share a sync, or are too few for that and sync side by side.
type round struct {
	left  int           // that have not ended
	begun chan struct{} // closed when it is known whether it is shared, and how that ended
	alone bool
	err   error
	over  chan struct{} // closed when all have ended
}

const (
	// smallBytes is what is not worth a sync of its own: any disk writes mostPuts of them in a second or two.
	smallBytes = 256 << 10
	// company is from when on a sync of all is sooner than one by one.
	company = 4
	// slowSync is how long one may take: it is also of what somebody else writes there.
	slowSync = time.Second
	// overtake is when a round waits no longer for the one before, which may hang for ever: another share may be mounted by now.
	overtake = silence / 2
)

// syncContent makes durable what was written to f.
func (d *Directory) syncContent(root *os.Root, f *os.File, bytes int64) error {
	if bytes > smallBytes {
		return f.Sync()
	}
	return d.syncs.share(root, f.Sync, func() error {
		// What the disk did not take: the kernel tells of it once for a file system, and that may have been to somebody else.
		return unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE)
	})
}

// syncDir makes the names in a directory durable.
func (d *Directory) syncDir(root *os.Root, dir string) error {
	alone := func() error {
		f, err := root.Open(dir)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	}
	return d.syncs.share(root, alone, func() error { return nil })
}

// share returns when alone has, or a sync of all and after.
func (s *syncs) share(root *os.Root, alone, after func() error) error {
	s.mu.Lock()
	if s.each {
		s.mu.Unlock()
		return alone()
	}
	r, before := s.next, s.last
	first := r == nil
	if first {
		r = &round{begun: make(chan struct{}), over: make(chan struct{})}
		s.next = r
	}
	r.left++
	s.mu.Unlock()
	if first {
		if before != nil {
			select {
			case <-before.over:
			case <-time.After(overtake):
			}
		}
		s.begin(r, root)
	}
	<-r.begun
	defer s.end(r)
	if r.alone {
		return alone()
	}
	return errors.Join(r.err, after())
}

func (s *syncs) begin(r *round, root *os.Root) {
	defer close(r.begun)
	s.mu.Lock()
	s.next, s.last = nil, r
	r.alone = r.left < company
	s.mu.Unlock()
	began := time.Now()
	local, err := syncAll(root, !r.alone)
	r.alone, r.err = r.alone || !local, err
	s.mu.Lock()
	defer s.mu.Unlock()
	s.each = !local && err == nil || time.Since(began) > slowSync
}

func (s *syncs) end(r *round) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.left--; r.left == 0 {
		close(r.over)
	}
}

// forget has it looked anew what file system that is.
func (s *syncs) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.each = false
}

// local are file systems whose syncfs returns when all is on disk. One that is mounted from afar may only have sent it.
var local = []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC}

// syncAll reports whether the file system is a local one, and syncs it if it is and that is wanted.
func syncAll(root *os.Root, wanted bool) (is bool, err error) {
	dir, err := root.Open(".")
	if err != nil {
		return false, err
	}
	defer dir.Close() // nothing was written through it
	var of unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &of); err != nil {
		return false, os.NewSyscallError("statfs", err)
	}
	if is = slices.Contains(local, int64(of.Type)); is && wanted {
		err = os.NewSyscallError("syncfs", unix.Syncfs(int(dir.Fd())))
	}
	return is, err
}
