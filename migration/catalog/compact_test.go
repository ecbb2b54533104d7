package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/disks/smalldisk"
	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// wave and rest are the bytes of the records that were removed, and that stay, in most tests.
const wave, rest = 20 << 20, 3 << 20

// waved makes a catalog in dir from which records of went bytes were removed, with records of stay bytes left and something in each
// bucket. It returns its file's path.
func waved(t *testing.T, dir string, went, stay int) string {
	t.Helper()
	c, err := createCatalog(dir, []string{dir, "/elsewhere"})
	if err != nil {
		t.Fatal(err)
	}
	const each, small = 64 << 10, 200
	var all []Change
	var gone []Record
	add := func(r Record, goes bool) {
		r.Origin, r.Members = "a", []wire.MemberSize{{Name: r.ID, Bytes: 10}}
		if all = append(all, Change{Record: &r}); goes {
			gone = append(gone, r)
		}
	}
	for i := range (went + stay) / each {
		name := fmt.Sprintf("large%05d", i)
		add(Record{Opening: wire.Opening{ID: "cache/-/" + name}, Placed: []Placed{{Path: name, Chunks: make([]byte, each)}}}, i < went/each)
	}
	for i := range 2 * small {
		add(Record{Opening: wire.Opening{ID: fmt.Sprint("cache/-/small", i)}, Segment: uint32(i%2 + 1), Offset: int64(i) * 1000, Length: 1000}, i < small)
	}
	_, err = c.Commit(all, map[uint32]End{1: {At: 1 << 20}, 2: {At: 1 << 20, Dir: dir}}, nil)
	err = errors.Join(err, c.Renumber("cache", []string{dir}))
	if _, removing := c.Remove(gone); err != nil || removing != nil {
		t.Fatal(err, removing)
	}
	if err := errors.Join(c.Punched(1, []Stretch{{0, small / 2 * 1000}}), c.Close()); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, catalogName)
}

// content returns everything that a catalog has.
func content(t *testing.T, c *Catalog) map[string]string {
	t.Helper()
	has := map[string]string{}
	err := c.DB().View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			has[string(name)] = fmt.Sprint(b.Sequence())
			return b.ForEach(func(k, v []byte) error { has[string(name)+"/"+string(k)] = string(v); return nil })
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return has
}

// reopened opens a catalog as a start does, and expects that nothing is wrong with it.
func reopened(t *testing.T, p string) *Catalog {
	t.Helper()
	dir := filepath.Dir(p)
	c, ruin, err := Open(dir, []string{dir}, func() bool { return true })
	if err != nil || ruin != nil {
		t.Fatal(ruin, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// asItIs opens a catalog without verifying or compacting it.
func asItIs(t *testing.T, p string) *Catalog {
	t.Helper()
	c, err := open(filepath.Dir(p))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// onDisk returns what a file takes on disk, which is less than its length if it has holes.
func onDisk(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// After a wave of blocks the file is as small as if the wave had never been, and has the same content.
func TestCatalogShrinksAtAStart(t *testing.T) {
	dir := t.TempDir()
	p := waved(t, dir, wave, rest)
	c := asItIs(t, p)
	large, had, rests := onDisk(t, p), content(t, c), *c.rests.Load()
	c.Close()
	c = reopened(t, p)
	if c.Path() != p {
		t.Errorf("its file is said to be %s, which is gone", c.Path())
	}
	if now := onDisk(t, p); large < wave || now > rest+rest/2 {
		t.Errorf("it took %d bytes, and takes %d, want some %d", large, now, rest)
	}
	if now := *c.rests.Load(); !maps.Equal(content(t, c), had) || now != rests || len(had) < 250 {
		t.Errorf("%d of %d entries are left, %+v of %+v", len(content(t, c)), len(had), now, rests)
	}
	if _, err := c.Commit([]Change{{Record: &Record{Opening: wire.Opening{ID: "cache/-/since"}}}}, nil, nil); err != nil {
		t.Error(err)
	}
	c.Close()
	if _, err := reopened(t, p).Get("cache/-/since"); err != nil {
		t.Error(err)
	}
	wantNoDraft(t, p)
}

func wantNoDraft(t *testing.T, p string) {
	t.Helper()
	if _, err := os.Lstat(filepath.Join(filepath.Dir(p), draftName)); !errors.Is(err, os.ErrNotExist) {
		t.Error("something is left of a file that was written anew: ", err)
	}
}

// stood returns a catalog's file and content before a test tries something with it.
func stood(t *testing.T, p string) (os.FileInfo, map[string]string) {
	t.Helper()
	c := asItIs(t, p)
	defer c.Close()
	is, err := os.Stat(p)
	if err != nil {
		t.Fatal(err)
	}
	return is, content(t, c)
}

// wantSame fails the test if a catalog's file is another than before, or has other content.
func wantSame(t *testing.T, c *Catalog, p string, was os.FileInfo, had map[string]string) {
	t.Helper()
	if now, err := os.Stat(p); err != nil || !os.SameFile(now, was) {
		t.Errorf("another file has its place (%v)", err)
	}
	if now := content(t, c); !maps.Equal(now, had) {
		t.Errorf("%d of %d entries are left, or others", len(now), len(had))
	}
	if _, err := c.Commit([]Change{{Record: &Record{Opening: wire.Opening{ID: "cache/-/since"}}}}, nil, nil); err != nil {
		t.Error(err)
	}
	wantNoDraft(t, p)
}

// A file of which more than a fourth is in use, or that is small, is left as it is. A draft that a killed start left beside it is
// removed, however far it got.
func TestCatalogThatIsInUseOrSmallIsLeftAlone(t *testing.T) {
	for what, of := range map[string]struct{ went, stay int }{"in use": {wave, wave / 2}, "small": {sparseBytes / 2, 0}} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			p := waved(t, dir, of.went, of.stay)
			was, had := stood(t, p)
			whole, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			for _, written := range []int{0, 1 << 20, len(whole)} {
				if err := os.WriteFile(filepath.Join(dir, draftName), whole[:written], 0o600); err != nil {
					t.Fatal(err)
				}
				c := reopened(t, p)
				wantSame(t, c, p, was, had)
				if err := errors.Join(c.Forget("cache/-/since"), c.Close()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A start that was killed amid the copy does not keep the next one from it.
func TestHalfOfACatalogIsWrittenAgain(t *testing.T) {
	dir := t.TempDir()
	p := waved(t, dir, wave, rest)
	_, had := stood(t, p)
	half, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, draftName), half[:len(half)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	c := reopened(t, p)
	if now := onDisk(t, p); now > rest+rest/2 || !maps.Equal(content(t, c), had) {
		t.Errorf("it takes %d bytes, and has %d entries of %d", now, len(content(t, c)), len(had))
	}
	wantNoDraft(t, p)
}

// If there is no room for the copy, or the room runs out amid it, the file stays in use.
func TestFullDiskLeavesTheCatalogThatIs(t *testing.T) {
	for what, free := range map[string]int64{"full": 0, "full amid it": rest / 2, "room for one, and for nobody else": rest + rest/2} {
		t.Run(what, func(t *testing.T) {
			dir := smalldisk.New(t, 48<<20)
			p := waved(t, dir, wave, rest)
			was, had := stood(t, p)
			spare := filepath.Join(dir, "spare")
			if err := os.WriteFile(spare, make([]byte, free), 0o600); err != nil {
				t.Fatal(err)
			}
			smalldisk.Fill(t, dir)
			if err := os.Remove(spare); err != nil {
				t.Fatal(err)
			}
			c := reopened(t, p)
			if free < rest {
				if anew, err := c.copied(filepath.Join(dir, draftName), 0, durable.SyncDir); !durable.Full(err) { // unchecked
					t.Errorf("got %v, %v, want that there is no room", anew, err)
				}
			}
			wantSame(t, c, p, was, had)
		})
	}
}

// A page that cannot be read leaves the file in use, unless a start needs that page.
func TestDamagedPageLeavesTheCatalogThatIs(t *testing.T) {
	dir := t.TempDir()
	p := waved(t, dir, wave, rest)
	c := asItIs(t, p)
	page := bytes.Repeat([]byte("damaged "), 400)
	err := c.DB().Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketSalvage)
		return errors.Join(b.Put([]byte("/one"), page), b.Put([]byte("/two"), page))
	})
	if err = errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
	was, had := stood(t, p)
	all, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(all); at += os.Getpagesize() {
		if bytes.Contains(all[at:at+os.Getpagesize()], page) {
			all[at+8] = 0x10 // a list of free pages
		}
	}
	if err := os.WriteFile(p, all, 0o600); err != nil { // the same file, so that it stays open
		t.Fatal(err)
	}
	c = reopened(t, p)
	if now, err := os.Stat(p); err != nil || !os.SameFile(now, was) {
		t.Errorf("another file has its place (%v)", err)
	}
	for r, err := range c.All() {
		if err != nil || had[string(bucketBlocks)+"/"+r.ID] == "" {
			t.Errorf("%s: %v", r.ID, err)
		}
	}
	wantNoDraft(t, p)
}

// A start does not wait for a disk that hangs, and a copy that ends late is not used.
func TestHangingDiskLeavesTheCatalogThatIs(t *testing.T) {
	p := waved(t, t.TempDir(), wave, rest)
	was, had := stood(t, p)
	removed := awaited(t, filepath.Dir(p), unix.IN_DELETE)
	c, thaw := asItIs(t, p), make(chan struct{})
	got, err := c.compacted(0, func(string) error { <-thaw; return nil })
	if got != c || err != nil {
		t.Fatalf("got another catalog, %v", err)
	}
	if _, err := c.Commit([]Change{{Record: &Record{Opening: wire.Opening{ID: "cache/-/meanwhile"}}}}, nil, nil); err != nil {
		t.Error(err)
	}
	close(thaw)
	removed()
	if err := c.Forget("cache/-/meanwhile"); err != nil {
		t.Error(err)
	}
	wantSame(t, c, p, was, had)
}

// If the draft's name cannot be made durable the old file stays. If that shows only when the draft has the catalog's name, a power cut
// might bring the old file back: nobody may write to either before the next start.
func TestDirectoryThatIsNotSyncedLeavesTheCatalogThatIs(t *testing.T) {
	p := waved(t, t.TempDir(), wave, rest)
	was, had := stood(t, p)
	syncs := 0
	failsAt := func(which int) func(string) error {
		syncs = 0
		return func(string) error {
			if syncs++; syncs == which {
				return unix.EIO
			}
			return nil
		}
	}
	c := asItIs(t, p)
	got, err := c.compacted(mostWait, failsAt(1))
	if got != c || err != nil {
		t.Fatalf("got another catalog, %v", err)
	}
	wantSame(t, c, p, was, had)
	if err := c.Forget("cache/-/since"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.compacted(mostWait, failsAt(2)); !errors.Is(err, unix.EIO) {
		t.Fatalf("got %v, want that there is none to be used", err)
	}
	if now := content(t, reopened(t, p)); !maps.Equal(now, had) {
		t.Errorf("%d of %d entries are left, or others", len(now), len(had))
	}
}
