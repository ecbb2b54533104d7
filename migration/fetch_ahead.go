package migration

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// What memory does not have is waited for: 0.1 ms where the disk is the machine's own, a millisecond where it is behind a
// network. To wait for one block at a time gets a fraction of what such disks do side by side. So whoever is about to wait
// first asks the disk for what will be read next: the rest of the lane's batch, or what follows in a large file. The kernel
// puts that into the page cache, and nobody waits for it. Where memory has everything, all this is one flag of the call
// that reads.

const (
	// fetchWindow is how much of a large file, or of a segment, a disk is asked for ahead: what two lanes send at 2 GiB/s in a millisecond.
	fetchWindow = 1 << 20
	// fetchStep is asked for at once, for the kernel ignores what is more than the device's read-ahead: 128 KiB if nobody has set it
	// (linux/mm.h, VM_READAHEAD_PAGES).
	fetchStep = 128 << 10
)

// fill reads the next bytes of a file. Before it waits for any, it has the disk asked for others, too.
func (n *near) fill(r io.Reader, p []byte) error {
	f, ok := r.(*memberFile)
	if !ok {
		return readFull(r, p)
	}
	got, miss := f.cached(p)
	if p = p[got:]; miss || f.asked > 0 {
		f.fetch(f.at + int64(len(p)) + fetchWindow)
	}
	if miss && n.missed != nil {
		n.missed()
	}
	if len(p) == 0 {
		return nil
	}
	return readFull(r, p)
}

// cached reads what memory has of the next bytes, and reports whether there is more, which a disk has. Where the file system
// cannot tell (preadv2(2), EOPNOTSUPP) it reads nothing.
func (f *memberFile) cached(p []byte) (n int, miss bool) {
	n, err := again(func() (int, error) { return unix.Preadv2(f.fd, [][]byte{p}, -1, unix.RWF_NOWAIT) })
	if err != nil {
		return 0, err == unix.EAGAIN
	}
	f.at += int64(n)
	return n, 0 < n && n < len(p)
}

// fetch has the disk begin to read the file into memory, as far as end. Errors are met by who reads it.
func (f *memberFile) fetch(end int64) {
	f.asked = fetch(f.fd, max(f.asked, f.at), min(end, f.size))
}

func fetch(fd int, at, end int64) (asked int64) {
	for ; at < end; at += fetchStep {
		unix.Fadvise(fd, at, fetchStep, unix.FADV_WILLNEED)
	}
	return at
}

// fetchMissing does that for the bytes of a file that begin there, unless memory has the first of them. 0 bytes: for none.
func fetchMissing(f *os.File, at, bytes int64) {
	if bytes == 0 {
		return
	}
	fd, first := int(f.Fd()), [][]byte{make([]byte, 1)}
	if _, err := again(func() (int, error) { return unix.Preadv2(fd, first, at, unix.RWF_NOWAIT) }); err == unix.EAGAIN {
		fetch(fd, at, at+bytes)
	}
}

// fetch does that for a small file. It waits for its inode, and those of files side by side come together.
func (n *near) fetch(s *Store, m Member) {
	if n.open(s, m) {
		n.file.fetch(n.file.size)
		n.file.Close()
		return
	}
	alone, err := s.openBeneath(m)
	if err != nil {
		return
	}
	defer alone.Close()
	if f, ok := alone.(*memberFile); ok {
		f.fetch(f.size)
	}
}

// fetchAhead does that for the rest of the batch, as far as it lies on the disk that the lane is about to wait for.
func (l *lane) fetchAhead() {
	if l.cold {
		return // once a batch is enough
	}
	l.cold = true
	l.mu.Lock()
	rest := l.next
	l.mu.Unlock()
	var scout near
	defer scout.leave()
	for _, e := range rest {
		for i, m := range e.Members {
			if m.root != inVault && m.Bytes > 0 && m.Bytes <= ChunkBytes && *l.d.dirOf(e.Block, i) == l.fetched.dir {
				scout.fetch(l.d.stores[e.ID.Store()], m)
			}
		}
	}
}
