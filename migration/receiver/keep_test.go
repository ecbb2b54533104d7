package receiver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// remove has the node's receiver remove the blocks that match.

// spaceOf returns what the files below a directory take on their disk.
func spaceOf(t testing.TB, dir string) (bytes int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "segments", "seg-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		var st unix.Stat_t
		if err := unix.Stat(f, &st); err != nil {
			t.Fatal(err)
		}
		bytes += st.Blocks * 512
	}
	return bytes
}

// landApps has the node take blocks of two apps by turns, so that they lie side by side.
func landApps(t testing.TB, n *node, each, size int) (want map[string][]byte) {
	t.Helper()
	want = map[string][]byte{}
	var frames [][]byte
	for i := range each {
		for _, app := range []string{"app-1", "app-2"} {
			id := fmt.Sprintf("cache/%s/x%d", app, i)
			want[id] = contentOf(id, size)
			frames = append(frames, blockFrames(uint32(len(frames)+1), id, want[id]))
		}
	}
	wantDurable(t, landAll(t, n, frames...))
	return want
}

func (n *node) wantOnly(t testing.TB, want map[string][]byte, apps ...string) {
	t.Helper()
	var rest inventory.Count
	for id, content := range want {
		status, got, _ := n.Get(t, id, "")
		if !slices.Contains(apps, inventory.BlockID(id).Scope()) {
			if status != 404 {
				t.Errorf("%s was removed: status %d", id, status)
			}
			continue
		}
		rest = rest.Plus(inventory.Count{Blocks: 1, Bytes: int64(len(content))})
		if status != 200 || !bytes.Equal(got, content) {
			t.Errorf("%s stays: status %d, %d bytes", id, status, len(got))
		}
	}
	if got := n.Vault.Count(); got != rest {
		t.Errorf("counted %+v, want %+v", got, rest)
	}
}

func TestRemovalOfAnApp(t *testing.T) {
	n := newNode(t, "b")
	want := landApps(t, n, 8, 64<<10)
	before := spaceOf(t, n.Vault.Dir)
	if got := n.remove(t, ofApp("app-1")); got != (inventory.Count{Blocks: 8, Bytes: 8 * 64 << 10}) {
		t.Errorf("removed %+v", got)
	}
	n.wantOnly(t, want, "app-2")
	if got := spaceOf(t, n.Vault.Dir); got > before*6/10 {
		t.Errorf("the segments take %d bytes, %d before half of it was removed", got, before)
	}
	if len(n.Gone) != 8 || n.Gone[0].Scope() != "app-1" {
		t.Errorf("told of %v", n.Gone)
	}
	n.Reopen(t)
	n.wantOnly(t, want, "app-2")
	n.receive(t)
	n.remove(t, ofApp("app-2"))
	n.wantOnly(t, want, "")
	if got := segmentsIn(t, n.Vault.Dir); len(got) != 0 {
		t.Errorf("nothing is of use in %v", got)
	}
	n.Reopen(t)
	landApps(t, n, 2, 1000) // the next block begins in a new segment
}

// A block that is smaller than a file system's block gives its space back together with its neighbours, in whichever
// order they went.
func TestSmallBlocksGiveTheirSpaceBack(t *testing.T) {
	n := newNode(t, "b")
	want := landApps(t, n, 200, 900)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/stays/x", []byte("x"))))
	n.remove(t, ofApp("app-1"))
	n.wantOnly(t, plus(want, "cache/stays/x", "x"), "app-2", "stays")
	n.remove(t, ofApp("app-2"))
	if got := spaceOf(t, n.Vault.Dir); got > 16<<10 {
		t.Errorf("one small block is left, and its segment takes %d bytes", got)
	}
}

func TestWhatIsReplacedGivesItsSpaceBack(t *testing.T) {
	n := newNode(t, "b")
	for i := range 5 {
		wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf(fmt.Sprint(i), 256<<10))))
	}
	n.receiver.tidyOnce(t.Context(), time.Now())
	if got := spaceOf(t, n.Vault.Dir); got > 300<<10 {
		t.Errorf("one version of 256 KiB is of use, and %d bytes are taken", got)
	}
	if got := n.Content(t, "cache/-/x"); !bytes.Equal(got, contentOf("4", 256<<10)) {
		t.Error("the newest version is not served")
	}
	if got := n.Vault.Count(); got != (inventory.Count{Blocks: 1, Bytes: 256 << 10}) {
		t.Errorf("counted %+v", got)
	}
}

// A block that comes anew again and again would fill the disk within the hour, for no quota counts its earlier
// versions.
func TestWhatIsReplacedOftenGivesItsSpaceBackSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b")
		ctx, stop := n.receiving(t)
		s := n.stream(t, ctx)
		time.Sleep(time.Second) // the work at the start is done
		for i := range 12 {
			s.Send(blockFrames(uint32(i), "cache/-/x", contentOf(fmt.Sprint(i), 8<<20)))
			s.WantReceipt()
		}
		s.Conn.Close()
		time.Sleep(time.Second)
		if got := spaceOf(t, n.Vault.Dir); got > 48<<20 {
			t.Errorf("one version of 8 MiB is of use, and %d bytes are taken", got)
		}
		stop()
	})
}

// A segment in which nothing was kept is removed at the next start. Its notes must not be taken for those of a later segment
// that has got its number: that one's space would be given back with blocks in it.
func TestRefusedBlockLeavesItsSegmentTheNumber(t *testing.T) {
	n := newNode(t, "b")
	const size = 100_000
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", size))))
	n.Reopen(t) // the next segment is another one
	o := wire.Opening{ID: "cache/-/x", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Origin: "elsewhere", Members: []wire.MemberSize{{Name: "x", Bytes: size}}}
	if said := landAll(t, n, openingFrames(1, o, contentOf("another x", size))); said[0].Code != wire.VerdictConflict {
		t.Fatalf("got %+v, want a conflict", said)
	}
	n.Reopen(t)  // the file is removed
	n.Reopen(t)  // and with it what shows that there was one
	n.receive(t) // a peer sends before the tidying has come to anything
	s := n.stream(t, t.Context())
	y := contentOf("y", size)
	s.Send(blockFrames(1, "cache/-/y", y))
	s.WantReceipt()
	s.Conn.Close()
	n.receiver.serving.Wait()
	if err := n.Vault.Reclaim(t.Context()); err != nil {
		t.Error(err)
	}
	if got := n.Content(t, "cache/-/y"); !bytes.Equal(got, y) {
		t.Error("a block that has a receipt does not read as what came")
	}
	for _, segment := range segmentsIn(t, n.Vault.Dir) {
		if filepath.Base(segment) == "seg-00000002" {
			t.Errorf("%s has the number of one that was refused", segment)
		}
	}
	if waste, err := n.Vault.Catalog.Waste(); len(waste) > 0 || err != nil {
		t.Errorf("what was refused is still noted, in segments %v, %v", waste, err)
	}
}

func TestRemovalWaitsForWhoReads(t *testing.T) {
	n := newNode(t, "b")
	x := contentOf("x", 3*wire.ChunkBytes)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/stays/x", []byte("x")), blockFrames(2, "cache/app-1/x", x)))
	c, err := n.LandedFile("cache/app-1/x")
	if err != nil {
		t.Fatal(err)
	}
	start := make([]byte, 100)
	if _, err := io.ReadFull(c, start); err != nil {
		t.Fatal(err)
	}
	n.remove(t, ofApp("app-1"))
	if status, _, _ := n.Get(t, "cache/app-1/x", ""); status != 404 {
		t.Errorf("status %d for who comes now", status)
	}
	rest, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(append(start, rest...), x) {
		t.Errorf("who was reading got %d bytes, %v", len(start)+len(rest), err)
	}
	c.Close()
	n.receiver.tidyOnce(t.Context(), time.Now())
	if got := spaceOf(t, n.Vault.Dir); got > 16<<10 {
		t.Errorf("nobody reads any more, and %d bytes are taken", got)
	}
}

func punchHole(path string, at, length int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, length), f.Close())
}

// A crash comes after each step of a removal. Whatever had been done, the next start and the next removal finish it.
func TestRemovalKilledAtEachStep(t *testing.T) {
	for name, upTo := range map[string]func(n *node, r catalog.Record) error{
		"after the record": func(n *node, r catalog.Record) error {
			_, err := n.Vault.Catalog.Remove([]catalog.Record{r})
			return err
		},
		"after the hole": func(n *node, r catalog.Record) error {
			_, err := n.Vault.Catalog.Remove([]catalog.Record{r})
			return errors.Join(err, punchHole(n.SegmentPath(r.Segment), r.Offset, r.Length))
		},
		"after the last record": func(n *node, _ catalog.Record) error {
			for r, err := range n.Vault.Catalog.All() {
				if err != nil {
					return err
				}
				if _, err := n.Vault.Catalog.Remove([]catalog.Record{r}); err != nil {
					return err
				}
			}
			return nil
		},
		"after the segment's file": func(n *node, _ catalog.Record) error {
			for r := range n.Vault.Catalog.All() {
				if _, err := n.Vault.Catalog.Remove([]catalog.Record{r}); err != nil {
					return err
				}
			}
			return os.Remove(n.SegmentPath(1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "b")
			want := landApps(t, n, 1, 64<<10)
			r, err := n.Vault.Catalog.Get("cache/app-1/x0")
			if err != nil {
				t.Fatal(err)
			}
			if err := upTo(n, r); err != nil {
				t.Fatal(err)
			}
			n.Reopen(t) // like a start after kill -9: closing the vault writes nothing of this
			n.receive(t)
			n.remove(t, ofApp("app-1"))
			left := "app-2"
			if strings.Contains(name, "last") || strings.Contains(name, "file") {
				left = ""
			}
			n.wantOnly(t, want, left)
			waste, err := n.Vault.Catalog.Waste()
			if err != nil || len(waste) > 0 {
				t.Errorf("segments %v have space to give back still, %v", waste, err)
			}
			if got := spaceOf(t, n.Vault.Dir); left == "" && got > 0 || got > 80<<10 {
				t.Errorf("%d bytes are taken", got)
			}
		})
	}
}

// Files in a store are removed only while they are the ones that landed.
func TestRemovalInPlace(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "cache"))
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", []byte("x")), blockFrames(2, "cache/-/y", []byte("y"))))
	if _, err := os.Stat(filepath.Join(n.Dir, "cache/x")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(n.Dir, "cache/y"), []byte("the engine's own"))
	if got := n.remove(t, func(vault.Held) bool { return true }); got.Blocks != 2 {
		t.Errorf("removed %+v", got)
	}
	if _, err := os.Stat(filepath.Join(n.Dir, "cache/x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what landed: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(n.Dir, "cache/y")); err != nil || string(got) != "the engine's own" {
		t.Errorf("what the engine put there: %q, %v", got, err)
	}
	if got := n.Vault.Count(); got != (inventory.Count{}) {
		t.Errorf("counted %+v", got)
	}
}

func TestBlocksAreKeptForAsLongAsTheyAreTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b")
		n.tune = func(c *Config) {
			c.Keep, c.InUse = 7*24*time.Hour, func(app string) bool { return app == "app-2" }
		}
		want := landApps(t, n, 2, 1000)
		n.receive(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { n.receiver.Run(ctx) })
		time.Sleep(7*24*time.Hour - time.Minute)
		synctest.Wait()
		if got := n.Vault.Count().Blocks; got != 4 {
			t.Errorf("%d blocks a minute before the time, want 4", got)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		n.wantOnly(t, want, "app-2") // whose app is here
		if n.Why != "it was kept for 168h0m0s" {
			t.Errorf("told that they are gone because %q", n.Why)
		}
		cancel()
		running.Wait()
	})
}

// A block that comes again is kept as long as one that lands now: its sender may have no other copy.
func TestBlockThatComesAgainIsKeptAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b")
		x := blockFrames(1, "cache/-/x", []byte("x"))
		wantDurable(t, landAll(t, n, x))
		time.Sleep(6 * 24 * time.Hour)
		wantDurable(t, landAll(t, n, x))
		time.Sleep(2 * 24 * time.Hour)
		n.tune = func(c *Config) { c.Keep = 7 * 24 * time.Hour }
		n.receive(t)
		n.receiver.tidyOnce(t.Context(), time.Now())
		if status, _, _ := n.Get(t, "cache/-/x", ""); status != 200 {
			t.Errorf("status %d two days after it came again", status)
		}
		time.Sleep(6 * 24 * time.Hour)
		n.receiver.tidyOnce(t.Context(), time.Now())
		if status, _, _ := n.Get(t, "cache/-/x", ""); status != 404 {
			t.Errorf("status %d eight days after it came again", status)
		}
	})
}

// What landed long ago comes again, from a node that does not know of the newer version that its origin has sent a moment before. Both are
// in one commit, and the newer version stays.
func TestBlockThatComesAgainBesideItsNewerVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b")
		older, newer := contentOf("older", 1000), contentOf("newer", 1000)
		o := wire.Opening{ID: "cache/-/x", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Origin: "a", ModTime: 1, Members: []wire.MemberSize{{Name: "x", Bytes: 1000}}}
		was := openingFrames(2, o, older)
		wantDurable(t, landAll(t, n, was))
		time.Sleep(2 * renewAfter)
		o.ModTime = 2
		wantDurable(t, landAll(t, n, openingFrames(1, o, newer), was))
		if err := n.Vault.Reclaim(t.Context()); err != nil {
			t.Error(err)
		}
		if got := n.Content(t, "cache/-/x"); !bytes.Equal(got, newer) {
			t.Errorf("got %d bytes, want the newer version", len(got))
		}
	})
}

// The same holds where blocks are kept for less than an hour.
func TestBlockThatComesAgainIsKeptAnewWhereThatIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "b")
		n.tune = func(c *Config) { c.Keep = renewAfter / 2 }
		x := blockFrames(1, "cache/-/x", []byte("x"))
		wantDurable(t, landAll(t, n, x))
		time.Sleep(renewAfter/2 - time.Minute)
		wantDurable(t, landAll(t, n, x))
		time.Sleep(2 * time.Minute)
		n.receiver.tidyOnce(t.Context(), time.Now())
		if got := heldIDs(t, n.Vault); len(got) != 1 {
			t.Errorf("two minutes after its receipt it is gone: %s", n.Why)
		}
	})
}

// A block that was removed while it came again gets no receipt.
func TestBlockRemovedWhileItComesAgain(t *testing.T) {
	n := newNode(t, "b")
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", []byte("x"))))
	n.receive(t)
	r, err := n.Vault.Catalog.Get("cache/-/x")
	if err != nil {
		t.Fatal(err)
	}
	l := &landed{Record: r, lying: new(lying), already: true}
	if _, err := n.Vault.Catalog.Remove([]catalog.Record{r}); err != nil {
		t.Fatal(err)
	}
	n.receiver.commit.record([]*landed{l})
	if !errors.Is(l.fault, errRemoved) {
		t.Errorf("got %v, want that it is gone", l.fault)
	}
}

// A catalog that has no weights yet, or that has a record which cannot be read, is weighed at the next start.
func TestCatalogIsWeighedWhenItMustBe(t *testing.T) {
	n := newNode(t, "b")
	landApps(t, n, 3, 100)
	err := n.Vault.Catalog.DB().Update(func(tx *bbolt.Tx) error {
		return errors.Join(tx.DeleteBucket([]byte("weights")), tx.DeleteBucket([]byte("free")), tx.DeleteBucket([]byte("holes")))
	})
	if err != nil {
		t.Fatal(err)
	}
	n.Reopen(t)
	if got := n.Vault.Count(); got != (inventory.Count{Blocks: 6, Bytes: 600}) {
		t.Errorf("counted %+v", got)
	}
	err = n.Vault.Catalog.DB().Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("blocks")).Put([]byte("cache/app-1/x0"), []byte("broken"))
	})
	if err != nil {
		t.Fatal(err)
	}
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/app-1/x0", []byte("anew"))))
	n.Reopen(t)
	if got := n.Vault.Count(); got != (inventory.Count{Blocks: 6, Bytes: 504}) {
		t.Errorf("counted %+v after a record was replaced that could not be read", got)
	}
}

func plus(want map[string][]byte, id, content string) map[string][]byte {
	want[id] = []byte(content)
	return want
}

func TestSegmentThatIsWrittenToIsNotRetired(t *testing.T) {
	n := newNode(t, "b")
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", []byte("x"))))
	s, err := n.Vault.Acquire(n.Vault.Dir)
	if err != nil {
		t.Fatal(err)
	}
	n.remove(t, func(vault.Held) bool { return true })
	if got := segmentsIn(t, n.Vault.Dir); len(got) != 1 {
		t.Errorf("somebody writes to it, and there is %v", got)
	}
	n.Vault.Release(s, false)
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/y", []byte("y"))))
	if got := n.Content(t, "cache/-/y"); string(got) != "y" {
		t.Errorf("got %q", got)
	}
}

// A block that comes again is kept as if it had landed now, and its sender has a receipt for that. A removal that had
// found it old must not take its files away.
func TestWhatComesAgainIsNotRemoved(t *testing.T) {
	n := newNode(t, "b", with(placeStore, "cache"))
	frames := blockFrames(1, "cache/-/x", []byte("x"))
	wantDurable(t, landAll(t, n, frames))
	old, err := n.Vault.Catalog.Get("cache/-/x")
	if err != nil {
		t.Fatal(err)
	}
	aged := old
	aged.Landed = old.Landed.Add(-2 * renewAfter)
	if turned, err := n.Vault.Catalog.Turn([]catalog.Record{old}, []catalog.Record{aged}); err != nil || !turned[0] {
		t.Fatal(turned, err)
	}
	if !n.Vault.ClaimRemoval("cache/-/x") {
		t.Fatal("nobody else has it")
	}
	if said := landAll(t, n, frames); said[0].Code == wire.VerdictDurable {
		t.Error("a receipt for what is being removed")
	}
	n.Vault.Unclaim("cache/-/x")
	wantDurable(t, landAll(t, n, frames))
	if _, err := n.receiver.removeBatch([]catalog.Record{aged}, func([]catalog.Record) {}); err != nil {
		t.Fatal(err)
	}
	if got := n.Content(t, "cache/-/x"); string(got) != "x" || n.Vault.Count() != (inventory.Count{Blocks: 1, Bytes: 1}) {
		t.Errorf("got %q, counted %+v", got, n.Vault.Count())
	}
}

// An app that is over leaves no directories behind.
func TestRemovalTakesTheDirectoriesThatWereMade(t *testing.T) {
	n := newNode(t, "b", with(sparkStore, "s0", "s1"))
	var frames [][]byte
	for _, scope := range []string{"application_1_0001", "application_1_0002", "blockmgr-0a"} {
		for i := range 8 {
			name := fmt.Sprintf("rdd_0_%d", i)
			o := wire.Opening{ID: "spark/" + scope + "/" + name, Kind: inventory.KindCache, Layout: inventory.LayoutSpark, Members: []wire.MemberSize{{Name: name, Bytes: 1000}}}
			frames = append(frames, openingFrames(uint32(len(frames)+1), o, contentOf(o.ID, 1000)))
		}
	}
	wantDurable(t, landAll(t, n, frames...))
	engines := filepath.Join(n.Dir, "s0/blockmgr-0a/07/rdd_1_1")
	write(t, engines, []byte("the engine's own"))
	n.remove(t, func(h vault.Held) bool { return h.App() != "application_1_0002" })
	for _, gone := range []string{"s0/application_1_0001", "s1/application_1_0001", "s1/blockmgr-0a"} {
		if _, err := os.Stat(filepath.Join(n.Dir, gone)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v, want it gone", gone, err)
		}
	}
	if _, err := os.Stat(engines); err != nil {
		t.Error(err)
	}
	if got := n.Vault.Count().Blocks; got != 8 {
		t.Errorf("%d blocks of the other app are left, want 8", got)
	}
}

// A segment whose last block had an unreadable record is given back after the next start.
func TestSegmentOfWhatCouldNotBeReadIsGivenBack(t *testing.T) {
	n := newNode(t, "b")
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", 1000))))
	n.Reopen(t) // blocks that come now land in another segment
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/y", contentOf("y", 1000))))
	err := n.Vault.Catalog.DB().Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("blocks")).Put([]byte("cache/-/x"), []byte("broken"))
	})
	if err != nil {
		t.Fatal(err)
	}
	n.receiver.forgetUnsound("cache/-/x")
	n.Reopen(t)
	if err := n.Vault.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := segmentsIn(t, n.Vault.Dir); len(left) != 1 || !bytes.Equal(n.Content(t, "cache/-/y"), contentOf("y", 1000)) {
		t.Errorf("there is %v, want the segment of y, and y in it", left)
	}
}
