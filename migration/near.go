package migration

import (
	"strings"

	"golang.org/x/sys/unix"
)

// near reads small files of stores, one after the other. A scan meets a directory's files in a row, and so they leave: from
// the second on they are opened from their directory, which is a step less for the kernel and half a microsecond (measured).
// Nothing is kept for longer than its owner is busy: a directory may be moved out of the store.
type near struct {
	store *Store
	root  int
	dir   string // of the last file, below that directory of the store's
	fd    int    // of it; 0: it is not open (0 is the standard input's: Go opens those three if nobody did)
	file  memberFile
	word  []byte // the name of the last file, and a NUL
	// segments are of the vault, where what landed lies.
	segments nearSegments
	// missed is called, if it is there, when bytes have to come from a disk, before they are waited for.
	missed func()
}

// read reads a member that is as long as p, and then looks whether the file still is what was planned: a copy of one that
// changed meanwhile would be a mixture of two contents. Whether the disk answers is asked when a directory is opened, and
// not for each file in it.
func (n *near) read(s *Store, m Member, p []byte) error {
	if !n.open(s, m) {
		return n.readAlone(s, m, p)
	}
	defer n.file.Close() // it was only read
	if err := n.fill(&n.file, p); err != nil {
		return err
	}
	return stillSame(&n.file, m)
}

// readAlone is for files that lie alone, or are not what near takes them for.
func (n *near) readAlone(s *Store, m Member, p []byte) error {
	f, err := s.openBeneath(m)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := n.fill(f, p); err != nil {
		return err
	}
	return stillSame(f, m)
}

// open reports false if the file has to be looked for from the store's directory.
func (n *near) open(s *Store, m Member) bool {
	at := strings.LastIndexByte(m.path, '/')
	if at < 0 {
		return false
	}
	dir, name := m.path[:at], m.path[at+1:]
	if n.store != s || n.root != m.root || n.dir != dir {
		n.leaveDir()
		n.store, n.root, n.dir = s, m.root, dir
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
		n.leaveDir()
		return false
	}
	n.file = memberFile{fd: fd, path: m.path, size: m.Bytes}
	return true
}

func (n *near) enter() bool {
	if n.store.readable(n.store.Paths[n.root]) != nil {
		return false
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH}
	fd, err := again(func() (int, error) { return unix.Openat2(int(n.store.dirs[n.root].Fd()), n.dir, &how) })
	if err == nil {
		n.fd = fd
	}
	return err == nil
}

// leave keeps nothing open.
func (n *near) leave() {
	n.leaveDir()
	n.segments.leave()
}

func (n *near) leaveDir() {
	if n.fd != 0 {
		unix.Close(n.fd)
	}
	n.store, n.root, n.dir, n.fd = nil, 0, "", 0
}
