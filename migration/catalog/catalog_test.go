package catalog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

func opened(t testing.TB) *Catalog {
	c, err := open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Only a catalog that is open elsewhere is said to be: a disk that is read-only, say, has nothing to do with another agent.
func TestOpenSaysWhatIsInTheWay(t *testing.T) {
	c, strange := opened(t), t.TempDir()
	if err := os.Mkdir(filepath.Join(strange, catalogName), 0o700); err != nil {
		t.Fatal(err)
	}
	for dir, taken := range map[string]bool{filepath.Dir(c.db.Path()): true, strange: false} {
		if _, err := open(dir); err == nil || strings.Contains(err.Error(), "another agent uses this data_dir") != taken {
			t.Errorf("got %v, want that it is open elsewhere: %t", err, taken)
		}
	}
}

// A record that was looked up before it is written is not looked up again, unless the catalog has changed. In that case
// the record that has come under its id loses its weight, and its stretch is free.
func TestWhatCameBetweenTheLookAndTheCommitIsReplaced(t *testing.T) {
	at := func(segment uint32, offset int64) Record {
		return Record{Opening: wire.Opening{ID: "cache/-/x", Origin: "a", Members: []wire.MemberSize{{Name: "x", Bytes: 10}}}, Segment: segment, Offset: offset, Length: 100}
	}
	for what, commit := range map[string]func(*Catalog, []Change) error{
		"by another commit": func(c *Catalog, looked []Change) error {
			for _, l := range looked {
				if _, err := c.Commit([]Change{l}, nil, nil); err != nil {
					return err
				}
			}
			return nil
		},
		"by the same": func(c *Catalog, looked []Change) error { _, err := c.Commit(looked, nil, nil); return err },
		"by the same, in another transaction": func(c *Catalog, looked []Change) error {
			var before []Change
			for i := range commitRecords - 1 {
				before = append(before, Change{&Record{Opening: wire.Opening{ID: fmt.Sprintf("cache/-/a%05d", i)}, Segment: 7}, looked[0].Fresh})
			}
			_, err := c.Commit(append(before, looked...), nil, nil)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			c := opened(t)
			first, second, state := at(1, 0), at(2, 500), 0
			if err := c.Look(0, func(l *Lookup) { state = l.State }); err != nil {
				t.Fatal(err)
			}
			if err := commit(c, []Change{{&first, state}, {&second, state}}); err != nil {
				t.Fatal(err)
			}
			if got := c.Count().Bytes; got != 10 {
				t.Errorf("got %d bytes that rest here, want those of one block, 10", got)
			}
			if free, empty, err := c.Free(1); err != nil || !empty || !slices.Equal(free, []Stretch{{0, 100}}) {
				t.Errorf("got %v free in the first segment, empty %t, %v, want all that the first record had there", free, empty, err)
			}
			if r, err := c.Get("cache/-/x"); err != nil || r.Segment != 2 {
				t.Errorf("got %+v, %v, want the second record", r, err)
			}
		})
	}
}

// Of two blocks of one id that segments have, the newer version stays, or if they were born on different nodes the one that landed last:
// the other had been removed before, or lies on a disk that comes from another machine.
func TestOneOfTwoSalvagedBlocksStays(t *testing.T) {
	now := time.Now()
	block := func(segment uint32, origin string, modified int64, landed time.Time) Record {
		o := wire.Opening{ID: "cache/-/x", Origin: origin, ModTime: modified, Members: []wire.MemberSize{{Name: "x", Bytes: 10}}}
		return Record{Opening: o, Sum: wire.Sum{byte(segment)}, Landed: landed, Segment: segment, Length: 100}
	}
	for name, two := range map[string][]Record{
		"of one node":       {block(1, "a", 2, now), block(2, "a", 1, now.Add(time.Hour))},
		"of different ones": {block(1, "a", 1, now.Add(time.Hour)), block(2, "b", 2, now)},
	} {
		for range 2 {
			c := opened(t)
			if err := c.Salvaged(two); err != nil {
				t.Fatal(err)
			}
			if r, err := c.Get("cache/-/x"); err != nil || r.Segment != 1 {
				t.Errorf("%s: got that of segment %d, %v", name, r.Segment, err)
			}
			if free, _, err := c.Free(2); err != nil || len(free) != 1 {
				t.Errorf("%s: %v of the other are free, %v", name, free, err)
			}
			slices.Reverse(two)
		}
	}
}

// In whatever order ids are looked up, what is found is what is there.
func TestLookupFindsWhatIsThere(t *testing.T) {
	c := opened(t)
	r := rand.New(rand.NewPCG(1, 1))
	id := func() string { return fmt.Sprintf("cache/-/%03d", r.IntN(600)) }
	var some []Change
	for range 300 {
		some = append(some, Change{Record: &Record{Opening: wire.Opening{ID: id()}}})
	}
	if _, err := c.Commit(some, nil, nil); err != nil {
		t.Fatal(err)
	}
	err := c.view(func(tx *bbolt.Tx) error {
		for range 20 {
			ids := make([]string, 100)
			for i := range ids {
				ids[i] = id()
			}
			slices.Sort(ids[r.IntN(len(ids)):])
			look := newLookup(tx)
			for _, id := range ids {
				if got, want := look.get(id), tx.Bucket(bucketBlocks).Get([]byte(id)); string(got) != string(want) || got == nil != (want == nil) {
					t.Fatalf("%s: got %q, want %q", id, got, want)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A damaged page is reported by the read that meets it, and does not take the process down.
func TestDamagedPageIsAnError(t *testing.T) {
	c := opened(t)
	err := c.view(func(*bbolt.Tx) error { panic("assertion failed: Page expected to be: 7") })
	if !errors.Is(err, wire.ErrCorrupt) || !strings.Contains(err.Error(), "expected to be: 7") {
		t.Errorf("got %v", err)
	}
	if _, err := c.Commit([]Change{{Record: &Record{Opening: wire.Opening{ID: "cache/-/x"}}}}, nil, nil); err != nil { // no lock is left
		t.Error(err)
	}
}

// The directories of a store get other numbers. A crash amid that leaves some records with the old ones, and the next start changes those;
// meanwhile the directories have changed again.
func TestRenumberingGoesOnWhereACrashEndedIt(t *testing.T) {
	c, dirs := opened(t), []string{"c0", "c1", "c2"}
	if err := c.Renumber("cache", dirs); err != nil {
		t.Fatal(err)
	}
	var all []Change
	for i := range 30 {
		all = append(all, Change{Record: &Record{Opening: wire.Opening{ID: fmt.Sprintf("cache/-/f%d", i)}, Placed: []Placed{{Root: i % 3}}}})
	}
	if _, err := c.Commit(all, nil, nil); err != nil {
		t.Fatal(err)
	}
	halfway := numbering{dirs: dirs, next: []string{"c2", "c1", "c0"}}
	if err := c.write(func(tx *bbolt.Tx) error { return halfway.step(tx, "cache", 7) }); err != nil {
		t.Fatal(err)
	}
	last := []string{"c1", "c0", "c2"}
	if err := c.Renumber("cache", last); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		r, err := c.Get(inventory.BlockID(fmt.Sprintf("cache/-/f%d", i)))
		if want := slices.Index(last, dirs[i%3]); err != nil || r.Placed[0].Root != want {
			t.Errorf("f%d: got %+v, %v, want it in directory %d", i, r.Placed, err, want)
		}
	}
}

// The count of what rests here is changed by commits, and at the same time by a directory of the vault that is read
// anew.
func TestCountOfWhatRestsHereIsKeptByAll(t *testing.T) {
	c := opened(t)
	const writers, each = 4, 20_000
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for range each {
				c.counts(weight{Count: inventory.Count{Blocks: 1, Bytes: 10}})
			}
		})
	}
	writing.Wait()
	if got, want := c.Count(), (inventory.Count{Blocks: writers * each, Bytes: writers * each * 10}); got != want {
		t.Errorf("%+v are counted, want %+v", got, want)
	}
}

// The records weigh the same whether they were counted as they came and went, or by reading all of them. The latter happens when an older
// lifeboat has written some, for it does not know all that they weigh.
func TestWeightIsThatOfTheRecords(t *testing.T) {
	dir := t.TempDir()
	c, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	record := func(i int, more string) Record {
		name := fmt.Sprint("x", i, more)
		return Record{Opening: wire.Opening{ID: fmt.Sprint("cache/-/x", i), Origin: "a" + more, Members: []wire.MemberSize{{Name: name, Bytes: int64(i)}}}, Segment: 1, Offset: int64(i) * 1000, Length: int64(i) + 500}
	}
	for round := range 2 {
		var changes []Change
		for i := range 100 {
			changes = append(changes, Change{Record: new(record(i, strings.Repeat("more", round)))})
		}
		if _, err := c.Commit(changes, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	var was, into []Record
	for r, err := range c.All() {
		if err != nil {
			t.Fatal(err)
		}
		r.Landed = time.Unix(0, r.Landed.UnixNano())
		was = append(was, r)
		r.Segment, r.Placed = 0, []Placed{{Path: r.Members[0].Name, Chunks: []byte("1234")}}
		into = append(into, r)
	}
	if turned, err := c.Turn(was[:50], into[:50]); err != nil || slices.Contains(turned, false) {
		t.Fatal(turned, err)
	}
	if gone, err := c.Remove(was[50:75]); err != nil || len(gone) != 25 {
		t.Fatal(len(gone), err)
	}
	want := *c.rests.Load()
	for what, spoil := range map[string]func(*bbolt.Bucket) error{
		"as it was written":            func(*bbolt.Bucket) error { return nil },
		"by one who does not know all": func(b *bbolt.Bucket) error { return b.Delete(keyAll) },
		"by one who wrote since": func(b *bbolt.Bucket) error {
			return b.Put(keyAll, append(appendCount(inventory.Count{Blocks: 74, Bytes: 1}), make([]byte, 8)...))
		},
	} {
		if err := errors.Join(c.DB().Update(func(tx *bbolt.Tx) error { return spoil(tx.Bucket(bucketWeights)) }), c.Close()); err != nil {
			t.Fatal(err)
		}
		if c, err = open(dir); err != nil {
			t.Fatal(err)
		}
		if got := *c.rests.Load(); got != want || got.Blocks != 75 || got.BesideBytes < 75*500 {
			t.Errorf("%s: got %+v, want %+v", what, got, want)
		}
	}
	c.Close()
}

// A catalog that another lifeboat has written, with records that this one cannot read, is set aside. Otherwise each of its blocks would be
// refused when it comes again, for nobody could say whether the copy here is the same.
func TestCatalogOfAnotherFormatIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	for _, again := range []bool{false, true} {
		c, ruin, err := Open(dir, []string{dir}, func() bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		if again != (ruin != nil && strings.Contains(ruin.Why.Error(), "of format 2") && ruin.Aside != "") {
			t.Errorf("after another lifeboat: %t, got %+v", again, ruin)
		}
		if n := c.Count().Blocks; n != 0 {
			t.Errorf("%d blocks are known", n)
		}
		_, err = c.Commit([]Change{{Record: &Record{Opening: wire.Opening{ID: "cache/-/x"}}}}, nil, nil)
		err = errors.Join(err, c.DB().Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketBlocks).SetSequence(format + 1) }), c.Close())
		if err != nil {
			t.Fatal(err)
		}
	}
}

// mostWait is the limit for what should happen at once.
const mostWait = 20 * time.Second

// awaited returns a function that waits for the first event of a kind at a path (inotify(7)) from now on.
func awaited(t *testing.T, path string, kind uint32) (wait func()) {
	t.Helper()
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(watch) })
	if _, err := unix.InotifyAddWatch(watch, path, kind); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		is, err := diskio.Retry(func() (int, error) {
			return unix.Poll([]unix.PollFd{{Fd: int32(watch), Events: unix.POLLIN}}, int(mostWait.Milliseconds()))
		})
		if err != nil || is == 0 {
			t.Fatalf("%s: nothing happens (%v)", path, err)
		}
	}
}

// While an agent waits to open a catalog, another file may get the catalog's name. When its turn comes the agent gets the old
// file, and has to notice that.
func TestCatalogThatIsOpenedIsTheOneThatHasTheName(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	first, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := filepath.Join(dir, catalogName)
	waits := awaited(t, p, unix.IN_OPEN)
	var second *Catalog
	opened := await.Beside(func() { second, err = open(dir) })
	waits()
	another, failed := open(other)
	if failed = errors.Join(failed, another.Close(), os.Rename(filepath.Join(other, catalogName), p), first.Close()); failed != nil {
		t.Fatal(failed)
	}
	if <-opened; err != nil {
		t.Fatal(err)
	}
	_, err = second.Commit([]Change{{Record: &Record{Opening: wire.Opening{ID: "cache/-/x"}}}}, nil, nil)
	if err = errors.Join(err, second.Close()); err != nil {
		t.Fatal(err)
	}
	third, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	if _, err := third.Get("cache/-/x"); err != nil {
		t.Errorf("what was committed is not there: %v", err)
	}
}
