package durable

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Ballast is room on a disk for what must be written when the disk is full: a file of real blocks that is given up for it. A
// nil Ballast is none.
type Ballast struct{ path string }

// NewBallast is the ballast that is, or will be, the file at path.
func NewBallast(path string) *Ballast { return &Ballast{path} }

const (
	// spareTimes is how often a disk must have the room of a ballast: it is for the worst, and must not be what brings it.
	spareTimes = 16
	// leastBallast is not worth a file.
	leastBallast = 16 << 10
)

// Keep makes the ballast that large, or as large as a disk that is nearly full can spare. It leaves one that is there and at
// least half as large: whoever it is for comes with some more as well.
func (b *Ballast) Keep(bytes int64) (err error) {
	has := b.Bytes()
	if has >= bytes/2 {
		return nil
	}
	if bytes, err = b.spare(bytes); err != nil || bytes <= has {
		return err
	}
	f, err := os.OpenFile(b.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	err = eintr(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, bytes) })
	if err != nil {
		err = &os.PathError{Op: "fallocate", Path: b.path, Err: err}
	}
	if err = errors.Join(err, f.Close()); err != nil && has == 0 {
		return errors.Join(err, os.Remove(b.path))
	}
	return err
}

// spare is how much of that the disk can spare.
func (b *Ballast) spare(bytes int64) (int64, error) {
	f, err := os.OpenFile(b.path, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close() // it was only asked
	var st unix.Statfs_t
	if err := eintr(func() error { return unix.Fstatfs(int(f.Fd()), &st) }); err != nil {
		return 0, fmt.Errorf("ask for the room on the disk of %s: %w", b.path, err)
	}
	if bytes = min(bytes, int64(st.Bavail)*st.Bsize/spareTimes); bytes < leastBallast {
		return 0, nil
	}
	return bytes, nil
}

// Bytes is how large it is, 0 where there is none. A hole is none: copied from another disk, the file may be one.
func (b *Ballast) Bytes() int64 {
	if b == nil {
		return 0
	}
	var st unix.Stat_t
	if err := eintr(func() error { return unix.Stat(b.path, &st) }); err != nil {
		return 0
	}
	return min(st.Size, st.Blocks*512) // stat(2): in units of that size
}

// Free gives it up, and reports whether there was any. What its room is for is written at once: others write there too.
func (b *Ballast) Free() bool { return b.Bytes() > 0 && os.Remove(b.path) == nil }

// Full reports whether an error says that there is no room, on the disk or for this user of it.
func Full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Claim gives an open file room for that many bytes after its end, without making it longer. Where a file system cannot say
// so beforehand there is none, and no error.
func Claim(f *os.File, bytes int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	err = eintr(func() error {
		return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, info.Size(), bytes)
	})
	if err == nil || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return &os.PathError{Op: "fallocate", Path: f.Name(), Err: err}
}

func eintr(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
