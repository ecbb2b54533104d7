package inventory

import (
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// subdirs are directories of a store's that are kept open while a scan looks for the files that belong together: each map output has two
// or three, in as many directories. From there a look is one system call and not five to seven.
type subdirs struct {
	s    *Store
	open map[subdir]*os.File
	word []byte // the name of the last file, and a NUL
}

type subdir struct {
	root int
	path string
}

// maxOpenSubdirs are those of an executor with 16 local directories. The agent's unit allows 65,536 files.
const maxOpenSubdirs = 16 * subDirectories

// to finds the directory of a file, and its name there. It returns false if the way there has to begin at the store's directory.
func (d *subdirs) to(root int, p string) (fd int, name string, ok bool) {
	at := strings.LastIndexByte(p, '/')
	if d == nil || at < 0 {
		return 0, p[at+1:], false
	}
	name = p[at+1:]
	f := d.open[subdir{root, p[:at]}]
	if f == nil {
		if len(d.open) == maxOpenSubdirs {
			return 0, name, false
		}
		var err error
		if f, err = d.s.Roots[root].OpenFile(p[:at], os.O_RDONLY|syscall.O_DIRECTORY, 0); err != nil {
			return 0, name, false // who goes there by himself is told
		}
		d.open[subdir{root, p[:at]}] = f
	}
	d.word = append(append(d.word[:0], name...), 0)
	return int(f.Fd()), name, true
}

// member describes a regular file; anything else is fs.ErrInvalid.
func (d *subdirs) member(s *Store, root int, p string) (Member, error) {
	fd, name, ok := d.to(root, p)
	if !ok {
		return s.Member(root, p, name)
	}
	f := seen{path: p}
	if err := statAt(fd, d.word, &f.stat); err != nil {
		return Member{}, &fs.PathError{Op: "stat", Path: p, Err: err}
	}
	f.regular = f.stat.Mode&unix.S_IFMT == unix.S_IFREG
	return f.member(root, name)
}

// openFile opens a regular file to read it.
func (d *subdirs) openFile(s *Store, root int, p string) (io.ReadCloser, error) {
	fd, _, ok := d.to(root, p)
	if !ok {
		return s.Roots[root].OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}
	fd, err := openAt(fd, d.word, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_LARGEFILE)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: p, Err: err}
	}
	return &memberFile{fd: fd, path: p}, nil
}

// makeRoom leaves those that are open for the directories of another executor, if there is none.
func (d *subdirs) makeRoom() {
	if len(d.open) == maxOpenSubdirs {
		d.close()
	}
}

func (d *subdirs) close() {
	for at, f := range d.open {
		f.Close() // it was only read
		delete(d.open, at)
	}
}
