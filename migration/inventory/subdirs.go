package inventory

import (
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// subdirs keeps directories of a store open while a scan looks for the files that belong together: a map output has two or three, in as
// many directories. In an open directory a look is one system call instead of five to seven.
type subdirs struct {
	s    *Store
	open map[subdir]*os.File
	word []byte // the name of the last file, and a NUL
}

type subdir struct {
	root int
	path string
}

// maxOpenSubdirs is what an executor with 16 local directories has. The agent's unit allows 65,536 open files.
const maxOpenSubdirs = 16 * subDirectories

// to returns the open directory of a file, and the file's name in it. It returns false if the file has to be looked for from the
// store's directory.
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
			return 0, name, false // the look from the store's directory returns the error
		}
		d.open[subdir{root, p[:at]}] = f
	}
	d.word = append(append(d.word[:0], name...), 0)
	return int(f.Fd()), name, true
}

// member describes a regular file. It returns fs.ErrInvalid for anything else.
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

// makeRoom closes all directories if no more may be open, to make room for those of another executor.
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
