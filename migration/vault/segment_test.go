package vault

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/disks/fusedisk"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// A segment that cannot be opened a second time is written all the same, and the sync does all the work.
func TestSegmentIsWrittenWithoutWritingBehind(t *testing.T) {
	v := opened(t)
	s, err := v.Acquire(v.Dir)
	if err != nil {
		t.Fatal(err)
	}
	s.tap.Close()
	s.tap = nil
	for s.End < 2*diskio.WriteBehindBytes {
		if err := s.Append(make([]byte, wire.ChunkBytes)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.w.Flush(), v.Sync(s, diskio.NewWell(nil))); err != nil {
		t.Error(err)
	}
	v.Release(s, true)
}

// However a segment ends, no file of it stays open.
func TestSegmentThatEndsIsClosed(t *testing.T) {
	for name, end := range map[string]func(v *Vault, s *Segment){
		"it failed":               func(v *Vault, s *Segment) { v.Release(s, true) },
		"nothing in it is of use": func(v *Vault, s *Segment) { v.Release(s, false); v.retire(s.No) },
		"the agent stops":         func(v *Vault, s *Segment) { v.Release(s, false); v.Close() },
	} {
		v := opened(t)
		s, err := v.Acquire(v.Dir)
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
	v := opened(t)
	for kept, want := range map[int64]int64{0: -1, 100: 100} {
		s, err := v.Acquire(v.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Append(make([]byte, 300)), s.w.Flush()); err != nil {
			t.Fatal(err)
		}
		v.Keep(s, kept)
		v.Spoil(s, errors.New("the catalog could not be written"))
		v.Release(s, false)
		got := int64(-1)
		if info, err := os.Stat(SegmentFile(s.Dir, s.No)); err == nil {
			got = info.Size()
		}
		if got != want {
			t.Errorf("a segment of 300 bytes, %d of them receipted, has %d now, want %d", kept, got, want)
		}
	}
}

// Space that a growing segment has reserved is given back when nobody appends to it any more, and after a crash.
func TestSegmentGivesBackWhatItReserved(t *testing.T) {
	v := opened(t)
	const size = reserveBytes + 2*wire.ChunkBytes
	s, err := v.Acquire(v.Dir)
	if err != nil {
		t.Fatal(err)
	}
	space := func() int64 {
		var st unix.Stat_t
		if err := unix.Stat(SegmentFile(s.Dir, s.No), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	for s.End < size {
		if err := s.Append(make([]byte, wire.ChunkBytes)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.w.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := space(); got < 2*reserveBytes {
		t.Skipf("%d bytes are all that this file system reserves", got)
	}
	v.Release(s, false)
	if got := space(); got > size+reserveBytes/8 {
		t.Errorf("a segment of %d bytes that nobody appends to has %d of its disk", size, got)
	}

	put(t, v, "cache/-/x", size)
	if err := unix.Fallocate(int(s.f.Fd()), unix.FALLOC_FL_KEEP_SIZE, s.End, reserveBytes); err != nil {
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
	v := opened(t)
	s, err := v.Acquire(v.Dir)
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
	if err := v.Sync(s, diskio.NewWell(nil)); err == nil {
		t.Fatal("synced a pipe")
	}
	w.Close()
	s.f = f // the disk is well again, but the lost bytes stay lost
	if err := v.Sync(s, diskio.NewWell(nil)); err == nil {
		t.Error("a second sync makes good what the first one could not")
	}
	v.Release(s, false)
	if again, err := v.Acquire(v.Dir); err != nil || again == s {
		t.Errorf("the segment is in use again (%v)", err)
	}
}

// hangsAtClose is a file or directory on a FUSE file system that hangs when a file is closed.
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

// Closing a segment may hang, too. It holds up nobody who needs the vault.
func TestSegmentWhoseCloseHangsDoesNotHoldTheVault(t *testing.T) {
	root := &hangsAtClose{closing: make(chan struct{}, 1), thaw: make(chan struct{})}
	disk := fusedisk.New(t, func(tree *fs.LoopbackRoot) fs.InodeEmbedder { root.RootData = tree; return root })
	v := opened(t)
	s, err := v.Acquire(v.Dir)
	if err != nil {
		t.Fatal(err)
	}
	v.Release(s, false)
	f, err := os.Create(filepath.Join(disk, "x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.f.Close(); err != nil {
		t.Fatal(err)
	}
	s.f = f
	var retiring sync.WaitGroup
	retiring.Go(func() { v.retire(s.No) })
	<-root.closing
	if !v.mu.TryLock() {
		t.Error("the vault is held while a segment is closed on a disk that hangs")
	} else {
		v.mu.Unlock()
	}
	close(root.thaw)
	retiring.Wait()
}
