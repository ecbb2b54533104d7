package migration

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
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/nodetest"
	"github.com/lifeboat/lifeboat/migration/reading"
)

// stayed is a node whose withdrawn drain has moved all of ten files to b.
type stayed struct {
	*trip
	a, b    *node
	leaves  bool
	fails   error    // the error of every call of Forget
	told    []string // ids that peers were told to forget
	log     bytes.Buffer
	entries []manifest.Entry
}

func withdrawn(t *testing.T, before ...func(a *node)) *stayed {
	t.Helper()
	a, _ := cached(t, 10, 5000)
	for _, do := range before {
		do(a)
	}
	s := &stayed{a: a, b: newNode(t, "b")}
	s.trip = newTrip(t, a, s.b)
	_, s.entries = s.run(within(t, time.Minute))
	s.cfg.Disks = newFakeDisks(1<<40, a.Dir)
	s.cfg.Log = slog.New(slog.NewTextHandler(&s.log, nil))
	s.forgetful()
	forget := s.cfg.Forget
	s.cfg.Forget = func(ctx context.Context, h reading.Holder, id inventory.BlockID, tag string) error {
		s.told = append(s.told, string(id))
		if s.fails != nil {
			return s.fails
		}
		return forget(ctx, h, id, tag)
	}
	return s
}

// lookBack returns a new one, as a process that starts has.
func (s *stayed) lookBack() *lookBack {
	return newLookBack(s.cfg, func() []string { return []string{s.cfg.Dir, filepath.Join(s.a.Dir, "never")} }, func() bool { return s.leaves })
}

func (s *stayed) file(n int) string { return filepath.Join(s.a.Dir, "cache", fmt.Sprintf("f-%04d", n)) }

func (s *stayed) remove(t *testing.T, files ...int) {
	t.Helper()
	for _, n := range files {
		if err := os.Remove(s.file(n)); err != nil {
			t.Fatal(err)
		}
	}
}

// wantTold looks once, and checks which files peers were told to forget.
func (s *stayed) wantTold(t *testing.T, l *lookBack, files ...int) {
	t.Helper()
	var want []string
	for _, n := range files {
		want = append(want, fmt.Sprintf("cache/-/f-%04d", n))
	}
	s.told = nil
	l.look(t.Context())
	if slices.Sort(s.told); !slices.Equal(s.told, want) {
		t.Errorf("told to forget %v, want %v", s.told, want)
	}
}

// A node that stays tells peers to forget blocks that it has changed or deleted since its drain: once, and not again after a restart.
func TestPeersForgetWhatIsOutOfDateThoughNobodyLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withdrawn(t)
		l := s.lookBack()
		s.wantTold(t, l)
		write(t, s.file(0), []byte("newer"))
		s.remove(t, 1)
		s.wantTold(t, l, 0, 1)
		for _, id := range []inventory.BlockID{"cache/-/f-0000", "cache/-/f-0001"} {
			if s.b.Has(id) {
				t.Errorf("b still serves %s", id)
			}
		}
		s.wantTold(t, l)
		write(t, s.file(0), []byte("newest"))
		s.wantTold(t, s.lookBack())
		write(t, s.file(2), []byte("newer"))
		s.wantTold(t, s.lookBack(), 2)
		if got := entriesOf(t, s.cfg.Dir); len(outcome(t, got, manifest.Moved)) != len(s.entries) {
			t.Errorf("the account of the drain is another: %v", got)
		}

		s.told, s.cfg.Dir, s.cfg.Earlier = nil, filepath.Join(s.a.Dir, "another-incident"), []string{s.cfg.Dir}
		if sum, _ := s.run(within(t, time.Minute)); sum.Moved.Blocks != 9 || len(s.told) > 0 {
			t.Errorf("another drain moved %+v and had %v forgotten", sum.Moved, s.told)
		}
		if !s.b.Has("cache/-/f-0000") {
			t.Error("what was carried anew is not there")
		}
	})
}

// A peer that does not answer is told at a later look, and the log says of it once.
func TestPeerThatIsAwayIsToldLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withdrawn(t)
		l := s.lookBack()
		for n := range 3 {
			write(t, s.file(n), []byte("newer"))
		}
		s.fails = errors.New("no route")
		for range 3 {
			s.told = nil
			if l.look(t.Context()); len(s.told) != 1 {
				t.Errorf("%v were tried in one look, want one", s.told)
			}
		}
		if n := strings.Count(s.log.String(), "no route"); n != 2 {
			t.Errorf("said %d times:\n%s", n, &s.log)
		}
		s.fails = nil
		s.wantTold(t, l, 0, 1, 2)
		if n := strings.Count(s.log.String(), "peers forgot copies"); n != 1 {
			t.Errorf("said %d times:\n%s", n, &s.log)
		}
	})
}

// No peer is told anything while the node leaves, because its drain does that; nor while a disk is away, because a missing file may be on
// it.
func TestNobodyLooksBackWhileANodeLeavesOrADiskIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withdrawn(t)
		disks := s.cfg.Disks.(*nodetest.Disks)
		s.remove(t, 1)
		s.leaves = true
		s.wantTold(t, s.lookBack())
		s.leaves = false
		for _, dir := range []string{s.a.Stores[0].Paths[0], s.cfg.Dir} {
			disks.Set(disks.Bad, dir, true)
			s.wantTold(t, s.lookBack())
			disks.Set(disks.Bad, dir, false)
		}
		s.wantTold(t, s.lookBack(), 1)
	})
}

// Peers keep their copies when an engine cleans up as it ends, however slowly: it has not said that its blocks are of no use. The same
// holds for a disk that was not mounted when the machine came up again.
func TestPeersKeepMostOfWhatIsDeletedThoughNobodyLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withdrawn(t)
		l := s.lookBack()
		s.remove(t, 0, 1, 2, 3)
		s.wantTold(t, l, 0, 1, 2, 3)
		s.remove(t, 4, 5)
		for range 2 {
			s.wantTold(t, l)
		}
		if n := strings.Count(s.log.String(), "the peers keep it"); n != 1 {
			t.Errorf("said %d times:\n%s", n, &s.log)
		}
	})
	t.Run("not mounted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := newNode(t, "a", with(filesStore, "c0", "c1")), newNode(t, "b")
			for n := range 10 {
				write(t, filepath.Join(a.Dir, "c"+fmt.Sprint(min(n, 1)), fmt.Sprint(n)), contentOf(fmt.Sprint(n), 100))
			}
			s := &stayed{a: a, b: b, trip: newTrip(t, a, b)}
			s.run(within(t, time.Minute))
			s.cfg.Forget = func(_ context.Context, _ reading.Holder, id inventory.BlockID, _ string) error {
				s.told = append(s.told, string(id))
				return nil
			}
			if err := os.Remove(filepath.Join(a.Dir, "c0/0")); err != nil {
				t.Fatal(err)
			}
			s.wantTold(t, s.lookBack())
		})
	})
}

// Blocks that a node holds for others are no files of its own, however many they are. They do not count when the node judges whether most
// of the files that it moved are deleted.
func TestDeletedFileIsForgottenAmongBlocksOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withdrawn(t, func(a *node) {
			for n := range 30 {
				landAll(t, a, blockFrames(uint32(n+1), fmt.Sprintf("cache/-/g-%04d", n), contentOf(fmt.Sprint(n), 100)))
			}
		})
		if len(s.entries) != 40 {
			t.Fatalf("%d blocks were moved, want all of the node's", len(s.entries))
		}
		l := s.lookBack()
		s.wantTold(t, l)
		s.remove(t, 1)
		s.wantTold(t, l, 1)
		s.remove(t, 2, 3, 4, 5, 6, 7)
		s.wantTold(t, l)
	})
}

// A map output that was handed on and came home has the newest time of its files for all of them. It has not changed.
func TestPeersKeepAMapOutputThatCameHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newNode(t, "a", with(sparkStore, "d0")), newNode(t, "b", with(sparkStore, "d0"))
		newest := time.Now().Add(-time.Hour)
		var files []string
		for n := range 5 {
			for name := range writeMapOutput(t, []string{filepath.Join(a.Dir, "d0/blockmgr-1")}, 0, n, 100, 200) {
				_, sub := inventory.SparkPlace(name, 1)
				files = append(files, filepath.Join(a.Dir, "d0/blockmgr-1", sub, name))
			}
		}
		written := func(at func(file string) time.Time) {
			for _, f := range files {
				if err := os.Chtimes(f, at(f), at(f)); err != nil {
					t.Fatal(err)
				}
			}
		}
		written(func(file string) time.Time {
			if filepath.Ext(file) == ".index" {
				return newest
			}
			return newest.Add(-time.Second)
		})
		s := &stayed{a: a, b: b, trip: newTrip(t, a, b)}
		s.run(within(t, time.Minute))
		s.cfg.Disks = newFakeDisks(1<<40, a.Dir)
		s.cfg.Forget = func(_ context.Context, _ reading.Holder, id inventory.BlockID, _ string) error {
			s.told = append(s.told, string(id))
			return nil
		}
		written(func(string) time.Time { return newest })
		s.wantTold(t, s.lookBack())
		written(func(string) time.Time { return newest.Add(time.Minute) })
		if s.lookBack().look(t.Context()); len(s.told) != 5 {
			t.Errorf("told to forget %v, want all that is newer here", s.told)
		}
	})
}

// A look that hangs does not keep the process from ending, and no second one is begun beside it.
func TestLookBackThatHangs(t *testing.T) {
	s := withdrawn(t)
	p := manifest.Path(s.cfg.Dir, manifest.Moved)
	// To open a pipe that nobody writes to hangs as a read from a dead disk does.
	if err := errors.Join(os.Remove(p), unix.Mkfifo(p, 0o600)); err != nil {
		t.Skipf("no pipe to hang on: %v", err)
	}
	t.Cleanup(func() {
		if w, err := os.OpenFile(p, os.O_RDWR, 0); err == nil {
			w.Close()
		}
	})
	l := s.lookBack()
	for _, most := range []time.Duration{diskio.Overdue / 2, diskio.Suspect / 2} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		began := time.Now()
		if l.look(ctx); time.Since(began) > most {
			t.Errorf("the end waited %v for it", time.Since(began))
		}
		cancel()
	}
}
