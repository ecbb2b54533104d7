package inventory

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// described returns the blocks that a look at a store finds to carry, by id: all, and those of which a file changed
// since.
func described(t *testing.T, s *Store, before Past, since time.Time) (all, changed map[string]string) {
	t.Helper()
	all, changed = map[string]string{}, map[string]string{}
	if !s.Shape.Scan(t.Context(), s, 0, before, func(it Item, err error) bool {
		if err != nil {
			t.Error(err)
		}
		if it.Carried() && it.ID != "" {
			var files []string
			for _, m := range it.Members {
				files = append(files, fmt.Sprintf("%d/%s %d bytes, changed %d", m.Root, m.Path, m.Bytes, m.ChangeTime))
			}
			all[string(it.ID)] = strings.Join(files, "\n\t")
			if changedBy(it.Changed()) >= since.UnixNano() {
				changed[string(it.ID)] = all[string(it.ID)]
			}
		}
		return true
	}) {
		t.Error("it was told to stop")
	}
	return all, changed
}

// A later look finds each map output of which a file has changed, just as a look at everything would. Two executors have map outputs of the
// same names.
func TestSparkIsLookedThroughAgainForWhatChanged(t *testing.T) {
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 4))
			n := newBox(t, with(sparkStore, "d0", "d1", "d2"))
			s := n.stores[0]
			size := func(x, m int) int { return 1000*x + 10*m + 1 }
			for x := range 2 {
				for m := range 30 {
					writeMapOutput(t, executor(n.dir, x), 0, m, size(x, m))
				}
				write(t, spot(executor(n.dir, x), "rdd_1_1"), []byte("cached"))
			}
			before := Past{Places: NewPlaces(), Kin: new(Kin)}
			outlast(t)
			before.Began = time.Now()
			if all, _ := described(t, s, before, time.Time{}); len(all) != 62 {
				t.Fatalf("the first look found %d", len(all))
			}
			file := func(kind string) string {
				return spot(executor(n.dir, rng.IntN(2)), fmt.Sprintf("shuffle_0_%d_0.%s", rng.IntN(30), kind))
			}
			changes := map[string]func() error{
				"committed anew": func() error {
					x, m := rng.IntN(2), rng.IntN(30)
					writeMapOutput(t, executor(n.dir, x), 0, m, size(x, m)+5000)
					return nil
				},
				"new":              func() error { writeMapOutput(t, executor(n.dir, rng.IntN(2)), 0, 100+rng.IntN(30), 70); return nil },
				"data touched":     func() error { return os.Chmod(file("data"), 0o600) },
				"checksum touched": func() error { return os.Chmod(file("checksum.ADLER32"), 0o600) },
				"index touched":    func() error { return os.Chmod(file("index"), 0o600) },
				"data gone":        func() error { return os.Remove(file("data")) },
				"checksum gone":    func() error { return os.Remove(file("checksum.ADLER32")) },
				"data too long":    func() error { return os.WriteFile(file("data"), make([]byte, 123), 0o644) },
				"cached anew": func() error {
					return os.WriteFile(spot(executor(n.dir, rng.IntN(2)), fmt.Sprint("rdd_1_", rng.IntN(3))), []byte("anew"), 0o644)
				},
				"another executor": func() error { writeMapOutput(t, executor(n.dir, 2), 7, rng.IntN(9), 40); return nil },
			}
			words := slices.Sorted(maps.Keys(changes))
			var done []string
			for range 3 {
				for range rng.IntN(4) {
					word := words[rng.IntN(len(words))]
					if err := changes[word](); err != nil && !errors.Is(err, os.ErrNotExist) {
						t.Fatal(err)
					}
					done = append(done, word)
				}
				before.Since, before.Last, before.Began = before.Began.Add(-ClockGrain), before.Began, time.Now()
				everything, want := described(t, s, Past{}, before.Since)
				got, _ := described(t, s, before, before.Since)
				for id, files := range want {
					if got[id] != files {
						t.Errorf("%s: got\n\t%s\nwant\n\t%s\nafter %v", id, got[id], files, done)
					}
				}
				for id, files := range got {
					if everything[id] != files {
						t.Errorf("%s: got\n\t%s\nwhich is\n\t%s\nafter %v", id, files, everything[id], done)
					}
				}
				outlast(t)
			}
		})
	}
}

// The files that tell which belong together may not have changed: the look before has learned it, or else everything is looked at.
func TestSparkIsLookedThroughAgainForWhatIsAmbiguous(t *testing.T) {
	for _, learned := range []bool{true, false} {
		n := newBox(t, with(sparkStore, "d0", "d1", "d2"))
		for x := range 2 {
			for i, m := range apart(6) {
				size := 50
				if i == 5 {
					size = 100 * (x + 1) // the output that tells which files belong together
				}
				writeMapOutput(t, executor(n.dir, x), 0, m, size)
			}
		}
		outlast(t)
		before := Past{Places: NewPlaces(), Began: time.Now(), Kin: new(Kin)}
		described(t, n.stores[0], before, time.Time{})
		if !learned {
			before.Kin = nil
		}
		outlast(t)
		if err := os.Chmod(spot(executor(n.dir, 1), fmt.Sprintf("shuffle_0_%d_0.data", apart(1)[0])), 0o600); err != nil {
			t.Fatal(err)
		}
		before.Since, before.Last, before.Began = before.Began, before.Began, time.Now()
		looked, found := described(t, n.stores[0], before, before.Since)
		if len(found) != 1 || learned != (len(looked) == 1) {
			t.Errorf("learned %v: looked at %d, found %v", learned, len(looked), found)
		}
		for id, files := range found {
			if strings.Contains(files, "blockmgr-0") {
				t.Errorf("%s is made of\n\t%s", id, files)
			}
		}
	}
}

// The index of a map output that did not change is not opened again.
func TestSparkIndexesAreNotReadAgain(t *testing.T) {
	n := newBox(t, with(sparkStore, "d0", "d1", "d2"))
	for m := range 20 {
		writeMapOutput(t, executor(n.dir, 0), 0, m, 10)
	}
	outlast(t)
	before := Past{Places: NewPlaces(), Began: time.Now()}
	described(t, n.stores[0], before, time.Time{})
	outlast(t)
	before.Since, before.Last, before.Began = before.Began, before.Began, time.Now()
	if all, _ := described(t, n.stores[0], before, before.Since); len(all) != 0 {
		t.Errorf("%d map outputs were looked at, want none", len(all))
	}
}

// BenchmarkLookAgain is a drain's look on a node at peace once all has left; whole is a first look.
func BenchmarkLookAgain(b *testing.B) {
	const count = 10_000
	for _, how := range []string{"whole", "again"} {
		b.Run(how, func(b *testing.B) {
			n := newBox(b, with(sparkStore, "d0", "d1"))
			for i := range count {
				writeMapOutput(b, []string{filepath.Join(n.dir, "d0/blockmgr-a"), filepath.Join(n.dir, "d1/blockmgr-b")}, 0, i, 4)
			}
			outlast(b)
			before := Past{Places: NewPlaces(), Kin: new(Kin), Began: time.Now()}
			s := n.stores[0]
			look := func() { s.Shape.Scan(b.Context(), s, 0, before, func(Item, error) bool { return true }) }
			look()
			if how == "again" {
				before.Since, before.Last = before.Began, before.Began
			}
			used := cpuTime(b)
			for b.Loop() {
				look()
			}
			b.ReportMetric(float64((cpuTime(b)-used).Nanoseconds())/1e3/float64(b.N)/count, "CPU-us/block")
		})
	}
}
