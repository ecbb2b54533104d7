package vault

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A terabyte of segments takes hours to read for a new catalog, and an agent that has not started by then is killed and begins again. The
// segment here is a pipe that nobody writes to.
func TestOpenDoesNotWaitForALongSalvage(t *testing.T) {
	t.Parallel() // it takes OpenPatience
	dir, more := t.TempDir(), t.TempDir()
	segment := SegmentFile(dir, 7)
	err := errors.Join(os.Mkdir(filepath.Dir(segment), 0o700), os.Mkdir(filepath.Join(more, "segments"), 0o700), unix.Mkfifo(segment, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	v, err := Open(dir, more)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if away := v.Away(); away[dir] == nil || away[more] == nil || len(v.Usable()) > 0 {
		t.Errorf("got away %v, usable %v, want both directories away", away, v.Usable())
	}
	if r := v.TakeRemade(); len(r) != 1 || r[0].Ruin == nil {
		t.Errorf("told %+v", r)
	}
	if err := os.WriteFile(segment, nil, 0); err != nil { // opens the pipe, and closes it
		t.Fatal(err)
	}
	for len(v.Usable()) < 2 && t.Context().Err() == nil {
		v.Revive(t.Context())
		runtime.Gosched()
	}
	if r := v.TakeRemade(); len(r) != 2 || r[0].Dir != dir || r[1].Dir != more {
		t.Errorf("told %+v", r)
	}
}

// Numbers pass eight digits after a hundred starts beside a directory that is yet to be read (numbersAside).
func TestSegmentNumber(t *testing.T) {
	for name, want := range map[string]uint32{
		"seg-00000007": 7, filepath.Base(SegmentFile("", 123456789)): 123456789, filepath.Base(SegmentFile("", 1<<32-1)): 1<<32 - 1,
		"seg-00000007.bak": 0, "seg-7": 0, "seg-": 0, "seg-4294967296": 0, "00000007": 0, "seg--0000007": 0, "catalog.db": 0,
	} {
		if no, ok := segmentNumber(name); ok != (want != 0) || ok && no != want {
			t.Errorf("%s: got %d, %v", name, no, ok)
		}
	}
}

// A directory whose disk is mounted only after a new catalog was made has segments that this catalog does not know. They are read, too: if
// not at once, as one of them cannot be, then later, whatever lands meanwhile.
func TestSegmentsOfADirectoryThatTheCatalogNeverKnew(t *testing.T) {
	disk, more := t.TempDir(), filepath.Join(t.TempDir(), "more")
	before, err := Open(t.TempDir(), disk)
	if err != nil {
		t.Fatal(err)
	}
	first, err := before.Acquire(disk)
	if err != nil {
		t.Fatal(err)
	}
	putIn(t, before, disk, "cache/-/x", 1000)
	before.Release(first, false)
	v, err := Open(t.TempDir(), more)
	unreadable := SegmentFile(disk, 1)
	if err := errors.Join(err, before.Close(), os.Remove(unreadable), os.Mkdir(unreadable, 0o700), v.Close(), os.RemoveAll(more), os.Symlink(disk, more)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if v, err = Open(v.Dir, more); err != nil {
			t.Fatal(err)
		}
		if v.Away()[more] == nil {
			t.Fatal("it has been read")
		}
		one, err := v.Acquire(v.Dir)
		if err != nil {
			t.Fatal(err)
		}
		put(t, v, "cache/-/y", 1000)
		v.Release(one, false)
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(unreadable); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if v, err = Open(v.Dir, more); err != nil {
			t.Fatal(err)
		}
		if len(v.Away()) > 0 {
			t.Fatal(v.Away())
		}
		wantWhole(t, v, "cache/-/x", 1000)
		wantWhole(t, v, "cache/-/y", 1000)
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
