package vault

import (
	"context"
	"errors"
	iofs "io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/lifeboat/lifeboat/disks/fusedisk"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// sector is a part of a file that its disk does not give.
type sector struct {
	from  atomic.Int64 // 0: there is none
	until atomic.Int64 // 0: the end of the file
}

// badSector is a file or directory on a disk that can get a bad sector in one file.
type badSector struct {
	fs.LoopbackNode
	name string
	bad  *sector
}

func (n *badSector) WrapChild(context.Context, fs.InodeEmbedder) fs.InodeEmbedder {
	return &badSector{fs.LoopbackNode{RootData: n.RootData}, n.name, n.bad}
}

func (n *badSector) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, _, errno := n.LoopbackNode.Open(ctx, flags)
	return h, fuse.FOPEN_DIRECT_IO, errno
}

func (n *badSector) Read(ctx context.Context, h fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if from, until := n.bad.from.Load(), n.bad.until.Load(); from > 0 && filepath.Base(n.Path(nil)) == n.name {
		switch {
		case off < from:
			dest = dest[:min(int64(len(dest)), from-off)]
		case until == 0 || off < until:
			return nil, syscall.EIO
		}
	}
	return h.(fs.FileReader).Read(ctx, dest, off)
}

// onBadSector is a vault whose second directory lies on a disk that can get a bad sector in segment 1.
func onBadSector(t *testing.T) (v *Vault, more string, bad *sector) {
	t.Helper()
	bad = new(sector)
	more = fusedisk.New(t, func(tree *fs.LoopbackRoot) fs.InodeEmbedder {
		return &badSector{fs.LoopbackNode{RootData: tree}, filepath.Base(SegmentFile("", 1)), bad}
	})
	v, err := Open(t.TempDir(), more)
	if err != nil {
		t.Fatal(err)
	}
	return v, more, bad
}

func restarted(t *testing.T, v *Vault, before ...func() error) *Vault {
	t.Helper()
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	for _, do := range before {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	again, err := Open(v.Dir, v.Paths()[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func loseCatalog(v *Vault) func() error {
	return func() error { return os.Remove(filepath.Join(v.Dir, "catalog.db")) }
}

// A segment that its disk does not give to its end keeps no other out of a catalog that is made anew. What was found in it is served, and
// the rest is looked for at each start. What was removed meanwhile does not come back, and what came again keeps its bytes.
func TestSegmentThatCannotBeReadForANewCatalog(t *testing.T) {
	v, more, bad := onBadSector(t)
	putIn(t, v, more, "cache/-/gone", 5000)
	putIn(t, v, more, "cache/-/renewed", 5000)
	putIn(t, v, more, "cache/-/behind", 5000)
	first, err := v.Acquire(more)
	if err != nil {
		t.Fatal(err)
	}
	putIn(t, v, more, "cache/-/other", 5000)
	v.Release(first, false)
	r, err := v.Catalog.Get("cache/-/behind")
	if err != nil || r.Segment != 1 {
		t.Fatal(r.Segment, err)
	}
	has := func(want map[string]bool) {
		t.Helper()
		for _, id := range []string{"cache/-/gone", "cache/-/renewed", "cache/-/behind", "cache/-/other"} {
			if _, err := v.Catalog.Get(inventory.BlockID(id)); want[id] {
				wantWhole(t, v, id, 5000)
			} else if !errors.Is(err, iofs.ErrNotExist) {
				t.Errorf("%s is here (%v)", id, err)
			}
		}
	}
	bad.from.Store(r.Offset + 100)
	v = restarted(t, v, loseCatalog(v))
	if made := v.TakeRemade(); len(made) != 3 || made[2].Found.Blocks != 3 || !errors.Is(made[2].Unread[1], syscall.EIO) || len(made[2].Unread) != 1 || len(made[2].Broken) > 0 {
		t.Fatalf("told %+v, away %v", made, v.Away())
	}
	has(map[string]bool{"cache/-/gone": true, "cache/-/renewed": true, "cache/-/other": true})

	renewed, err := v.Catalog.Get("cache/-/renewed")
	if err != nil {
		t.Fatal(err)
	}
	renewed.Landed = time.Now().Add(time.Hour)
	_, err = v.Catalog.Commit([]catalog.Change{{Record: &renewed}}, nil, nil)
	reads := v.Read(1) // so that what is gone is not punched out
	if err := errors.Join(err, v.Catalog.Forget("cache/-/gone"), v.Reclaim(t.Context())); err != nil {
		t.Fatal(err)
	}
	reads()
	v = restarted(t, v)
	if made := v.TakeRemade(); len(made) != 1 || len(made[0].Unread) != 1 {
		t.Fatalf("told %+v, away %v", made, v.Away())
	}
	has(map[string]bool{"cache/-/renewed": true, "cache/-/other": true})

	bad.from.Store(0)
	v = restarted(t, v)
	defer func() { v.Close() }()
	if made := v.TakeRemade(); len(made) != 1 || len(made[0].Unread) != 0 || made[0].Found.Blocks != 2 {
		t.Fatalf("told %+v, away %v", made, v.Away())
	}
	if err := v.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	has(map[string]bool{"cache/-/renewed": true, "cache/-/behind": true, "cache/-/other": true})
	if v = restarted(t, v); len(v.TakeRemade()) > 0 {
		t.Error("it is read once more")
	}
}

// Behind a bad sector the rest of a segment is read: one block lies on it, and those before and behind it are served.
func TestBlocksBehindABadSectorOfASegment(t *testing.T) {
	for _, part := range []string{"opening", "body"} {
		v, more, bad := onBadSector(t)
		ids := []string{"cache/-/a", "cache/-/hit", "cache/-/b", "cache/-/c"}
		for _, id := range ids {
			putIn(t, v, more, id, 50_000)
		}
		r, err := v.Catalog.Get("cache/-/hit")
		if err != nil {
			t.Fatal(err)
		}
		at := r.Offset
		if part == "body" {
			at += 20_000
		}
		bad.from.Store(at &^ (pageBytes - 1))
		bad.until.Store(at&^(pageBytes-1) + pageBytes)
		v = restarted(t, v, loseCatalog(v))
		for _, id := range ids {
			switch _, err := v.Catalog.Get(inventory.BlockID(id)); {
			case id == "cache/-/hit", id == "cache/-/a" && part == "opening": // a's last page is the bad one
				if !errors.Is(err, iofs.ErrNotExist) {
					t.Errorf("%s is here, with a bad sector in the %s of a block (%v)", id, part, err)
				}
			default:
				wantWhole(t, v, id, 50_000)
			}
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The file of such a segment stays when nothing that was found in it is of use any more.
func TestSegmentThatCannotBeReadIsNotRemoved(t *testing.T) {
	v, more, bad := onBadSector(t)
	putIn(t, v, more, "cache/-/x", 5000)
	putIn(t, v, more, "cache/-/behind", 5000)
	r, err := v.Catalog.Get("cache/-/behind")
	if err != nil {
		t.Fatal(err)
	}
	bad.from.Store(r.Offset)
	v = restarted(t, v, loseCatalog(v))
	if err := errors.Join(v.Catalog.Forget("cache/-/x"), v.Reclaim(t.Context())); err != nil {
		t.Fatal(err)
	}
	bad.from.Store(0)
	v = restarted(t, v)
	defer v.Close()
	wantWhole(t, v, "cache/-/behind", 5000)
}

// A directory of which nothing can be read is away, and is tried again while the agent runs: its disk may come back.
func TestDirectoryOfWhichNoSegmentCanBeRead(t *testing.T) {
	v, more, bad := onBadSector(t)
	putIn(t, v, more, "cache/-/x", 5000)
	bad.from.Store(1)
	v = restarted(t, v, loseCatalog(v))
	defer v.Close()
	if why := v.Away()[more]; !errors.Is(why, syscall.EIO) {
		t.Fatalf("away because %v", why)
	}
	bad.from.Store(0)
	if back := v.Revive(t.Context()); len(back) != 1 {
		t.Fatalf("away because %v", v.Away())
	}
	wantWhole(t, v, "cache/-/x", 5000)
}

// While a directory is read for a new catalog, its blocks that are in the catalog already are away, and not broken: a broken block is
// removed.
func TestBlocksOfADirectoryThatIsBeingReadAreAway(t *testing.T) {
	more := t.TempDir()
	v, err := Open(t.TempDir(), more)
	if err != nil {
		t.Fatal(err)
	}
	putIn(t, v, more, "cache/-/x", 1000)
	unreadable, segments := SegmentFile(more, 9), filepath.Join(more, "segments")
	away := func() {
		t.Helper()
		r, err := v.Catalog.Get("cache/-/x")
		if err != nil || v.Away()[more] == nil {
			t.Fatal(err, v.Away())
		}
		if _, err := v.member(r, 0, 0); !diskio.IsAway(err) {
			t.Errorf("got %v", err)
		}
	}
	v = restarted(t, v, loseCatalog(v), func() error { return os.Mkdir(unreadable, 0o700) })
	away()
	v = restarted(t, v, func() error { return os.Rename(segments, segments+"-unmounted") })
	defer v.Close()
	away()
	if err := errors.Join(os.Rename(segments+"-unmounted", segments), os.Remove(unreadable)); err != nil {
		t.Fatal(err)
	}
	if v.Revive(t.Context()); len(v.Away()) > 0 {
		t.Fatal(v.Away())
	}
	wantWhole(t, v, "cache/-/x", 1000)
}
