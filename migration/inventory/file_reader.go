package inventory

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// FileReader reads small files of stores, one after the other. A scan meets a directory's files in a row, and so they leave: from
// the second on they are opened from their directory, which is a step less for the kernel and half a microsecond (measured).
// Nothing is kept for longer than its owner is busy: a directory may be moved out of the store.
type FileReader struct {
	store *Store
	root  int
	dir   string // of the last file, below that directory of the store's
	fd    int    // of it; 0: it is not open (0 is the standard input's: Go opens those three if nobody did)
	file  memberFile
	word  []byte // the name of the last file, and a NUL
	// Missed is called, if it is there, when bytes have to come from a disk, before they are waited for.
	Missed func()
}

// Read reads a member that is as long as p, and then looks whether the file still is what was planned: a copy of one that
// changed meanwhile would be a mixture of two contents. Whether the disk answers is asked when a directory is opened, and
// not for each file in it.
func (n *FileReader) Read(s *Store, m Member, p []byte) error {
	if !n.open(s, m) {
		return n.readAlone(s, m, p)
	}
	defer n.file.Close() // it was only read
	if err := n.Fill(&n.file, p); err != nil {
		return err
	}
	return StillSame(&n.file, m)
}

// readAlone is for files that lie alone, or are not what a FileReader takes them for.
func (n *FileReader) readAlone(s *Store, m Member, p []byte) error {
	f, err := s.OpenBeneath(m)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := n.Fill(f, p); err != nil {
		return err
	}
	return StillSame(f, m)
}

// open reports false if the file has to be looked for from the store's directory.
func (n *FileReader) open(s *Store, m Member) bool {
	at := strings.LastIndexByte(m.Path, '/')
	if at < 0 {
		return false
	}
	dir, name := m.Path[:at], m.Path[at+1:]
	if n.store != s || n.root != m.Root || n.dir != dir {
		n.Leave()
		n.store, n.root, n.dir = s, m.Root, dir
		return false
	}
	if n.fd == 0 && !n.enter() {
		return false
	}
	flags := unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_LARGEFILE
	if !s.traced.Load() {
		flags |= unix.O_NOATIME
	}
	n.word = append(append(n.word[:0], name...), 0)
	fd, err := openAt(n.fd, n.word, flags)
	if err != nil {
		n.Leave()
		return false
	}
	n.file = memberFile{fd: fd, path: m.Path, size: m.Bytes}
	return true
}

func (n *FileReader) enter() bool {
	if n.store.Readable(n.store.Paths[n.root]) != nil {
		return false
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH}
	fd, err := diskio.Retry(func() (int, error) { return unix.Openat2(int(n.store.DirFiles[n.root].Fd()), n.dir, &how) })
	if err == nil {
		n.fd = fd
	}
	return err == nil
}

// Leave keeps nothing open.
func (n *FileReader) Leave() {
	if n.fd != 0 {
		unix.Close(n.fd)
	}
	n.store, n.root, n.dir, n.fd = nil, 0, "", 0
}
