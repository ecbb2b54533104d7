package migration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// What the disk has of a large block leaves the page cache while the rest comes. Small blocks stay: those that become files
// are read again at once. Either way they read back as they were.
func TestLargeBlocksLeaveThePageCache(t *testing.T) {
	const all = 4 * writeBehindBytes
	for _, size := range []int{all, packedBytes} {
		a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b", with(filesStore, "cache"))
		for i := range all / size {
			write(t, filepath.Join(a.dir, "cache", fmt.Sprint(i)), contentOf(fmt.Sprint(i), size))
		}
		trip := newTrip(t, a, b)
		trip.cfg.Connections = 1
		if sum, entries := trip.run(t.Context()); int(sum.Moved.Blocks) != all/size {
			t.Fatalf("got %+v, want %d blocks moved\n%v", sum, all/size, entries[:1])
		}
		switch cached := inPageCache(t, segmentFile(b.vault.dir, 1), writeBehindBytes); {
		case size > packedBytes && cached > 0.2:
			t.Errorf("%.0f %% of what the disk has of a block of %d bytes is in the page cache", 100*cached, size)
		case size <= packedBytes && cached < 0.5:
			t.Errorf("%.0f %% of what the disk has of blocks of %d bytes is in the page cache: they are needed again at once", 100*cached, size)
		}
		if got := b.content(t, "cache/-/0"); !bytes.Equal(got, contentOf("0", size)) {
			t.Errorf("a block of %d bytes came back with other bytes", size)
		}
	}
}

// A segment that cannot be opened a second time is written all the same, and its sync does it all.
func TestSegmentIsWrittenWithoutWritingBehind(t *testing.T) {
	n := newNode(t, "b")
	s, err := n.vault.acquire(n.vault.dir)
	if err != nil {
		t.Fatal(err)
	}
	s.tap.Close()
	s.tap = nil
	for s.end < 2*writeBehindBytes {
		if err := s.append(make([]byte, wire.ChunkBytes)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.w.Flush(), n.vault.sync(s, diskio.NewWell(nil))); err != nil {
		t.Error(err)
	}
	n.vault.release(s, true)
}

// Whichever way a segment ends, nothing of it stays open.
func TestSegmentThatEndsIsClosed(t *testing.T) {
	for name, end := range map[string]func(n *node, s *segment){
		"it failed":               func(n *node, s *segment) { n.vault.release(s, true) },
		"nothing in it is of use": func(n *node, s *segment) { n.vault.release(s, false); n.vault.retire(s.no) },
		"the agent stops":         func(n *node, s *segment) { n.vault.release(s, false); n.vault.Close() },
	} {
		n := newNode(t, "b")
		s, err := n.vault.acquire(n.vault.dir)
		if err != nil {
			t.Fatal(err)
		}
		if open := openFiles(t, s.f.Name()); open != 2 {
			t.Errorf("it is open %d times, want once to write and once to write behind", open)
		}
		if end(n, s); openFiles(t, s.f.Name()) != 0 {
			t.Errorf("%s: it is still open", name)
		}
	}
}

// openFiles counts how often this process has a file open.
func openFiles(t *testing.T, path string) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.TrimSuffix(to, " (deleted)") == path {
			n++
		}
	}
	return n
}

// inPageCache is how much of the beginning of a file the kernel has in memory: 1 is all.
func inPageCache(t *testing.T, file string, bytes int) float64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	look := func() float64 { return float64(cachedBytes(t, f, bytes)) / float64(bytes) }
	was := look()
	if dropCached(f, 0, int64(bytes)); look() > 0.2 {
		t.Skipf("%s lies in memory only", file)
	}
	return was
}
