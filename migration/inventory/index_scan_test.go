package inventory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// scannedBy returns the blocks that an index has, by id.
func scannedBy(t *testing.T, ix *Index, s *Store) map[BlockID]Block {
	t.Helper()
	x := ix.Open(t.Context(), s, 0)
	if x == nil {
		t.Fatal("no index")
	}
	defer x.Close()
	all := map[BlockID]Block{}
	if !x.Scan(t.Context(), func(it Item, err error) bool {
		if err != nil {
			t.Error(err)
		}
		it.Members = slices.Clone(it.Members) // they are valid only until the next item
		all[it.ID] = it.Block
		return true
	}) {
		t.Error("it was told to stop")
	}
	return all
}

// Files with the same name and inode are not looked at, not even in directories where a name came or went.
func TestIndexedFilesAreNotLookedAt(t *testing.T) {
	a := filled(t, 40)
	cache := filepath.Join(a.dir, "cache")
	for i := range 2 * mostUnmet {
		plainFile(t, filepath.Join(cache, "d1", fmt.Sprint("many", i)), nil)
	}
	ix := indexBox(t, a)
	longer := func(name string) string {
		p := filepath.Join(cache, name)
		if err := os.WriteFile(p, contentOf("longer", 5000), 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	longer("d0/f0")
	longer("d1/f1")
	if err := errors.Join(os.Rename(longer("d1/f5.new"), filepath.Join(cache, "d1/f5")), os.Remove(filepath.Join(cache, "d1/f9"))); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * mostUnmet { // so many that the older names lie far apart
		plainFile(t, filepath.Join(cache, "d1", fmt.Sprint("more", i)), nil)
	}
	got := scannedBy(t, ix, a.stores[0])
	if want := 40 + 4*mostUnmet - 1; len(got) != want {
		t.Errorf("got %d blocks, want %d", len(got), want)
	}
	for name, want := range map[string]int64{"d0/f0": 1000, "d1/f1": 1000, "d1/f5": 5000, "d1/more1": 0, "d1/f9": 0} {
		if b := got[BlockID("cache/-/"+name)]; b.Bytes() != want {
			t.Errorf("%s has %d bytes, want %d: what was written in place is not seen yet, what was renamed over another is", name, b.Bytes(), want)
		}
	}
	if _, ok := got["cache/-/d1/f9"]; ok {
		t.Error("what is gone is yielded")
	}
}

// Whatever is wrong with an index, it never yields a wrong name: the store is looked through instead.
func TestDamagedIndexIsNotUsed(t *testing.T) {
	a := filled(t, 40)
	damage := map[string]func(p string) error{
		"flipped": func(p string) error {
			b, err := os.ReadFile(p)
			if err == nil {
				b[len(b)/2] ^= 4
				err = os.WriteFile(p, b, 0o600)
			}
			return err
		},
		"short": func(p string) error { return os.Truncate(p, 100) },
		"long": func(p string) error {
			info, err := os.Stat(p)
			return errors.Join(err, os.Truncate(p, info.Size()+1))
		},
		"gone": os.Remove,
	}
	for word, do := range damage {
		for _, file := range []string{"*.dirs", "*.blocks"} {
			t.Run(word+file, func(t *testing.T) {
				ix := indexBox(t, a)
				found, err := filepath.Glob(filepath.Join(ix.cfg.Dir, file))
				if err != nil || len(found) != 1 {
					t.Fatal(found, err)
				}
				if err := do(found[0]); err != nil {
					t.Fatal(err)
				}
				var said bytes.Buffer
				ix.cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
				if x := ix.Open(t.Context(), a.stores[0], 0); x != nil {
					x.Close()
					t.Error("it is used")
				}
				if !strings.Contains(said.String(), "an index cannot be used") {
					t.Errorf("the log says %q", &said)
				}
				ix.Look(t.Context())
				if got := scannedBy(t, ix, a.stores[0]); len(got) != 40 {
					t.Errorf("the next look made one of %d blocks", len(got))
				}
				ix.drop()
			})
		}
	}
}

func TestIndexIsNotTrustedWhenTheClockWasSet(t *testing.T) {
	a := filled(t, 4)
	ix := indexBox(t, a)
	scannedBy(t, ix, a.stores[0])
	ix.parts[0].now.drift -= time.Second // as if the machine's clock had been set
	if x := ix.Open(t.Context(), a.stores[0], 0); x != nil {
		x.Close()
		t.Error("it is used: a file that was written since may bear an older time")
	}
}

func TestIndexIsKeptWhileTheNodeIsAtPeace(t *testing.T) {
	a := filled(t, 20)
	var leaves atomic.Bool
	synctest.Test(t, func(t *testing.T) {
		ix := NewIndex(IndexConfig{Dir: filepath.Join(a.dir, "index"), Stores: a.stores, Leaves: leaves.Load, Log: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ix.Run(ctx) }()
		pass := func(d time.Duration, want int64) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := ix.State().Holds.Blocks; got != want {
				t.Errorf("got %d blocks, want %d", got, want)
			}
		}
		pass(diskio.FirstLook-time.Second, 0)
		pass(2*time.Second, 20)
		write(t, filepath.Join(a.dir, "cache/d0/more"), nil)
		pass(2*diskio.LeastLook, 21)
		leaves.Store(true)
		write(t, filepath.Join(a.dir, "cache/d0/yet more"), nil)
		pass(10*diskio.LeastLook, 21)
		leaves.Store(false)
		pass(2*diskio.LeastLook, 22)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(a.dir, "index/*")); len(left) > 0 || ix.State().Holds.Blocks != 0 {
			t.Errorf("it left %q", left)
		}
	})
}

// An index that still stands is not made again: only the directories are looked at.
func TestIndexThatStandsIsKept(t *testing.T) {
	a := filled(t, 20)
	ix := indexBox(t, a)
	was := ix.parts[0].now
	checked := was.checked
	ix.Look(t.Context())
	if ix.parts[0].now != was || !was.checked.After(checked) {
		t.Error("nothing changed, and it was made anew or not looked after")
	}
	if err := os.Remove(filepath.Join(a.dir, "cache/d0/f0")); err != nil {
		t.Fatal(err)
	}
	ix.Look(t.Context())
	if ix.parts[0].now == was || ix.State().Holds.Blocks != 19 {
		t.Error("a file is gone, and the index has it")
	}
	write(t, filepath.Join(a.dir, "cache/d0/large"), make([]byte, 1<<20))
	ix.Look(t.Context())
	if got := ix.State().Largest; got != 1<<20 {
		t.Errorf("the largest block has %d bytes, want those of the one that came", got)
	}
}

// If a directory changed while it was looked at, its times do not tell whether it changed again.
func TestDirectoryThatChangesAroundTheLookIsReadAgain(t *testing.T) {
	a := filled(t, 20)
	ix := indexBox(t, a)
	write(t, filepath.Join(a.dir, "cache/d0/more"), nil)
	ix.Look(t.Context())
	was := ix.parts[0].now
	outlast(t)
	ix.Look(t.Context())
	settled := ix.parts[0].now
	ix.Look(t.Context())
	if was == settled || settled != ix.parts[0].now || settled.holds.Blocks != 21 {
		t.Error("it must be made again once, when the directory has come to rest")
	}
}

// A directory's values are read again if a name came or went in it.
func TestNewValuesOfIndexedFilesAreRead(t *testing.T) {
	a := filled(t, 20)
	values := filepath.Join(a.dir, "cache/d0", ValuesFile)
	write(t, values, []byte(`{"id": "f0", "value": "90s"}`))
	ix := indexBox(t, a)
	want := func(err error, f0, f4 time.Duration) {
		t.Helper()
		got := scannedBy(t, ix, a.stores[0])
		if a, b := got["cache/-/d0/f0"].Value, got["cache/-/d0/f4"].Value; err != nil || a != f0 || b != f4 {
			t.Errorf("got %v and %v (%v), want %v and %v", a, b, err, f0, f4)
		}
	}
	want(nil, 90*time.Second, 0)
	write(t, filepath.Join(a.dir, "said"), []byte(`{"id": "f4", "value": "8s"}`))
	want(os.Rename(filepath.Join(a.dir, "said"), values), 0, 8*time.Second)
	want(os.Remove(values), 0, 0)
}

// The first of a store's directories that has a name wins, whenever it got the name.
func TestIndexedFileIsHiddenByANewOne(t *testing.T) {
	n := newBox(t, with(filesStore, "c0", "c1"))
	for _, p := range []string{"c0/d/both", "c1/d/both", "c1/d/one"} {
		write(t, filepath.Join(n.dir, p), nil)
	}
	ix := indexBox(t, n)
	yields := func(why string, want ...string) {
		t.Helper()
		x := ix.Open(t.Context(), n.stores[0], 1)
		defer x.Close()
		var got []string
		x.Scan(t.Context(), func(it Item, err error) bool { got = append(got, string(it.ID)+" "+it.Skip); return err == nil })
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", why, got, want)
		}
	}
	hidden := "the same name is in " + n.stores[0].Paths[0] + ", which comes first"
	yields("as it was", "cache/-/d/both "+hidden, "cache/-/d/one ")
	write(t, filepath.Join(n.dir, "c0/d/one"), nil)
	yields("one is hidden", "cache/-/d/both "+hidden, "cache/-/d/one "+hidden)
	if err := os.RemoveAll(filepath.Join(n.dir, "c0/d")); err != nil {
		t.Fatal(err)
	}
	yields("none is", "cache/-/d/both ", "cache/-/d/one ")
}

func TestWithoutAPlaceThereIsNoIndex(t *testing.T) {
	a := filled(t, 20)
	file := filepath.Join(a.dir, "file")
	write(t, file, nil)
	var said bytes.Buffer
	ix := NewIndex(IndexConfig{Dir: filepath.Join(file, "index"), Stores: a.stores, Log: slog.New(slog.NewTextHandler(&said, nil))})
	ix.Look(t.Context())
	ix.Look(t.Context())
	if n := strings.Count(said.String(), "\n"); n != 1 {
		t.Errorf("%d lines in the log, want one: %s", n, &said)
	}
	if err := ix.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if x := ix.Open(t.Context(), a.stores[0], 0); x != nil {
		x.Close()
		t.Error("there is one")
	}
}

// A kernel without openat2, or a container that forbids it, has directories opened name by name: the same ones, and no others.
func TestDirectoriesAreOpenedNameByName(t *testing.T) {
	a := newBox(t, with(filesStore, "cache"))
	s, dir := a.stores[0], filepath.Join(a.dir, "cache")
	write(t, filepath.Join(dir, "one/two/file"), nil)
	for name, to := range map[string]string{"up": "..", "there": "one", "one/beside": "two"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []string{".", "one", "one/two", "absent", "one/absent/x", "one/two/file", "up", "there", "there/two", "one/beside", "../cache", "one/../.."} {
		how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
		want, wantErr := unix.Openat2(int(s.DirFiles[0].Fd()), at, &how)
		got, err := openSteps(int(s.DirFiles[0].Fd()), at)
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%s: got %v, want %v", at, err, wantErr)
		}
		if err != nil || wantErr != nil {
			continue
		}
		is, _ := dirIDOf(got)
		if was, _ := dirIDOf(want); is != was {
			t.Errorf("%s: got another directory", at)
		}
		unix.Close(got)
		unix.Close(want)
	}
}

// A store's directory cannot be opened anew.
func TestStoreThatCannotBeIndexed(t *testing.T) {
	a := filled(t, 20)
	ix, s := indexBox(t, a), a.stores[0]
	if err := s.DirFiles[0].Close(); err != nil { // each openat2 fails, and the store's os.Root is well
		t.Fatal(err)
	}
	if got := scannedBy(t, ix, s); len(got) != 20 {
		t.Errorf("got %d blocks with the index of before", len(got))
	}
	ix.parts[0].set(nil)
	ix.Look(t.Context())
	if st := ix.State(); !st.AsOf.IsZero() {
		t.Errorf("there is an index: %+v", st)
	}
}

// A look that hangs is left behind. It holds up neither the end nor the other parts, and no second look joins it.
func TestLookThatHangs(t *testing.T) {
	n, f := newBox(t, with(filesStore, "c0", "c1")), &silentDisks{Disks: diskio.OrWell(nil)}
	n.disks = f
	for i := range 8 {
		write(t, filepath.Join(n.stores[0].Paths[i%2], fmt.Sprint(i)), nil)
	}
	ix := indexBox(t, n)
	// Opening a pipe without a writer hangs as a read from a dead disk does.
	p := ix.parts[0].now.dirs.path
	if err := errors.Join(os.Remove(p), unix.Mkfifo(p, 0o600)); err != nil {
		t.Skipf("no pipe to hang on: %v", err)
	}
	t.Cleanup(func() {
		if w, err := os.OpenFile(p, os.O_RDWR, 0); err == nil {
			w.Close()
		}
	})
	write(t, filepath.Join(n.stores[0].Paths[1], "more"), nil)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	began := time.Now()
	ix.lookAt(ctx, ix.parts[0])
	if took := time.Since(began); took > diskio.Overdue/2 {
		t.Errorf("the end waited %v for it", took)
	}
	ix.Look(t.Context())
	if ix.parts[1].now.holds.Blocks != 5 {
		t.Error("the other part was not looked at")
	}
	f.hang(ix.cfg.Dir, true)
	if x := ix.Open(t.Context(), n.stores[0], 1); x != nil {
		x.Close()
		t.Error("an index is read from a disk that does not answer")
	}
}

// One of a store's directories has a file where another has a directory of that name: blocks in the latter are found.
func TestBlockBesideAFileOfItsDirectorysName(t *testing.T) {
	n := newBox(t, with(filesStore, "c0", "c1"))
	write(t, filepath.Join(n.dir, "c0/x"), nil)
	write(t, filepath.Join(n.dir, "c1/x/y"), nil)
	if b, err := n.stores[0].Find("cache/-/x/y"); err != nil || b.Members[0].Root != 1 {
		t.Errorf("got %+v, %v", b, err)
	}
}

// A Spark block depends on several directories, and on the content of its files.
func TestSparkStoresHaveNoIndex(t *testing.T) {
	n := newBox(t, with(sparkStore, "d0"))
	if ix := NewIndex(IndexConfig{Stores: n.stores, Log: slog.New(slog.DiscardHandler)}); len(ix.parts) != 0 || ix.Run(t.Context()) != nil {
		t.Error("it has one")
	}
}

func BenchmarkScanIndexed(b *testing.B) {
	for _, stirred := range []bool{false, true} {
		b.Run(fmt.Sprintf("stirred=%v", stirred), func(b *testing.B) {
			count := 20_000
			n := newBox(b, with(filesStore, "cache"))
			for i := range count {
				plainFile(b, filepath.Join(n.dir, "cache", fmt.Sprintf("%02x", i%64), fmt.Sprint(i)), nil)
			}
			ix := indexBox(b, n)
			for i := range 640 {
				if stirred {
					plainFile(b, filepath.Join(n.dir, "cache", fmt.Sprintf("%02x", i%64), fmt.Sprint("new", i)), nil)
					count++
				}
			}
			for b.Loop() {
				x, got := ix.Open(b.Context(), n.stores[0], 0), 0
				x.Scan(b.Context(), func(Item, error) bool { got++; return true })
				x.Close()
				if got != count {
					b.Fatalf("%d blocks, want %d", got, count)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(count), "ns/block")
		})
	}
}

// filled is a node with files in several directories.
func filled(t testing.TB, count int) *box {
	t.Helper()
	n := newBox(t, with(filesStore, "cache"))
	for i := range count {
		write(t, filepath.Join(n.dir, "cache", fmt.Sprint("d", i%4), fmt.Sprint("f", i)), contentOf(fmt.Sprint(i), 1000))
	}
	return n
}

// An operator who reads the log can rename such files in time.
func TestIndexWarnsOfNamesThatAreNoIDs(t *testing.T) {
	a := filled(t, 3)
	ix := indexBox(t, a)
	var said bytes.Buffer
	ix.cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
	write(t, filepath.Join(a.dir, "cache", "tab\there"), nil)
	ix.Look(t.Context())
	if got := said.String(); !strings.Contains(got, "rename them") || !strings.Contains(got, "files=1") || !strings.Contains(got, "tab") {
		t.Errorf("the log says %q", got)
	}
	said.Reset()
	write(t, filepath.Join(a.dir, "cache", "another"), nil)
	outlast(t)
	ix.Look(t.Context())
	if said.Len() > 0 {
		t.Errorf("it says so again: %q", &said)
	}
}
