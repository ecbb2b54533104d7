package migration

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// heavy is a layout whose directories take long to read, or cannot be read for a while.
type heavy struct {
	inventory.FilesLayout
	takes  time.Duration // for each file
	closed string        // this directory cannot be read
	until  time.Time
}

func (h heavy) Scan(ctx context.Context, s *inventory.Store, part int, before inventory.Past, yield func(inventory.Item, error) bool) bool {
	if time.Now().Before(h.until) {
		return yield(inventory.Item{}, &inventory.UnlistedError{Root: s.Paths[part], Dir: h.closed, Err: unix.EIO})
	}
	return h.FilesLayout.Scan(ctx, s, part, before, func(it inventory.Item, err error) bool {
		select {
		case <-time.After(h.takes):
			return yield(it, err)
		case <-ctx.Done():
			return false
		}
	})
}

// Nobody knows the names of the files in a directory that cannot be read. The account names the directory: else nothing would seem to be
// lost. It does not if a later look could read the directory.
func TestDirectoryThatCannotBeReadIsNamed(t *testing.T) {
	for _, opens := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			other := with(filesStore, "other")
			other.Name = "other"
			a, b := newNode(t, "a", with(filesStore, "cache", "more"), other), newNode(t, "b")
			write(t, filepath.Join(a.Dir, "more/x"), contentOf("x", 1000))
			write(t, filepath.Join(a.Dir, "other/y"), contentOf("y", 1000))
			closed := heavy{closed: "d/e", until: time.Now().Add(time.Hour)}
			if opens {
				closed.until = time.Now().Add(100 * time.Millisecond)
			}
			a.Stores[0].Shape = closed
			tr := newTrip(t, a, b)
			tr.cfg.Peers = after(time.Second, tr.cfg.Peers)
			sum, entries := tr.run(within(t, time.Minute))
			lost := outcome(t, entries, manifest.Lost)
			if opens {
				if sum.Lost.Blocks != 0 || sum.Moved.Blocks != 2 {
					t.Errorf("got %+v, lost %v", sum, lost)
				}
				return
			}
			for _, dir := range a.Stores[0].Paths {
				if e := lost["(what lies in "+dir+"/d/e)"]; e.Reason != unix.EIO.Error() || sum.Lost.Blocks != 2 {
					t.Errorf("%s: got %v", dir, lost)
				}
			}
		})
	}
}

// If the deadline comes before all blocks are found, the account says where there are more.
func TestWhatWasNotReadByTheDeadlineIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := cached(t, 50, 100)
		b := newNode(t, "b")
		a.Stores[0].Shape = heavy{takes: time.Second}
		sum, entries := a.drain(t, within(t, 10*time.Second), b)
		dir := a.Stores[0].Paths[0]
		e, named := outcome(t, entries, manifest.Lost)["(what lies in "+dir+")"]
		if want := "not all of it was read: the deadline came first"; !named || e.Reason != want || sum.Moved.Blocks == 0 {
			t.Errorf("got %+v of %+v, want it named: %s", e, sum, want)
		}
	})
}

func TestWalkTellsOfDirectoriesThatItCannotRead(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads all directories")
	}
	n := newNode(t, "a", with(filesStore, "cache"))
	closed := filepath.Join(n.Dir, "cache/d")
	write(t, filepath.Join(closed, "x"), nil)
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(closed, 0o700) })
	sum, entries := n.drain(t, within(t, time.Minute), newNode(t, "b"))
	if e := outcome(t, entries, manifest.Lost)["(what lies in "+closed+")"]; e.Reason == "" || sum.Lost.Blocks != 1 {
		t.Errorf("got %+v, %v", sum, entries)
	}
}
