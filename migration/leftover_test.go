package migration

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// gaveUp tries no lost block again.
func gaveUp(*inventory.Block, bool) bool { return false }

// inTime tries again what may well leave now.
func inTime(_ *inventory.Block, late bool) bool { return late }

// A drain is over. A block that it moved or named is not left, unless it has another version. A lost block is left for a caller that tries
// again, who is told whether time was up.
func TestAnyLeft(t *testing.T) {
	a, _ := cached(t, 10, 100)
	for name, c := range map[string]struct {
		to   []*node
		time time.Duration
	}{"moved": {[]*node{newNode(t, "b", with(filesStore, "cache"))}, time.Minute}, "lost": {nil, time.Minute}, "not even planned": {nil, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTrip(t, a, c.to...)
				tr.cfg.Dir = t.TempDir()
				tr.run(within(t, c.time))
				left := func(again func(*inventory.Block, bool) bool) bool {
					some, err := AnyLeft(t.Context(), tr.cfg, again)
					if err != nil {
						t.Fatal(err)
					}
					return some
				}
				late := func(b *inventory.Block, late bool) bool { return late && b.Bytes() == 100 }
				if left(gaveUp) || left(late) != (name != "moved") {
					t.Errorf("got %t, and %t where what had no time is tried again, want neither but the second of what was lost", left(gaveUp), left(late))
				}
				write(t, filepath.Join(a.Dir, "cache", "late-"+name), []byte("late"))
				if !left(gaveUp) {
					t.Error("what was written since is not left")
				}
			})
		})
	}
}

// A block that the account says was deleted is left once it is written again.
func TestAnyLeftOfWhatWasDeleted(t *testing.T) {
	a, _ := cached(t, 1, 100)
	b := newNode(t, "b", with(filesStore, "cache"))
	tr := newTrip(t, a, b)
	tr.run(within(t, time.Minute))
	left := func() bool {
		some, err := AnyLeft(t.Context(), tr.cfg, gaveUp)
		if err != nil {
			t.Fatal(err)
		}
		return some
	}
	var lines []byte
	for _, name := range []string{"again", "gone"} {
		lines = manifest.Entry{ID: "cache/-/" + name, Bytes: 100, Outcome: manifest.Skipped, Reason: itIsDeleted}.AppendLine(lines)
	}
	write(t, manifest.Path(tr.cfg.Dir, manifest.Skipped), lines)
	if left() {
		t.Error("something is left, though nothing was written")
	}
	write(t, filepath.Join(a.Dir, "cache", "again"), []byte("again"))
	if !left() {
		t.Error("what was written again is not left")
	}
}

// A block that was lost because its disk did not answer is left once the disk does.
func TestAnyLeftOfWhatLayOnASilentDisk(t *testing.T) {
	a, _ := cached(t, 1, 100)
	tr := newTrip(t, a)
	for reason, want := range map[string]bool{diskio.Silence(a.Stores[0].Paths[0]).Error(): true, "input/output error": false} {
		write(t, manifest.Path(tr.cfg.Dir, manifest.Lost), manifest.Entry{ID: "cache/-/f-0000", Bytes: 100, Outcome: manifest.Lost, Reason: reason}.AppendLine(nil))
		if some, err := AnyLeft(t.Context(), tr.cfg, inTime); some != want || err != nil {
			t.Errorf("lost for %q: got %t, %v, want %t", reason, some, err, want)
		}
	}
}

// What lies on a disk that does not answer may have been written since: that is not known, and no "nothing is left".
func TestAnyLeftOnASilentDisk(t *testing.T) {
	a, f := onDisks(t, "a", []inventory.StoreConfig{with(filesStore, "s0", "s1")}, "v")
	write(t, filepath.Join(a.Dir, "s0", "x"), []byte("x"))
	tr := newTrip(t, a, newNode(t, "b"))
	tr.run(within(t, time.Minute))
	write(t, filepath.Join(a.Dir, "s0", "late"), []byte("late"))
	f.Set(f.Bad, a.Stores[0].Paths[0], true)
	if some, err := AnyLeft(t.Context(), tr.cfg, gaveUp); some || !diskio.IsSilent(err) {
		t.Errorf("got %t, %v, want that it is not known", some, err)
	}
	write(t, filepath.Join(a.Dir, "s1", "late"), []byte("late"))
	if some, err := AnyLeft(t.Context(), tr.cfg, gaveUp); !some || err != nil {
		t.Errorf("got %t, %v, want what is left on the other", some, err)
	}
}
