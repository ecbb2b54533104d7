package inventory

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// memberFile is a store's file that one goroutine reads once, from its beginning. For small blocks system calls are the
// whole cost: it makes four where an os.File from an os.Root makes eight (measured; docs/design/measured.md).
type memberFile struct {
	fd    int
	path  string // below the store's directory, for errors
	size  int64  // by the plan
	at    int64  // how far it was read
	asked int64  // up to where its disk was asked for it; 0: all so far was in memory
}

// OpenBeneath opens a member like Open, below the store's directory whatever symbolic links say, but in one call if the
// kernel has openat2 (Linux 5.6); if not, it calls Open. To carry a file is not to use it. So where this program may
// (open(2): its own files, or as root) the access time stays as it was: engines evict by it what nobody used, and to stamp
// a file that was not read before costs as much as reading 4 KiB (measured).
func (s *Store) OpenBeneath(m Member) (io.ReadCloser, error) {
	if err := s.Readable(s.Paths[m.Root]); err != nil {
		return nil, err
	}
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_LARGEFILE, Resolve: unix.RESOLVE_BENEATH}
	if !s.traced.Load() {
		how.Flags |= unix.O_NOATIME
	}
	fd, err := diskio.Retry(func() (int, error) { return unix.Openat2(int(s.DirFiles[m.Root].Fd()), m.Path, &how) })
	if err == unix.EPERM && how.Flags&unix.O_NOATIME != 0 {
		s.traced.Store(true)
		return s.OpenBeneath(m)
	}
	if err != nil {
		f, err := s.Open(m)
		if err != nil {
			return nil, err
		}
		return f, nil
	}
	return &memberFile{fd: fd, path: m.Path, size: m.Bytes}, nil
}

func (f *memberFile) Read(p []byte) (int, error) {
	n, err := diskio.Retry(func() (int, error) { return unix.Read(f.fd, p) })
	switch {
	case err != nil:
		return 0, &fs.PathError{Op: "read", Path: f.path, Err: err}
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	f.at += int64(n)
	return n, nil
}

// Seek serves a reader that begins behind the beginning.
func (f *memberFile) Seek(offset int64, whence int) (int64, error) {
	at, err := unix.Seek(f.fd, offset, whence)
	if err != nil {
		return 0, &fs.PathError{Op: "seek", Path: f.path, Err: err}
	}
	f.at = at
	return at, nil
}

func (f *memberFile) Close() error { return os.NewSyscallError("close", unix.Close(f.fd)) }

// is reports whether the file is still the version that a member was planned as.
func (f *memberFile) is(m Member) (bool, error) {
	var st unix.Stat_t
	if _, err := diskio.Retry(func() (int, error) { return 0, unix.Fstat(f.fd, &st) }); err != nil {
		return false, &fs.PathError{Op: "stat", Path: f.path, Err: err}
	}
	same := st.Size == m.Bytes && st.Mtim.Nano() == m.ModTime.UnixNano()
	switch {
	case !same || m.ChangeTime == 0 || m.ChangeTime == st.Ctim.Nano():
		return same, nil
	case st.Nlink == 0: // its name is another file's by now, or nobody's
		return false, nil
	}
	return true, ErrTouched
}

// openDirs opens the directories of a store for OpenBeneath.
func (s *Store) openDirs() error {
	for _, r := range s.Roots {
		f, err := r.OpenFile(".", os.O_RDONLY|syscall.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		s.DirFiles = append(s.DirFiles, f)
	}
	return nil
}

func (s *Store) closeDirs() error {
	var errs []error
	for _, f := range s.DirFiles {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

var (
	ErrChanged = errors.New("changed while it was being sent")
	// ErrTouched does not keep a file from being sent: its mode or its links changed, and its content did not.
	ErrTouched = errors.New("touched since it was planned")
)

// StillSame returns an error if a file is not what it was when it was planned. A copy of a file that changed while it
// was read would mix two contents.
func StillSame(r io.Reader, m Member) error {
	same := true // the vault's blocks do not change
	var err error
	switch f := r.(type) {
	case *memberFile:
		same, err = f.is(m)
	case *os.File:
		var info os.FileInfo
		if info, err = f.Stat(); err == nil {
			same = info.Size() == m.Bytes && info.ModTime().Equal(m.ModTime)
		}
	}
	if err == nil && !same {
		err = ErrChanged
	}
	return err
}
