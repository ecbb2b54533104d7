package migration

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

// segmentBytes is the size at which a segment gets no further block. 256 MiB keeps their number small and lets space come
// back in useful pieces.
const segmentBytes = 256 << 20

// segment is open for appending.
type segment struct {
	no  uint32
	dir string
	in  []string // dir, for all the blocks that lie here
	f   *os.File
	tap *os.File // the same file, for writing behind; nil: there is none, and the sync does it all
	w   *pieces
	end int64 // of what was appended, flushed or not

	reserved int64 // the file system has blocks for it up to here, should it have been asked

	from string // where what is appended next comes from, as was said last; "": nobody said

	behind diskio.WriteBehind
	synced atomic.Int64 // how far a sync has told of it

	// Guarded by Vault.mu:
	users  int   // its writer, and each block whose commit is under way
	kept   int64 // how far the catalog knows of it
	closed bool  // takes no further block
	fault  error // of a commit. The kernel tells that a sync failed once, and forgets the bytes: nothing more is promised here
}

// acquire hands out a segment of that directory to append to.
func (v *TheVault) acquire(dir string) (*segment, error) {
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
	v.mu.Unlock() // what follows may take as long as the disk likes
	f, err := os.OpenFile(segmentFile(dir, no), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("new segment: %w", err)
	}
	if err := durable.SyncDir(filepath.Dir(f.Name())); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	s := &segment{no: no, dir: dir, in: []string{dir}, f: f, w: newPieces(inFile{f}, 0), users: 1}
	if tap, err := os.Open(f.Name()); err == nil {
		s.tap = tap
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.writing[no] = s
	return s, nil
}

// release takes a segment back from its writer, which has flushed it. A full one, or one that failed, takes no more.
func (v *TheVault) release(s *segment, failed bool) {
	if !failed {
		s.unreserve()
	}
	s.w.rest() // as many lie free as once were received at the same time
	v.mu.Lock()
	if failed || s.fault != nil || s.end >= segmentBytes {
		s.closed = true
	} else {
		d := v.placeOf(s.dir)
		d.free = append(d.free, s)
	}
	last := v.leave(s, 1)
	v.mu.Unlock()
	if last {
		s.close()
	}
}

// use and done bracket the commits of some blocks that will sync the segment.
func (v *TheVault) use(s *segment, blocks int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s.users += blocks
}

func (v *TheVault) done(s *segment, blocks int) {
	v.mu.Lock()
	last := v.leave(s, blocks)
	v.mu.Unlock()
	if last {
		s.close()
	}
}

// leave reports whether nobody uses the segment any more, nor will.
func (v *TheVault) leave(s *segment, users int) bool {
	s.users -= users
	if s.users > 0 || !s.closed {
		return false
	}
	delete(v.writing, s.no)
	return true
}

// close gives back the space of what was never receipted; should that fail, the next start does it.
func (s *segment) close() {
	switch {
	case s.kept == 0:
		os.Remove(s.f.Name())
	case max(s.end, s.reserved) > s.kept:
		_ = s.f.Truncate(s.kept)
	}
	_ = s.shut()
}

// shut closes the segment's files.
func (s *segment) shut() error {
	if s.tap != nil {
		s.tap.Close() // nothing is written by it
	}
	return s.f.Close()
}

// keep notes how far a segment was committed.
func (v *TheVault) keep(s *segment, end int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s.kept = max(s.kept, end)
}

// endOf is what the catalog is to know of a segment that is committed up to there.
func (v *TheVault) endOf(s *segment, at int64) catalog.End {
	v.mu.Lock()
	defer v.mu.Unlock()
	end := catalog.End{At: max(at, s.kept)}
	if s.dir != v.dir {
		end.Dir = s.dir
	}
	return end
}

// spoil has a segment take no more blocks. Its writer gives it back later, or has done so: then who commits it is the last.
func (v *TheVault) spoil(s *segment, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s.fault = cmp.Or(s.fault, err)
	if d := v.placeOf(s.dir); slices.Contains(d.free, s) {
		d.free = slices.DeleteFunc(d.free, func(other *segment) bool { return other == s })
		s.closed = true
	}
}

// cut forgets what was appended from offset on: a block that was not finished.
func (s *segment) cut(offset int64) error {
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
	s.end, s.reserved, s.from = offset, 0, "" // that may be cut off, too
	s.behind.Cut(offset)
	return nil
}

// forget gives the space back of what was appended from offset on. When the segment takes no more bytes, its file is cut at
// least; the next append tells.
func (s *segment) forget(offset int64) {
	if err := s.cut(offset); err != nil {
		_ = s.f.Truncate(offset)
	}
}

// holds reports whether an append of so many bytes stays in memory.
func (s *segment) holds(bytes int) bool { return bytes < s.w.room() && !s.runsOut() }

func (s *segment) append(raw []byte) error {
	n, err := s.w.Write(raw)
	s.end += int64(n)
	if err != nil {
		return err
	}
	s.reserve()
	return s.behind.Wrote(s.tap, s.written())
}

func (s *segment) written() int64 { return s.end - int64(s.w.Buffered()) }

// reserveBytes is for how much the blocks of the file system are asked for at once: as much as is written behind at once.
const reserveBytes = diskio.WriteBehindBytes

// reserve asks for the blocks that what is written next will lie in, once as much has been written. What ext4 does to every page
// that has no block yet is 0.06 CPU s/GiB, and a tenth of that where it has one (measured; docs/design/measured.md). Where it cannot be
// had nothing is lost: the write that needs it tells. Where little is left it would be room that another stream was granted.
func (s *segment) reserve() {
	if s.runsOut() {
		s.reserved = s.written() + reserveBytes
		if spacious(s.f) {
			_ = unix.Fallocate(int(s.f.Fd()), unix.FALLOC_FL_KEEP_SIZE, s.written(), reserveBytes)
		}
	}
}

// spacious reports whether a hundred streams may reserve ahead on the file system of a segment.
func spacious(f *os.File) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &fs) == nil && fs.Bavail >= 100*reserveBytes/uint64(fs.Bsize)
}

// runsOut reports whether what is written next needs a reservation.
func (s *segment) runsOut() bool {
	at := s.written()
	return at >= reserveBytes && at >= s.reserved
}

// unreserve gives back what was reserved and not used; should that fail, the next start does it.
func (s *segment) unreserve() {
	if end := s.written(); s.reserved > end {
		_ = s.f.Truncate(end)
	}
	s.reserved = 0
}

// void marks a block that is not kept, so that it does not come back should the catalog be lost.
func (s *segment) void(offset int64) {
	_, _ = s.f.WriteAt([]byte{voidMark}, offset) // what cannot be marked is whole: no reader gets wrong bytes of it
}

// sync makes everything that was flushed durable. What the disk had begun on before is not told as its speed: how long
// that took, nobody waited to see.
func (v *TheVault) sync(s *segment, disks diskio.Disks) error {
	written := s.behind.BegunAt.Load()
	began := time.Now()
	info, err := s.f.Stat()
	if err == nil {
		err = v.flush(s.f)
	}
	if err != nil {
		err = fmt.Errorf("sync segment %d in %s: %w", s.no, s.dir, err)
		disks.Fault(s.dir, err)
		v.spoil(s, err)
	} else if last := s.synced.Swap(info.Size()); info.Size() > max(last, written) {
		disks.Flushed(s.dir, info.Size()-max(last, written), time.Since(began))
	}
	return v.fault(s)
}

func fdatasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// fault is what went wrong with a commit of the segment; nil: nothing did.
func (v *TheVault) fault(s *segment) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return s.fault
}
