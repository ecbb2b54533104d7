package migration

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// indexed makes an index of a node's stores, in real time: the kernel's time stamps follow the real clock.
func indexed(t testing.TB, n *node) *inventory.Index {
	t.Helper()
	dir := filepath.Join(n.Dir, "index")
	ix := inventory.NewIndex(inventory.IndexConfig{Dir: dir, Stores: n.Stores, Disks: n.Disks, Log: slog.New(slog.DiscardHandler)})
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	outlast(t)
	ix.Look(t.Context())
	outlast(t)
	return ix
}

// alter changes a tree of files at random, and returns what it did.
func alter(t testing.TB, rng *rand.Rand, roots []string) string {
	t.Helper()
	var files, dirs []string
	root := roots[rng.IntN(len(roots))]
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			dirs = append(dirs, p)
		case e.Type().IsRegular() && e.Name() != inventory.ValuesFile:
			files = append(files, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	unused := func() string {
		name := fmt.Sprintf("n%d", rng.IntN(1000))
		return filepath.Join(dirs[rng.IntN(len(dirs))], name)
	}
	file := func() string {
		if len(files) == 0 {
			return unused()
		}
		return files[rng.IntN(len(files))]
	}
	dir := func() string { return dirs[rng.IntN(len(dirs))] }
	some := func() []byte { return contentOf(fmt.Sprint(rng.Uint64()), rng.IntN(3000)) }
	put := func(p string, b []byte) error { return os.WriteFile(p, b, 0o644) }
	a, b, d, e := file(), unused(), dir(), dir()
	changes := map[string]func() error{
		"a new file":              func() error { return put(b, some()) },
		"written in place":        func() error { return put(a, some()) },
		"a byte written in place": func() error { return errors.Join(os.Truncate(a, 0), put(a, contentOf(b, 100))) },
		"renamed over":            func() error { return errors.Join(put(b+".new", some()), os.Rename(b+".new", a)) },
		"an old file renamed":     func() error { return os.Rename(a, b) },
		"deleted":                 func() error { return os.Remove(a) },
		"deleted, made again":     func() error { return errors.Join(os.Remove(a), put(a, some())) },
		"touched":                 func() error { return os.Chmod(a, 0o600) },
		"linked":                  func() error { return os.Link(a, b) },
		"temporary":               func() error { return put(b+".tmp", some()) },
		"final":                   func() error { return errors.Join(put(b+".tmp", some()), os.Rename(b+".tmp", b)) },
		"a link":                  func() error { return os.Symlink(a, b) },
		"a name that cannot be":   func() error { return put(b+"\x01", some()) },
		"a new directory":         func() error { return errors.Join(os.Mkdir(b, 0o755), put(filepath.Join(b, "x"), some())) },
		"values": func() error {
			return put(filepath.Join(d, inventory.ValuesFile), []byte(`{"id": "x", "value": "90s"}`))
		},
		"a directory moved":       func() error { return os.Rename(d, b) },
		"directories exchanged":   func() error { return errors.Join(os.Rename(d, b), os.Rename(e, d), os.Rename(b, e)) },
		"a directory removed":     func() error { return os.RemoveAll(d) },
		"a link to where it is":   func() error { return errors.Join(os.Rename(d, b), os.Symlink(filepath.Base(b), d)) },
		"a directory, now a file": func() error { return errors.Join(os.RemoveAll(d), put(d, some())) },
		"a file, now a directory": func() error { return errors.Join(os.Remove(a), os.Mkdir(a, 0o755), put(filepath.Join(a, "y"), some())) },
		"hidden or seen":          func() error { return put(filepath.Join(roots[0], filepath.Base(a)), some()) },
	}
	words := slices.Sorted(maps.Keys(changes))
	word := words[rng.IntN(len(words))]
	if d == root && strings.Contains(word, "director") || strings.HasPrefix(word, "a link to") && d == root {
		return ""
	}
	if err := changes[word](); err != nil {
		word += " (" + err.Error() + ")" // a part of it may have happened
	}
	return fmt.Sprintf("%s: %s, %s, %s, %s", word, a, b, d, e)
}

// Whatever is done to files after they were indexed, a drain sends what a drain without an index would, and accounts for it alike.
func TestDrainWithAnIndexCarriesWhatIsThere(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 2))
			a, b := newNode(t, "a", with(filesStore, "c0", "c1")), newNode(t, "b")
			roots := a.Stores[0].Paths
			for i := range 60 {
				write(t, filepath.Join(roots[i%2], fmt.Sprint("d", i%5), fmt.Sprint("e", i%3), fmt.Sprint("f", i/3)), contentOf(fmt.Sprint(i), 100+i))
			}
			for range 10 {
				alter(t, rng, roots)
			}
			ix := indexed(t, a)
			if st := ix.State(); st.Holds.Blocks < 20 {
				t.Fatalf("the index has %+v", st)
			}
			var done []string
			for range seed % 20 {
				done = append(done, alter(t, rng, roots))
			}
			content := map[string][]byte{}
			for it, err := range a.Stores[0].Scan(t.Context()) {
				if err == nil && it.Carried() {
					content[string(it.ID)], err = os.ReadFile(filepath.Join(roots[it.Members[0].Root], it.Members[0].Path))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			control, tr := newTrip(t, a, newNode(t, "b")), newTrip(t, a, b)
			control.cfg.Dir, tr.cfg.Index = filepath.Join(a.Dir, "control"), ix
			wantSum, want := control.run(within(t, time.Minute))
			sum, entries := tr.run(within(t, time.Minute))
			for _, all := range [][]manifest.Entry{want, entries} {
				slices.SortFunc(all, func(a, b manifest.Entry) int { return bytes.Compare(a.AppendLine(nil), b.AppendLine(nil)) })
			}
			if !slices.Equal(entries, want) || sum.Total() != wantSum.Total() {
				t.Errorf("got %+v, want %+v", sum.Total(), wantSum.Total())
				for _, e := range entries {
					if !slices.Contains(want, e) {
						t.Errorf("got %+v", e)
					}
				}
				for _, e := range want {
					if !slices.Contains(entries, e) {
						t.Errorf("want %+v", e)
					}
				}
			}
			if sent, p := tr.drain.out.sent.Load(), tr.drain.Progress(); sent != sum.Moved.Bytes || p.Found != sum.Moved.Plus(sum.Lost) {
				t.Errorf("%d bytes were sent of %+v, and %+v found: something was carried twice", sent, sum.Moved, p.Found)
			}
			for _, e := range entries {
				if e.Outcome == manifest.Moved && !bytes.Equal(b.Content(t, e.ID), content[e.ID]) {
					t.Errorf("%s is not what was there", e.ID)
				}
			}
			if t.Failed() {
				t.Log(strings.Join(done, "\n"))
			}
		})
	}
}

func TestFileWrittenInPlaceAfterItWasIndexedIsCarried(t *testing.T) {
	a := shelves(t, 40)
	ix := indexed(t, a)
	if err := os.WriteFile(filepath.Join(a.Dir, "cache/d0/f0"), contentOf("longer", 5000), 0o644); err != nil {
		t.Fatal(err)
	}
	b := newNode(t, "b")
	tr := newTrip(t, a, b)
	tr.cfg.Index = ix
	sum, entries := tr.run(within(t, time.Minute))
	if sum.Moved.Blocks != 40 || sum.Total().Blocks != 40 || len(outcome(t, entries, manifest.Moved)) != 40 {
		t.Errorf("got %+v", sum)
	}
	if got := b.Content(t, "cache/-/d0/f0"); !bytes.Equal(got, contentOf("longer", 5000)) {
		t.Error("what was written in place was not carried")
	}
}

// A node that waits for its workloads makes pass after pass with the index from before the first one. A file that was written in
// place since is sent once.
func TestPassesWithOneIndex(t *testing.T) {
	a, b := shelves(t, 20), newNode(t, "b")
	ix := indexed(t, a)
	p := filepath.Join(a.Dir, "cache/d0/f0")
	for _, content := range [][]byte{contentOf("once", 1000), contentOf("twice", 1500)} {
		if err := os.WriteFile(p, content, 0o644); err != nil {
			t.Fatal(err)
		}
		outlast(t)
		for _, again := range []bool{false, true} {
			tr := newTrip(t, a, b)
			tr.cfg.Index, tr.cfg.Once = ix, true
			tr.run(within(t, time.Minute))
			if n := tr.drain.out.sent.Load(); again && n > 0 {
				t.Errorf("%d bytes were sent that an earlier pass had carried", n)
			}
			if got := b.Content(t, "cache/-/d0/f0"); !bytes.Equal(got, content) {
				t.Error("a pass did not carry what was written in place before it")
			}
		}
	}
	tr := newTrip(t, a, b)
	tr.cfg.Index = ix
	tr.run(within(t, time.Minute))
	if p := tr.drain.Progress(); p.Found != p.Moved || p.Moved.Blocks < 20 || tr.drain.out.sent.Load() > 0 {
		t.Errorf("the last pass sent %d bytes, and has %+v", tr.drain.out.sent.Load(), p)
	}
}

// shelves makes a node with files in several directories.
func shelves(t testing.TB, count int) *node {
	t.Helper()
	n := newNode(t, "a", with(filesStore, "cache"))
	for i := range count {
		write(t, filepath.Join(n.Dir, "cache", fmt.Sprint("d", i%4), fmt.Sprint("f", i)), contentOf(fmt.Sprint(i), 1000))
	}
	return n
}
