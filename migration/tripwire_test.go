package migration

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// looker looks through the first part of a node's first store again and again, as a drain does.
type looker struct {
	t     *testing.T
	s     *Store
	wires *tripwires
	past  past
}

func newLooker(t *testing.T, n *node) *looker {
	t.Helper()
	wires := newTripwires()
	if wires.open(); wires.fd < 0 {
		t.Fatal("no wires can be laid here")
	}
	t.Cleanup(wires.close)
	outlast(t)
	l := &looker{t: t, s: n.stores[0], wires: wires, past: past{places: newPlaces(), wires: wires}}
	l.look(time.Time{})
	outlast(t)
	return l
}

// look returns what is found of what changed since.
func (l *looker) look(since time.Time) (found []string) {
	l.t.Helper()
	l.past.since, l.past.last, l.past.began = since, l.past.began, time.Now()
	if !l.s.layout.scan(l.t.Context(), l.s, 0, l.past, func(it Item, err error) bool {
		if err != nil {
			l.t.Error(err)
		}
		if it.ID != "" {
			found = append(found, string(it.ID))
		}
		return true
	}) {
		l.t.Error("it was told to stop")
	}
	slices.Sort(found)
	return found
}

// again looks for what changed since the look before.
func (l *looker) again() []string {
	l.t.Helper()
	return l.look(l.past.began.Add(-clockGrain))
}

// passedBy are the directories that the last look did not read.
func (l *looker) passedBy() (dirs []string) {
	for at, wire := range l.wires.at {
		if wire.passed {
			dirs = append(dirs, at.path)
		}
	}
	slices.Sort(dirs)
	return dirs
}

// A look that goes by wires finds what one finds that looks at every file, whatever is done to them in between. Only that a file has got
// another name somewhere else changes nothing that is in it.
func TestLooksByTripwiresFindWhatChanged(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 3))
			a := newNode(t, "a", with(filesStore, "c0"))
			roots := a.stores[0].Paths
			for i := range 60 {
				write(t, filepath.Join(roots[0], fmt.Sprint("d", i%5), fmt.Sprint("e", i%3), fmt.Sprint("f", i/3)), contentOf(fmt.Sprint(i), 100+i))
			}
			l, passed := newLooker(t, a), 0
			var done []string
			for range 4 {
				for range rng.IntN(3) {
					done = append(done, alter(t, rng, roots))
				}
				since := l.past.began.Add(-clockGrain)
				full := &looker{t: t, s: l.s, past: past{places: &places{seed: l.past.places.seed, of: maps.Clone(l.past.places.of), all: l.past.places.all}, began: l.past.began}}
				want, got := full.look(since), l.look(since)
				for _, id := range want {
					linked := func(word string) bool {
						return strings.HasPrefix(word, "linked: "+filepath.Join(roots[0], string(BlockID(id).Name()))+",")
					}
					if !slices.Contains(got, id) && !slices.ContainsFunc(done, linked) {
						t.Errorf("%s was not found\n%s", id, strings.Join(done, "\n"))
					}
				}
				passed += len(l.passedBy())
				outlast(t)
			}
			if passed == 0 {
				t.Error("no directory was ever passed by")
			}
		})
	}
}

// What no file was written in is not read again, and what is below it is looked through all the same.
func TestDirectoriesWithWholeTripwiresArePassedBy(t *testing.T) {
	a := shelves(t, 40)
	cache := filepath.Join(a.dir, "cache")
	write(t, filepath.Join(cache, "d1/below/x"), nil)
	l := newLooker(t, a)
	held, err := os.OpenFile(filepath.Join(cache, "d1/below/x"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for _, change := range []struct {
		what   string
		do     func() error
		found  string
		passed []string
	}{
		{"nothing", func() error { return nil }, "", []string{".", "d0", "d1", "d1/below", "d2", "d3"}},
		{"a write to what is open", func() error { _, err := held.WriteString("more"); return err }, "cache/-/d1/below/x", []string{".", "d0", "d1", "d2", "d3"}},
		{"truncated", func() error { return os.Truncate(filepath.Join(cache, "d2/f2"), 1) }, "cache/-/d2/f2", []string{".", "d0", "d1", "d1/below", "d3"}},
		{"nothing more", func() error { return nil }, "", []string{".", "d0", "d1", "d1/below", "d2", "d3"}},
	} {
		if err := change.do(); err != nil {
			t.Fatal(err)
		}
		outlast(t)
		// What was passed by before is looked at whole, so what is wanted is among more.
		found := l.again()
		if change.found != "" && !slices.Contains(found, change.found) || change.found == "" && len(found) != 0 {
			t.Errorf("%s: found %v", change.what, found)
		}
		if passed := l.passedBy(); !slices.Equal(passed, change.passed) {
			t.Errorf("%s: passed by %v, want %v", change.what, passed, change.passed)
		}
		outlast(t)
	}
}

// A write has the time of its beginning, and breaks a wire at its end: a look that passes by between the two must not have the next one
// take it for known.
func TestAWriteThatTookLongIsFound(t *testing.T) {
	a := shelves(t, 8)
	l := newLooker(t, a)
	l.again()
	write(t, filepath.Join(a.dir, "cache/d1/f1"), []byte("begun long ago"))
	late := time.Now().Add(time.Hour)
	if found := l.look(late); !slices.Contains(found, "cache/-/d1/f1") {
		t.Errorf("found %v", found)
	}
	if found := l.look(late); len(found) != 0 {
		t.Errorf("found %v once more", found)
	}
}

// Where a wire cannot tell, there is none: a file can be written to by its other name, and links lead anywhere.
func TestWhereNoTripwireIsLaid(t *testing.T) {
	a := shelves(t, 8)
	cache := filepath.Join(a.dir, "cache")
	if err := errors.Join(
		os.Link(filepath.Join(cache, "d0/f0"), filepath.Join(a.dir, "elsewhere")),
		os.Symlink("f1", filepath.Join(cache, "d1/link")),
		unix.Mkfifo(filepath.Join(cache, "d2/pipe"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	l := newLooker(t, a)
	l.again()
	if passed := l.passedBy(); !slices.Equal(passed, []string{".", "d3"}) {
		t.Errorf("passed by %v", passed)
	}
	write(t, filepath.Join(a.dir, "elsewhere"), []byte("by another name"))
	if found := l.again(); !slices.Contains(found, "cache/-/d0/f0") {
		t.Errorf("found %v", found)
	}
}

// There are no more wires than are set, and those of directories that are gone make room for others.
func TestTripwiresAreBounded(t *testing.T) {
	a := shelves(t, 8)
	cache := filepath.Join(a.dir, "cache")
	l := newLooker(t, a)
	l.wires.most = 5
	for i := range 3 {
		if err := os.RemoveAll(filepath.Join(cache, fmt.Sprint("d", i))); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(cache, fmt.Sprint("n", i), "x"), nil)
		write(t, filepath.Join(cache, fmt.Sprint("m", i), "x"), nil)
		outlast(t)
		l.again()
		if len(l.wires.at) != 5 || len(l.wires.of) > 5 {
			t.Errorf("%d wires, %d of them whole", len(l.wires.at), len(l.wires.of))
		}
	}
	write(t, filepath.Join(cache, "m2/x"), []byte("new"))
	if found := l.again(); !slices.Contains(found, "cache/-/m2/x") {
		t.Errorf("found %v", found)
	}
	l.wires.close()
	write(t, filepath.Join(cache, "m2/x"), []byte("newer"))
	if found := l.again(); !slices.Contains(found, "cache/-/m2/x") {
		t.Errorf("with no wires at all: found %v", found)
	}
}

// Where the kernel has lost count of what happened, nothing is passed by.
func TestLostEventsBreakAllTripwires(t *testing.T) {
	a := shelves(t, 8)
	l := newLooker(t, a)
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[1])
	kernel := l.wires.fd
	defer unix.Close(kernel)
	l.wires.fd = p[0]
	event := make([]byte, unix.SizeofInotifyEvent)
	binary.NativeEndian.PutUint32(event, ^uint32(0))
	binary.NativeEndian.PutUint32(event[4:], unix.IN_Q_OVERFLOW)
	if _, err := unix.Write(p[1], event); err != nil {
		t.Fatal(err)
	}
	l.again()
	if passed := l.passedBy(); len(passed) != 0 {
		t.Errorf("passed by %v", passed)
	}
}

// A drain's second look finds what was written in place since its index was made, and passes by the rest.
func TestADrainGoesByTheTripwiresOfItsIndex(t *testing.T) {
	a, b := shelves(t, 40), newNode(t, "b")
	tr := newTrip(t, a, b)
	tr.cfg.Index = indexed(t, a)
	later := contentOf("later", 2000)
	var once sync.Once
	tr.wrap = func(c net.Conn) net.Conn {
		once.Do(func() {
			write(t, filepath.Join(a.dir, "cache/d1/f1"), later)
		})
		return c
	}
	_, entries := tr.run(within(t, time.Minute))
	wantThere(t, map[string][]byte{"cache/-/d1/f1": later, "cache/-/d0/f0": contentOf("0", 1000)}, entries, b)
	l := &looker{wires: tr.cfg.Index.wires}
	if passed := l.passedBy(); !slices.Contains(passed, "d0") || slices.Contains(passed, "d1") {
		t.Errorf("passed by %v", passed)
	}
}

// BenchmarkLookAgain is what a drain on a node at peace does once all has left; whole is what it did before it went by what changed.
func BenchmarkLookAgain(b *testing.B) {
	const count = 10_000
	for _, layout := range []StoreConfig{filesStore, sparkStore} {
		for _, how := range []string{"whole", "by time", "by tripwires"} {
			b.Run(layout.Layout+"/"+how, func(b *testing.B) {
				n := newNode(b, "a", with(layout, "d0", "d1"))
				for i := range count {
					if layout.Layout == LayoutFiles {
						plainFile(b, filepath.Join(n.dir, fmt.Sprintf("d0/%02x/%d", i%64, i)), nil)
					} else {
						writeMapOutput(b, []string{filepath.Join(n.dir, "d0/blockmgr-a"), filepath.Join(n.dir, "d1/blockmgr-b")}, 0, i, 4)
					}
				}
				outlast(b)
				before := past{places: newPlaces(), kin: new(kin), began: time.Now()}
				if how == "by tripwires" {
					before.wires = newTripwires()
					before.wires.open()
					defer before.wires.close()
				}
				s := n.stores[0]
				look := func() {
					for part := range s.layout.parts(s) {
						s.layout.scan(b.Context(), s, part, before, func(Item, error) bool { return true })
					}
				}
				look()
				if how != "whole" {
					before.since, before.last = before.began, before.began
				}
				for b.Loop() {
					look()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/count, "ns/block")
			})
		}
	}
}
