package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/disks/fusedisk"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

func openedVault(t testing.TB) *TheVault {
	t.Helper()
	v, err := OpenVault(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	return v
}

// reopened is what the next start finds.
func reopened(t testing.TB, v *TheVault) *TheVault {
	t.Helper()
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := OpenVault(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	return again
}

func contentFor(id string, size int) []byte { return bytes.Repeat([]byte(id), size/len(id)+1)[:size] }

// frames are a block as it comes over the wire, and its record but for where it lies.
func framesFor(id string, size int) ([]byte, catalog.Record) {
	o := wire.Opening{ID: id, Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []wire.MemberSize{{Name: inventory.BlockID(id).Name(), Bytes: int64(size)}}}
	b, sum := wire.AppendFrame(nil, wire.FrameOpen, 1, o.Append(nil)), wire.NewSummer()
	opening := len(b)
	sum.Member(int64(size))
	for c := range slices.Chunk(contentFor(id, size), wire.ChunkBytes) {
		b = wire.AppendFrame(b, wire.FrameData, 1, c)
		sum.Chunk(crc32.Checksum(c, wire.Castagnoli))
	}
	total := sum.Total()
	b = wire.AppendFrame(b, wire.FrameClose, 1, total[:])
	return b, catalog.Record{Opening: o, From: "a", Landed: time.Now(), Sum: total, OpenLen: int64(opening), Length: int64(len(b))}
}

// put has a block land in the vault's first directory.
func putBlock(t testing.TB, v *TheVault, id string, size int) {
	t.Helper()
	b, r := framesFor(id, size)
	s, err := v.acquire(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	r.Segment, r.Offset = s.no, s.end
	if err := errors.Join(s.append(b), s.w.Flush(), v.sync(s, diskio.NewWell(nil))); err != nil {
		t.Fatal(err)
	}
	if _, err := v.catalog.Commit([]catalog.Change{{Record: &r}}, map[uint32]catalog.End{s.no: v.endOf(s, s.end)}, nil); err != nil {
		t.Fatal(err)
	}
	v.keep(s, s.end)
	v.release(s, false)
}

// wantWhole reads back what was put.
func wantWhole(t testing.TB, v *TheVault, id string, size int) {
	t.Helper()
	r, err := v.catalog.Get(inventory.BlockID(id))
	if err != nil {
		t.Fatal(err)
	}
	c, err := v.reader(r, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, contentFor(id, size)) {
		t.Errorf("%s does not read as what came: %v", id, err)
	}
}

// A segment that cannot be opened a second time is written all the same, and its sync does it all.
func TestSegmentIsWrittenWithoutWritingBehind(t *testing.T) {
	v := openedVault(t)
	s, err := v.acquire(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	s.tap.Close()
	s.tap = nil
	for s.end < 2*diskio.WriteBehindBytes {
		if err := s.append(make([]byte, wire.ChunkBytes)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.w.Flush(), v.sync(s, diskio.NewWell(nil))); err != nil {
		t.Error(err)
	}
	v.release(s, true)
}

// Whichever way a segment ends, nothing of it stays open.
func TestSegmentThatEndsIsClosed(t *testing.T) {
	for name, end := range map[string]func(v *TheVault, s *segment){
		"it failed":               func(v *TheVault, s *segment) { v.release(s, true) },
		"nothing in it is of use": func(v *TheVault, s *segment) { v.release(s, false); v.retire(s.no) },
		"the agent stops":         func(v *TheVault, s *segment) { v.release(s, false); v.Close() },
	} {
		v := openedVault(t)
		s, err := v.acquire(v.dir)
		if err != nil {
			t.Fatal(err)
		}
		if open := openFiles(t, s.f.Name()); open != 2 {
			t.Errorf("it is open %d times, want once to write and once to write behind", open)
		}
		if end(v, s); openFiles(t, s.f.Name()) != 0 {
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

func TestSegmentGivesBackWhatWasNeverReceipted(t *testing.T) {
	v := openedVault(t)
	for kept, want := range map[int64]int64{0: -1, 100: 100} {
		s, err := v.acquire(v.dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.append(make([]byte, 300)), s.w.Flush()); err != nil {
			t.Fatal(err)
		}
		v.keep(s, kept)
		v.spoil(s, errors.New("the catalog could not be written"))
		v.release(s, false)
		got := int64(-1)
		if info, err := os.Stat(segmentFile(s.dir, s.no)); err == nil {
			got = info.Size()
		}
		if got != want {
			t.Errorf("a segment of 300 bytes, %d of them receipted, has %d now, want %d", kept, got, want)
		}
	}
}

// What a growing segment has reserved of its disk it has no longer when nobody appends to it, nor after a crash.
func TestSegmentGivesBackWhatItReserved(t *testing.T) {
	v := openedVault(t)
	const size = reserveBytes + 2*wire.ChunkBytes
	s, err := v.acquire(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	space := func() int64 {
		var st unix.Stat_t
		if err := unix.Stat(segmentFile(s.dir, s.no), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	for s.end < size {
		if err := s.append(make([]byte, wire.ChunkBytes)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.w.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := space(); got < 2*reserveBytes {
		t.Skipf("%d bytes are all that this file system reserves", got)
	}
	v.release(s, false)
	if got := space(); got > size+reserveBytes/8 {
		t.Errorf("a segment of %d bytes that nobody appends to has %d of its disk", size, got)
	}

	putBlock(t, v, "cache/-/x", size)
	if err := unix.Fallocate(int(s.f.Fd()), unix.FALLOC_FL_KEEP_SIZE, s.end, reserveBytes); err != nil {
		t.Fatal(err)
	}
	before := space()
	v = reopened(t, v)
	if got := space(); got > before-reserveBytes {
		t.Errorf("after a start the segments have %d bytes of their disk, before %d, of which %d were reserved", got, before, reserveBytes)
	}
	wantWhole(t, v, "cache/-/x", size)
}

func TestSegmentThatFailedToSyncTakesNoMore(t *testing.T) {
	v := openedVault(t)
	s, err := v.acquire(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	f := s.f
	r, w, err := os.Pipe() // fdatasync of a pipe is EINVAL
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s.f = w
	if err := v.sync(s, diskio.NewWell(nil)); err == nil {
		t.Fatal("synced a pipe")
	}
	w.Close()
	s.f = f // the disk is well again, and what it lost is lost
	if err := v.sync(s, diskio.NewWell(nil)); err == nil {
		t.Error("a second sync makes good what the first one could not")
	}
	v.release(s, false)
	if again, err := v.acquire(v.dir); err != nil || again == s {
		t.Errorf("the segment is in use again (%v)", err)
	}
}

// While the files of a block are being named nobody removes them, and the other way round.
func TestNamingAndRemovalTakeTurns(t *testing.T) {
	v := openedVault(t)
	first, second := v.claimNaming("x"), v.claimNaming("x")
	if !first || !second || v.claimRemoval("x") {
		t.Error("two may name it, and nobody remove it meanwhile")
	}
	v.moved("x")
	if v.claimRemoval("x") {
		t.Error("one names it still")
	}
	v.moved("x")
	if !v.claimRemoval("x") || v.claimNaming("x") || v.claimRemoval("x") {
		t.Error("it is being removed, by one")
	}
	v.moved("x")
	if !v.claimNaming("x") {
		t.Error("nobody has it")
	}
}

// Segments are bytes on a disk: whatever they are, reading them ends, and finds no block whose bytes are not its own.
func FuzzSalvage(f *testing.F) {
	x, _ := framesFor("cache/-/x", 300)
	h := wire.AppendFrame(nil, wire.FrameHello, 0, wire.Hello{Node: "a"}.Append(nil))
	f.Add(append(bytes.Clone(h), x...))
	f.Add(append(append(bytes.Clone(x), make([]byte, 50)...), x...))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := filepath.Join(t.TempDir(), "seg")
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := salvage(p, 1, func(r catalog.Record) error {
			if r.Offset < 0 || r.Offset+r.Length > int64(len(b)) || !bytes.Contains(b[r.Offset:r.Offset+r.OpenLen], []byte(r.ID)) {
				t.Errorf("found %+v", r)
			}
			return nil
		}, func(Held) {})
		if err != nil || s.end > int64(len(b)) {
			t.Errorf("ends at %d of %d: %v", s.end, len(b), err)
		}
	})
}

// Who carries blocks on keeps the segments of the last few open, and says so: what is free of them is not given to others meanwhile.
func TestFewSegmentsAreOpenAtOnce(t *testing.T) {
	v := openedVault(t)
	var near segmentReader
	for i := range mostOpen + 2 {
		id := fmt.Sprintf("cache/-/x%d", i)
		putBlock(t, v, id, 100)
		full, kept := v.acquire(v.dir) // the next comes to another
		b, err := v.find(inventory.BlockID(id))
		if err := errors.Join(kept, err); err != nil {
			t.Fatal(err)
		}
		defer v.release(full, false)
		got := make([]byte, 100)
		if is, err := near.read(v, b, 0, got); !is || err != nil || !bytes.Equal(got, contentFor(id, 100)) {
			t.Errorf("%s: got %v, %v, %d bytes", id, is, err, len(got))
		}
		if open := len(v.reading); open != min(i+1, mostOpen) || open != len(near.open) {
			t.Errorf("after %d blocks, of a segment each, %d are said to be read and %d are open, want as many and at most %d", i+1, open, len(near.open), mostOpen)
		}
	}
	if near.leave(); len(v.reading) != 0 {
		t.Errorf("%v are said to be read, and nobody does", v.reading)
	}
}

// hangsAtClose is a file or a directory on a file system that hangs where a file is closed.
type hangsAtClose struct {
	fs.LoopbackNode
	closing chan struct{}
	thaw    chan struct{}
}

func (n *hangsAtClose) WrapChild(context.Context, fs.InodeEmbedder) fs.InodeEmbedder {
	return &hangsAtClose{fs.LoopbackNode{RootData: n.RootData}, n.closing, n.thaw}
}

func (n *hangsAtClose) Flush(context.Context, fs.FileHandle) syscall.Errno {
	select {
	case n.closing <- struct{}{}:
	default:
	}
	<-n.thaw
	return 0
}

// To close a segment may hang, too. Nobody waits for it who needs the vault.
func TestSegmentWhoseCloseHangsDoesNotHoldTheVault(t *testing.T) {
	root := &hangsAtClose{closing: make(chan struct{}, 1), thaw: make(chan struct{})}
	disk := fusedisk.New(t, func(tree *fs.LoopbackRoot) fs.InodeEmbedder { root.RootData = tree; return root })
	v := openedVault(t)
	s, err := v.acquire(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	v.release(s, false)
	f, err := os.Create(filepath.Join(disk, "x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.f.Close(); err != nil {
		t.Fatal(err)
	}
	s.f = f
	var retiring sync.WaitGroup
	retiring.Go(func() { v.retire(s.no) })
	<-root.closing
	if !v.mu.TryLock() {
		t.Error("the vault is held while a segment is closed on a disk that hangs")
	} else {
		v.mu.Unlock()
	}
	close(root.thaw)
	retiring.Wait()
}

// A segment is no stray in a directory that is another one's by a link.
func TestSegmentOfADirectoryOfTwoNamesIsNoStray(t *testing.T) {
	v := openedVault(t)
	putBlock(t, v, "cache/-/x", 1000)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(v.dir, link); err != nil {
		t.Fatal(err)
	}
	if err := v.removeStray(1, link); err != nil {
		t.Error(err)
	}
	wantWhole(t, v, "cache/-/x", 1000)
}
