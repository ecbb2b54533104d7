package migration

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// evict has the kernel drop what it has of files in memory, from that byte of each on.
func evict(t *testing.T, from int64, files ...string) {
	t.Helper()
	each(t, files, func(f *os.File) {
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if diskio.DropCached(f, from, 1<<40); cachedBytes(t, f, 0) > from {
			t.Skipf("%s lies in memory only", f.Name())
		}
	})
}

// inMemory is how many bytes of the files the kernel has in memory, or has asked a disk for.
func inMemory(t *testing.T, files ...string) (bytes int64) {
	t.Helper()
	each(t, files, func(f *os.File) { bytes += cachedBytes(t, f, 0) })
	return bytes
}

func each(t *testing.T, files []string, do func(*os.File)) {
	t.Helper()
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		do(f)
	}
}

// cachedBytes is how many of a file's first most bytes are in memory; most 0: of all.
func cachedBytes(t *testing.T, f *os.File, most int) int64 {
	t.Helper()
	var has unix.Cachestat_t
	if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{Len: uint64(most)}, &has, 0); err != nil {
		t.Skipf("cachestat: %v", err) // before Linux 6.5
	}
	return int64(has.Cache) * int64(os.Getpagesize())
}

// Before a lane waits for a disk, it asks for the blocks that it will read soon, whether they were written here or landed in place.
func TestTheRestOfABatchIsFetchedWhileItsFirstIsWaitedFor(t *testing.T) {
	const size = 80 << 10 // four are a batch, and three fill the buffer
	t.Run("the node's own", func(t *testing.T) {
		a, want := newNode(t, "a", with(filesStore, "cache")), map[string][]byte{}
		for i := range 16 {
			id := fmt.Sprintf("cache/-/d/f-%02d", i)
			want[id] = contentOf(id, size)
			plainFile(t, a.File(id), want[id])
		}
		wantFetchedAhead(t, a, want)
	})
	t.Run("landed in place", func(t *testing.T) {
		a, want := packed(t, 16, size)
		a.receive(t)
		a.unpack()
		wantFetchedAhead(t, a, want)
	})
}

func wantFetchedAhead(t *testing.T, a *node, want map[string][]byte) {
	t.Helper()
	ahead := fetchedAhead(t, a, want)
	for tries := 0; tries < 10 && ahead <= laneBuffer; tries++ { // on a busy machine, what was asked for may have left before the test looks
		ahead = fetchedAhead(t, a, want)
	}
	if ahead <= laneBuffer {
		t.Errorf("at most %d bytes were in memory that had not left: no more than the lane's buffer has", ahead)
	}
}

// fetchedAhead sends a node's blocks, and returns the most bytes of its files that were in memory and had not left.
func fetchedAhead(t *testing.T, a *node, want map[string][]byte) (ahead int64) {
	t.Helper()
	c := newNode(t, "c")
	var files []string
	for id := range want {
		files = append(files, a.File(id))
	}
	evict(t, 0, files...)
	var mu sync.Mutex
	var gone int64
	tr := newTrip(t, a, c)
	tr.cfg.Connections, tr.cfg.Dir = 1, t.TempDir()
	tr.wrap = func(c net.Conn) net.Conn {
		return &tapped{c, func(n int) {
			mu.Lock()
			defer mu.Unlock()
			ahead = max(ahead, inMemory(t, files...)-gone)
			gone += int64(n)
		}}
	}
	sum, _ := tr.run(t.Context())
	if sum.Moved.Blocks != int64(len(files)) || sum.Lost.Blocks != 0 {
		t.Fatalf("of %d blocks %+v was moved and %+v lost", len(files), sum.Moved, sum.Lost)
	}
	for id, content := range want {
		if got := c.Content(t, id); !bytes.Equal(got, content) {
			t.Errorf("%s came with other bytes", id)
		}
	}
	return ahead
}

// After hours of work, a few files of a batch are not in memory, here and there. One gap is no reason to look at all files of the
// batch, which costs as much as to send it. A batch that is mostly gaps is asked for whole, and no file of it is looked at twice.
func TestABatchIsLookedThroughAsFarAsMemoryLacksIt(t *testing.T) {
	for _, c := range []struct {
		name  string
		gone  func(i int) bool
		asked []int // how many of the missing files the lane asks for, each time that it waits for a block
	}{
		{"all of it", func(int) bool { return true }, []int{99}},
		{"every fourth", func(i int) bool { return i%4 == 0 }, []int{24}},
		{"five of them", func(i int) bool { return i == 0 || i == 5 || i == 40 || i == 48 || i == 80 }, []int{1, 1, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, "a", with(filesStore, "cache"))
			s := n.Stores[0]
			var files, gone []string
			var whole []plan.Entry
			for i := range 100 {
				path := fmt.Sprintf("d/f-%02d", i)
				files = append(files, filepath.Join(s.Paths[0], path))
				plainFile(t, files[i], contentOf(path, 4<<10))
				b, err := s.Find(inventory.BlockID("cache/-/" + path))
				if err != nil {
					t.Fatal(err)
				}
				whole = append(whole, plan.Entry{Block: b})
			}
			for i, f := range files {
				if c.gone(i) {
					gone = append(gone, f)
				}
			}
			look := func() (asked []int) {
				evict(t, 0, gone...)
				l := &lane{lanes: &lanes{cargo: cargo{source: &source{stores: map[string]*inventory.Store{s.Name: s}}}}, fetched: fetched{dir: s.Paths[0]}, ahead: maxBatch}
				for i := range whole {
					if f := files[i]; inMemory(t, f) == 0 {
						each(t, []string{f}, func(f *os.File) { diskio.Prefetch(int(f.Fd()), 0, 4<<10) }) // as reading the file would
						before := inMemory(t, gone...)
						l.books.next = whole[i+1:]
						l.fetchAhead()
						asked = append(asked, int(inMemory(t, gone...)-before)/(4<<10))
					}
				}
				return asked
			}
			asked := look()
			for try := 0; !slices.Equal(asked, c.asked); asked = look() { // a fast disk sometimes answers before the kernel does
				if try++; try < 10 {
					continue
				}
				if evict(t, 0, gone...); !tells(t, gone) {
					t.Skip("this disk has answered before the kernel says that memory lacks what it has")
				}
				t.Fatalf("asked for %v ahead, want %v", asked, c.asked)
			}
		})
	}
}

// tells reports whether the kernel says of each file that it is not in memory. A newer kernel has the disk begin to read before it
// answers; if the disk is fast enough, the file is in memory by then.
func tells(t *testing.T, files []string) bool {
	t.Helper()
	all := true
	each(t, files, func(f *os.File) {
		_, err := unix.Preadv2(int(f.Fd()), [][]byte{make([]byte, 1)}, 0, unix.RWF_NOWAIT)
		all = all && err == unix.EAGAIN
	})
	return all
}

// tapped calls told before each write.
type tapped struct {
	net.Conn
	told func(n int)
}

func (c *tapped) Write(p []byte) (int, error) {
	c.told(len(p))
	return c.Conn.Write(p)
}

func TestAFileIsFetchedAheadOfItsReader(t *testing.T) {
	n := newNode(t, "a", with(filesStore, "cache"))
	s, size := n.Stores[0], int64(4<<20)
	want := contentOf("large", int(size))
	file := filepath.Join(n.Dir, "cache/large")
	plainFile(t, file, want)
	m, err := s.Member(0, "large", "large")
	if err != nil {
		t.Fatal(err)
	}
	read := func(cached int64) (short string) {
		if cached < size {
			evict(t, cached, file)
		}
		missed := 0
		reader := inventory.FileReader{Missed: func() { missed++ }}
		f, err := s.OpenBeneath(m)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got := make([]byte, size)
		for at := int64(0); at < size; at += wire.ChunkBytes {
			if err := reader.Fill(f, got[at:at+wire.ChunkBytes]); err != nil {
				t.Fatal(err)
			}
			if ahead, has := min(at+wire.ChunkBytes+diskio.Window, size), inMemory(t, file); missed > 0 && has < ahead && short == "" {
				short = fmt.Sprintf("when %d are read, %d have been asked for, want %d", at+wire.ChunkBytes, has, ahead)
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes were in memory: other bytes were read", cached)
		}
		if (missed > 0) != (cached < size) { // what was asked for earlier may have come only now
			short = fmt.Sprintf("%d misses", missed)
		}
		return short
	}
	for _, cached := range []int64{0, 8 << 10, wire.ChunkBytes + 4<<10, size} {
		short := read(cached)
		for tries := 0; tries < 10 && short != ""; tries++ { // where memory is short, the kernel may decline to read ahead
			short = read(cached)
		}
		if short != "" {
			t.Errorf("%d of %d bytes were in memory: %s", cached, size, short)
		}
	}
}

// Blocks in a segment lie in the order in which they leave. A drain that carries them on has the next ones fetched with the first.
func TestASegmentIsFetchedAheadOfADrain(t *testing.T) {
	const size, blocks = 40 << 10, 60
	a, b, c := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b"), newNode(t, "c")
	for i := range blocks {
		plainFile(t, filepath.Join(a.Dir, "cache/d", fmt.Sprintf("f-%02d", i)), contentOf(fmt.Sprint(i), size))
	}
	tr := newTrip(t, a, b)
	tr.cfg.Connections = 1
	tr.run(t.Context())
	segments, err := filepath.Glob(filepath.Join(b.Dir, "vault", "segments", "seg-*"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("segments %q, %v, want one", segments, err)
	}
	for _, ahead := range []int64{0, diskio.Window} {
		var has int64
		for tries := 0; tries < 10 && (tries == 0 || has < ahead); tries++ { // where memory is short, the kernel may decline to read ahead
			evict(t, 0, segments...)
			r, err := b.Vault.Catalog.Get("cache/-/d/f-00")
			if err != nil {
				t.Fatal(err)
			}
			f, err := b.Vault.OpenLanded(nil, r, 0, ahead)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
			has = inMemory(t, segments...)
			for late := time.Now().Add(time.Second); has < ahead && time.Now().Before(late); has = inMemory(t, segments...) {
				runtime.Gosched() // the disk has been asked, and has yet to answer
			}
		}
		if (has >= diskio.Window) != (ahead > 0) {
			t.Errorf("%d bytes ahead were to be fetched, and %d are in memory", ahead, has)
		}
	}
	evict(t, 0, segments...)
	if sum, _ := b.drain(t, t.Context(), c); sum.Moved.Blocks != blocks {
		t.Errorf("of %d blocks %+v was carried on", blocks, sum.Moved)
	}
	for i := range blocks {
		if got := c.Content(t, fmt.Sprintf("cache/-/d/f-%02d", i)); !bytes.Equal(got, contentOf(fmt.Sprint(i), size)) {
			t.Errorf("block %d came with other bytes", i)
		}
	}
}
