package migration

import (
	"io"

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
	// missWorth is how many files are looked at ahead for one that memory lacks. To look at one that it has takes 5 us, and a disk 0.1 to 1 ms
	// for one that it lacks, of which other lanes use the most.
	missWorth = 8
)

// fill reads the next bytes of a file. Before it waits for any, it has the disk asked for others, too.
func (n *near) fill(r io.Reader, p []byte) error {
	f, ok := r.(*memberFile)
	if !ok { // what follows in a segment is asked for with it
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

// fetchMissing does that for the bytes of a file that begin there, unless memory has the first of them, and reports whether it had
// to. 0 bytes: for none.
func fetchMissing(fd int, at, bytes int64) bool {
	if bytes == 0 {
		return false
	}
	first := [][]byte{make([]byte, 1)}
	if _, err := again(func() (int, error) { return unix.Preadv2(fd, first, at, unix.RWF_NOWAIT) }); err != unix.EAGAIN {
		return false
	}
	fetch(fd, at, at+bytes)
	return true
}

// fetchMissing does that for a small file. It waits for its inode, and those of files side by side come together.
func (n *near) fetchMissing(s *Store, m Member) bool {
	if n.open(s, m) {
		defer n.file.Close()
		return fetchMissing(n.file.fd, 0, n.file.size)
	}
	alone, err := s.openBeneath(m)
	if err != nil {
		return false
	}
	defer alone.Close()
	f, ok := alone.(*memberFile)
	return ok && fetchMissing(f.fd, 0, f.size)
}

// fetchAhead does that for what follows in the batch, as far as it lies on the disk that the lane is about to wait for, and while a
// fair part of it is missing: in a node's memory gaps lie scattered, and to look at a file costs as much as to send it. What it has
// looked at it leaves alone when the next block is missing.
func (l *lane) fetchAhead() {
	l.cold = true
	l.mu.Lock()
	rest := l.next
	l.mu.Unlock()
	rest = rest[max(0, len(rest)-l.ahead):]
	var scout near
	defer scout.leave()
	for looks := missWorth; len(rest) > 0 && looks > 0; rest = rest[1:] {
		e := rest[0]
		for i, m := range e.Members {
			if m.root != inVault && m.Bytes > 0 && m.Bytes <= ChunkBytes && *l.d.dirOf(e.Block, i) == l.fetched.dir {
				looks--
				if scout.fetchMissing(l.d.stores[e.ID.Store()], m) {
					looks += missWorth
				}
			}
		}
	}
	l.ahead = len(rest)
}
