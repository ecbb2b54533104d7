package durable

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Ballast is room kept on a disk for what must be written even when the disk is full: a file of allocated blocks, which Free
// removes. A nil Ballast keeps none.
type Ballast struct{ path string }

// NewBallast returns the ballast whose file is path. It makes none: Keep does.
func NewBallast(path string) *Ballast { return &Ballast{path} }

const (
	// spareTimes is how many times a ballast's size must be free on its disk: it is for a full disk, and must not be what fills it.
	spareTimes = 16
	// leastBallast is the smallest ballast: less is not worth a file.
	leastBallast = 16 << 10
)

// Keep makes a ballast of so many bytes, or as many as a disk that is nearly full can spare. One that has at least half of them
// stays as it is: those who use it have some room besides.
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

// spare returns how many of so many bytes the disk can spare; 0: too few for a ballast.
func (b *Ballast) spare(bytes int64) (int64, error) {
	f, err := os.OpenFile(b.path, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close() // nothing was written to it
	var st unix.Statfs_t
	if err := eintr(func() error { return unix.Fstatfs(int(f.Fd()), &st) }); err != nil {
		return 0, fmt.Errorf("ask for the room on the disk of %s: %w", b.path, err)
	}
	if bytes = min(bytes, int64(st.Bavail)*st.Bsize/spareTimes); bytes < leastBallast {
		return 0, nil
	}
	return bytes, nil
}

// Bytes returns how much room the ballast takes, 0 where there is none. Holes do not count: a file that was copied from another
// disk may have become one.
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

// Free removes the ballast, and reports whether there was one. Its caller writes at once: others write to that disk too.
func (b *Ballast) Free() bool { return b.Bytes() > 0 && os.Remove(b.path) == nil }

// Full reports whether an error says that the disk is full, or this user's quota on it.
func Full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Claim reserves room for that many bytes after the end of an open file, without making it longer. A file system that cannot
// reserve any leaves the file as it was, without an error.
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
