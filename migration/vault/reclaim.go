package vault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
)

// Space comes back in two ways, neither of which writes a block anew: free stretches are punched out of a segment's
// file, and a segment in which nothing is of use loses its file. The catalog is written before and after, so a crash
// between leaves only work that is done again.

// Read counts a reader of a segment in until done is called. Nothing is punched out of the segment meanwhile.
func (v *Vault) Read(no uint32) (done func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reading[no]++
	return sync.OnceFunc(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.reading[no]--; v.reading[no] == 0 {
			delete(v.reading, no)
		}
	})
}

// Reclaim gives back the space of free stretches. Segments that are being read, or lie on a disk that does not answer,
// wait for the next call.
func (v *Vault) Reclaim(ctx context.Context) error {
	segments, err := v.Catalog.Waste()
	var errs []error
	for _, no := range segments {
		if ctx.Err() != nil {
			break
		}
		if err := v.reclaimAside(no); err != nil {
			errs = append(errs, fmt.Errorf("give back the space of segment %d: %w", no, err))
		}
	}
	return errors.Join(append(errs, err)...)
}

// reclaimAside reclaims one segment, and leaves that behind if it hangs on a disk, so that other disks' space comes back and the caller
// goes on. Until it comes back no other reclaim begins in that directory.
func (v *Vault) reclaimAside(no uint32) error {
	dir, err := v.Home(no)
	if err != nil || v.Readable(dir) != nil || v.hangs(dir) {
		return nil
	}
	failed := make(chan error, 1)
	back := await.Beside(func() { failed <- v.reclaimIn(no, dir) })
	began, look := time.Now(), time.NewTicker(diskio.LookAfter)
	defer look.Stop()
	for {
		select {
		case <-back:
			return <-failed
		case now := <-look.C:
			if took := now.Sub(began); took >= diskio.Overdue || took >= diskio.Suspect && v.Readable(dir) != nil {
				v.mu.Lock()
				defer v.mu.Unlock()
				v.hung[dir] = back
				return diskio.Silence(dir)
			}
		}
	}
}

// hangs reports whether a reclaim has not come back from a directory.
func (v *Vault) hangs(dir string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	back, hangs := v.hung[dir]
	if hangs {
		select {
		case <-back:
			delete(v.hung, dir)
			return false
		default:
		}
	}
	return hangs
}

func (v *Vault) reclaimIn(no uint32, dir string) error {
	wide, empty, err := v.Catalog.Free(no)
	if err != nil {
		return err
	}
	if empty && v.retire(no) {
		return v.unlink(no, dir)
	}
	if v.isRead(no) {
		return nil
	}
	if err := punch(SegmentFile(dir, no), wide); err != nil {
		return err
	}
	return v.Catalog.Punched(no, wide)
}

func (v *Vault) isRead(no uint32) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.reading[no] > 0
}

// retire makes sure that nothing is appended to a segment any more. It reports false while a writer has it, and of a segment that may have
// further blocks.
func (v *Vault) retire(no uint32) bool {
	v.mu.Lock()
	s := v.writing[no]
	if s == nil || s.users > 0 {
		defer v.mu.Unlock()
		return s == nil && !v.unread[no]
	}
	d := v.placeOf(s.Dir)
	d.free = slices.DeleteFunc(d.free, func(other *Segment) bool { return other == s })
	s.closed = true
	delete(v.writing, no)
	v.mu.Unlock() // closing may take as long as the disk hangs
	_ = s.shut()
	return true
}

// unlink removes the file of a retired segment, if still nothing in it is of use: a commit may have come before it was
// retired. Readers that have the file open read on to its end.
func (v *Vault) unlink(no uint32, dir string) error {
	if _, empty, err := v.Catalog.Free(no); err != nil || !empty {
		return err
	}
	if err := durable.Remove(SegmentFile(dir, no)); err != nil {
		return err
	}
	if err := v.Catalog.CloseBook(no); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.homes, no)
	return nil
}

// punch gives stretches of a file back to its file system. On a file system that cannot punch holes, the space comes
// back with the whole file.
func punch(path string, stretches []catalog.Stretch) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // readers report its blocks
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for _, s := range stretches {
		if s.Length == 0 {
			continue
		}
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, s.At, s.Length)
		switch {
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return nil
		case err != nil:
			return fmt.Errorf("punch %s: %w", path, err)
		}
	}
	return nil
}
