package fallback

import (
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// syncs lets calls that put small contents at the same time share a sync of the whole file system, where that is a local one. Each
// call waits for a sync that began after its bytes, or its name, had reached the kernel. While one round syncs, calls join the next.
type syncs struct {
	mu   sync.Mutex
	next *round // that calls join
	last *round // that has begun, and may be over
	each bool   // each call syncs by itself: the file system is not local, or has more to write than what is put there
}

// round is the calls that share a sync, or that are too few for it and sync side by side.
type round struct {
	left  int           // calls that have not ended
	begun chan struct{} // closed when it is known whether it is shared, and how that ended
	alone bool
	err   error
	over  chan struct{} // closed when all have ended
}

const (
	// smallBytes is the largest content that shares a sync: any disk writes mostPuts of them in a second or two.
	smallBytes = 256 << 10
	// company is the number of calls from which on one sync of the file system is faster than one for each.
	company = 4
	// slowSync is how long a shared sync may take before each call syncs by itself: it writes also what somebody else puts there.
	slowSync = time.Second
	// overtake is how long a round waits for the one before. That one may hang for ever, though another share is mounted by now.
	overtake = silence / 2
)

// syncContent makes durable what was written to f.
func (d *Directory) syncContent(root *os.Root, f *os.File, bytes int64) error {
	if bytes > smallBytes {
		return f.Sync()
	}
	return d.syncs.share(root, f.Sync, func() error {
		// This asks whether the disk refused any of f's bytes. syncfs does not tell: the kernel reports that once for a file system, and
		// may have reported it to somebody else.
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

// share makes something durable by alone, or by a sync of the file system that other calls share, and after.
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

// forget makes the next call look anew what file system it is on.
func (s *syncs) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.each = false
}

// local are file systems whose syncfs returns when all is on disk. That of a network file system may only have sent it.
var local = []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC}

// syncAll reports whether the file system is a local one, and syncs it if it is and a sync is wanted.
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
