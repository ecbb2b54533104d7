package vault

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
)

// SegmentBytes is the size at which a segment gets no further block. 256 MiB keeps their number small and lets space come
// back in useful pieces.
const SegmentBytes = 256 << 20

// Segment is a segment that is open for appending.
type Segment struct {
	No   uint32
	Dir  string
	In   []string // Dir alone, as a slice for all blocks that lie here
	End  int64    // of what was appended, flushed or not
	From string   // the node that the last hello in it names; "": none does

	f   *os.File
	tap *os.File // the same file, for writing behind; nil: it could not be opened, and the sync does it all
	w   *pieces

	reserved int64 // up to where the file system has been asked to reserve blocks

	Behind diskio.WriteBehind
	synced atomic.Int64 // how far a sync's speed has been reported

	// Guarded by Vault.mu:
	users  int   // its writer, and each block whose commit is under way
	kept   int64 // how far the catalog knows of it
	closed bool  // takes no further block
	fault  error // of a commit. The kernel reports a failed sync once, and forgets the bytes: nothing more is promised here
}

// Acquire hands out a segment of that directory to append to.
func (v *Vault) Acquire(dir string) (*Segment, error) {
	v.mu.Lock()
	d := v.placeOf(dir)
	if n := len(d.free); n > 0 {
		defer v.mu.Unlock()
		s := d.free[n-1]
		d.free = d.free[:n-1]
		s.users++
		return s, nil
	}
	v.last++
	no := v.last
	v.homes[no] = home{dir, true}
	v.mu.Unlock() // making a file may take as long as the disk hangs
	f, err := os.OpenFile(SegmentFile(dir, no), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("new segment: %w", err)
	}
	if err := durable.SyncDir(filepath.Dir(f.Name())); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	s := &Segment{No: no, Dir: dir, In: []string{dir}, f: f, w: newPieces(inFile{f}, 0), users: 1}
	if tap, err := os.Open(f.Name()); err == nil {
		s.tap = tap
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.writing[no] = s
	return s, nil
}

// Release takes a segment back from its writer, which has flushed it. A full segment, or one that failed, gets no more
// blocks.
func (v *Vault) Release(s *Segment, failed bool) {
	if !failed {
		s.unreserve()
	}
	s.w.rest() // free segments keep no buffer: there are as many as ever were written at one time
	v.mu.Lock()
	if failed || s.fault != nil || s.End >= SegmentBytes {
		s.closed = true
	} else {
		d := v.placeOf(s.Dir)
		d.free = append(d.free, s)
	}
	last := v.leave(s, 1)
	v.mu.Unlock()
	if last {
		s.close()
	}
}

// Use counts blocks whose commits will sync the segment, until Done.
func (v *Vault) Use(s *Segment, blocks int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s.users += blocks
}

// Done ends what Use began.
func (v *Vault) Done(s *Segment, blocks int) {
	v.mu.Lock()
	last := v.leave(s, blocks)
	v.mu.Unlock()
	if last {
		s.close()
	}
}

// leave counts users out. It reports true once the segment has no user and will get none.
func (v *Vault) leave(s *Segment, users int) bool {
	s.users -= users
	if s.users > 0 || !s.closed {
		return false
	}
	delete(v.writing, s.No)
	return true
}

// close cuts off what was never receipted; should that fail, the next start does it.
func (s *Segment) close() {
	switch {
	case s.kept == 0:
		os.Remove(s.f.Name())
	case max(s.End, s.reserved) > s.kept:
		_ = s.f.Truncate(s.kept)
	}
	_ = s.shut()
}

// shut closes the segment's files.
func (s *Segment) shut() error {
	if s.tap != nil {
		s.tap.Close() // it is only a read descriptor
	}
	return s.f.Close()
}

// Keep notes up to where a segment has been committed.
func (v *Vault) Keep(s *Segment, end int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s.kept = max(s.kept, end)
}

// EndOf returns what the catalog is to know of a segment that has been committed up to at.
func (v *Vault) EndOf(s *Segment, at int64) catalog.End {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.endIn(s.Dir, max(at, s.kept))
}

func (v *Vault) endIn(dir string, at int64) catalog.End {
	if dir == v.Dir {
		dir = ""
	}
	return catalog.End{At: at, Dir: dir}
}

// Spoil has a segment take no more blocks. If its writer has given it back already, the last commit of it closes it.
func (v *Vault) Spoil(s *Segment, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s.fault = cmp.Or(s.fault, err)
	if d := v.placeOf(s.Dir); slices.Contains(d.free, s) {
		d.free = slices.DeleteFunc(d.free, func(other *Segment) bool { return other == s })
		s.closed = true
	}
}

// cut removes what was appended from offset on: a block that was not finished.
func (s *Segment) cut(offset int64) error {
	if err := s.w.Flush(); err != nil {
		return err
	}
	if err := s.f.Truncate(offset); err != nil {
		return err
	}
	if _, err := s.f.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	s.w.reset(inFile{s.f}, offset)
	s.End, s.reserved, s.From = offset, 0, "" // the hello may be cut off, too
	s.Behind.Cut(offset)
	return nil
}

// Forget gives the space back of what was appended from offset on. If the segment's writer has failed, the file is cut at
// least, and the next append returns the error.
func (s *Segment) Forget(offset int64) {
	if err := s.cut(offset); err != nil {
		_ = s.f.Truncate(offset)
	}
}

// Holds reports whether an append of so many bytes would stay in memory.
func (s *Segment) Holds(bytes int) bool { return bytes < s.w.room() && !s.runsOut() }

// Append adds bytes behind what was appended before. They reach the kernel with the next Flush at the latest.
func (s *Segment) Append(raw []byte) error {
	n, err := s.w.Write(raw)
	s.End += int64(n)
	if err != nil {
		return err
	}
	s.reserve()
	return s.Behind.Wrote(s.tap, s.written())
}

// Flush writes the appended bytes that are still in memory.
func (s *Segment) Flush() error { return s.w.Flush() }

// Taken returns how many of the appended bytes the disk has taken: less than End after an error.
func (s *Segment) Taken() int64 { return s.w.at }

// WriteBy has its bytes written by w instead of its file: tests use it for a disk that is full or hangs.
func (s *Segment) WriteBy(w Writer) { s.w.reset(w, 0) }

func (s *Segment) written() int64 { return s.End - int64(s.w.buffered()) }

// reserveBytes is for how much space the file system is asked at once: as much as is written behind at once.
const reserveBytes = diskio.WriteBehindBytes

// reserve asks the file system for the blocks of the next reserveBytes, once that much has been written. ext4's work for every page
// without a block costs 0.06 CPU s/GiB, and a tenth of that with one (measured; docs/design/measured.md). If the reservation fails
// nothing is lost: the write that needs the space returns the error. Where little room is left nothing is reserved, for the room may
// have been granted to another stream.
func (s *Segment) reserve() {
	if s.runsOut() {
		s.reserved = s.written() + reserveBytes
		if spacious(s.f) {
			_ = unix.Fallocate(int(s.f.Fd()), unix.FALLOC_FL_KEEP_SIZE, s.written(), reserveBytes)
		}
	}
}

// spacious reports whether the file system of a segment has room for a hundred streams' reservations.
func spacious(f *os.File) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &fs) == nil && fs.Bavail >= 100*reserveBytes/uint64(fs.Bsize)
}

// runsOut reports whether the next write needs a reservation.
func (s *Segment) runsOut() bool {
	at := s.written()
	return at >= reserveBytes && at >= s.reserved
}

// unreserve gives back what was reserved and not used; should that fail, the next start does it.
func (s *Segment) unreserve() {
	if end := s.written(); s.reserved > end {
		_ = s.f.Truncate(end)
	}
	s.reserved = 0
}

// Void marks a block that is not kept, so that it does not come back when the catalog is made anew.
func (s *Segment) Void(offset int64) {
	_, _ = s.f.WriteAt([]byte{voidMark}, offset) // a block that cannot be marked is whole: no reader gets wrong bytes of it
}

// Sync makes everything that was flushed durable, and reports how fast the disk was. Bytes that the disk had begun to
// write before do not count: nobody knows how long they took.
func (v *Vault) Sync(s *Segment, disks diskio.Disks) error {
	written := s.Behind.BegunAt.Load()
	began := time.Now()
	info, err := s.f.Stat()
	if err == nil {
		err = v.Flush(s.f)
	}
	if err != nil {
		err = fmt.Errorf("sync segment %d in %s: %w", s.No, s.Dir, err)
		disks.Fault(s.Dir, err)
		v.Spoil(s, err)
	} else if last := s.synced.Swap(info.Size()); info.Size() > max(last, written) {
		disks.Flushed(s.Dir, info.Size()-max(last, written), time.Since(began))
	}
	return v.Fault(s)
}

func fdatasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// Fault returns what went wrong with a commit of the segment; nil: nothing did.
func (v *Vault) Fault(s *Segment) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return s.fault
}
