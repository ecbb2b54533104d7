package inventory

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// Fill reads the next bytes of a file. Before it waits for a disk, it asks the disk for the bytes behind them, too.
func (n *FileReader) Fill(r io.Reader, p []byte) error {
	f, ok := r.(*memberFile)
	if !ok { // a block's reader in the vault prefetches by itself
		return readFull(r, p)
	}
	got, miss := f.cached(p)
	if p = p[got:]; miss || f.asked > 0 {
		f.fetch(f.at + int64(len(p)) + diskio.Window)
	}
	if miss && n.Missed != nil {
		n.Missed()
	}
	if len(p) == 0 {
		return nil
	}
	return readFull(r, p)
}

// cached reads the next bytes that are in memory, and reports whether others have to come from a disk. If the file system
// cannot tell (preadv2(2), EOPNOTSUPP) it reads nothing.
func (f *memberFile) cached(p []byte) (n int, miss bool) {
	n, err := diskio.Retry(func() (int, error) { return unix.Preadv2(f.fd, [][]byte{p}, -1, unix.RWF_NOWAIT) })
	if err != nil {
		return 0, err == unix.EAGAIN
	}
	f.at += int64(n)
	return n, 0 < n && n < len(p)
}

// fetch has the disk begin to read the file into memory, as far as end. Errors show when the bytes are read.
func (f *memberFile) fetch(end int64) {
	f.asked = diskio.Prefetch(f.fd, max(f.asked, f.at), min(end, f.size))
}

// FetchMissing has a small file's disk begin to read it, if it is not in memory. It waits for the file's inode; inodes
// of files in one directory come from the disk together.
func (n *FileReader) FetchMissing(s *Store, m Member) bool {
	if n.open(s, m) {
		defer n.file.Close()
		return diskio.PrefetchMissing(n.file.fd, 0, n.file.size)
	}
	alone, err := s.OpenBeneath(m)
	if err != nil {
		return false
	}
	defer alone.Close()
	f, ok := alone.(*memberFile)
	return ok && diskio.PrefetchMissing(f.fd, 0, f.size)
}

// readFull reads bytes that the file must have by its planned size.
func readFull(r io.Reader, p []byte) error {
	_, err := io.ReadFull(r, p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrChanged
	}
	return err
}
