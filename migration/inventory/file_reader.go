package inventory

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// FileReader reads small files of stores one after the other. A scan meets a directory's files in a row, and they leave in a row.
// From the second one on it opens them from their directory, which saves the kernel a step and half a microsecond (measured). It
// keeps the directory open only while its owner is busy: a directory may be moved out of the store.
type FileReader struct {
	store *Store
	root  int
	dir   string // of the last file, below the store's directory
	fd    int    // of that directory; 0: not open (0 is the standard input: Go opens that at the start if nobody did)
	file  memberFile
	word  []byte // the name of the last file, and a NUL
	// Missed is called before Fill waits for bytes from a disk. It may be nil.
	Missed func()
}

// Read reads a member that is as long as p, and then checks that the file is still what was planned: a copy of a file
// that changed meanwhile would mix two contents. It asks whether the disk answers when it opens a directory, and not for
// each file in it.
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

// readAlone reads a file from the store's directory.
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

// open opens a member from its directory. It reports false if the file has to be opened from the store's directory.
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

// Leave closes the directory.
func (n *FileReader) Leave() {
	if n.fd != 0 {
		unix.Close(n.fd)
	}
	n.store, n.root, n.dir, n.fd = nil, 0, "", 0
}
