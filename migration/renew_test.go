package migration

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/receiver"
)

// A program clears a cache by removing its directory and making it again. The files in the new one are sent when the node leaves, even
// though the agent had the old directory open.
func TestDirectoryThatWasMadeAgainIsCarried(t *testing.T) {
	a, b := newNode(t, "a", with(filesStore, "c0", "c1")), newNode(t, "b")
	write(t, filepath.Join(a.Dir, "c0/old"), contentOf("old", 1000))
	write(t, filepath.Join(a.Dir, "c1/stays"), contentOf("stays", 1000))
	ix := indexed(t, a)
	if err := os.RemoveAll(filepath.Join(a.Dir, "c0")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(a.Dir, "c0/new"), contentOf("new", 1000))
	tr := newTrip(t, a, b)
	tr.cfg.Index = ix
	sum, entries := tr.run(within(t, time.Minute))
	wantThere(t, map[string][]byte{"cache/-/new": contentOf("new", 1000), "cache/-/stays": contentOf("stays", 1000)}, entries, b)
	if sum.Total().Blocks != 2 {
		t.Errorf("got %+v, %v", sum, entries)
	}
}

// The disk of a directory that was made again may hang later. AnyLeft does not ask it then.
func TestDirectoryThatWasMadeAgainIsWatched(t *testing.T) {
	n, disks := newNode(t, "a", with(filesStore, "cache")), newFakeDisks(0)
	s := n.Stores[0]
	s.Watch(disks)
	if err := os.RemoveAll(s.Paths[0]); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.Paths[0], "x"), contentOf("x", 1000))
	now := inventory.Renewed(n.Stores, disks, slog.New(slog.DiscardHandler))[0]
	disks.Set(disks.Bad, s.Paths[0], true)
	if err := now.Readable(s.Paths[0]); now == s || !diskio.IsSilent(err) {
		t.Errorf("of a disk that does not answer it says %v", err)
	}
}

// A disk that vanishes leaves the empty directory that it was mounted on, which is noticed only after a while. What can still be read
// of it is sent, and nothing of it is forgotten.
func TestEmptyDirectoryInThePlaceOfAnother(t *testing.T) {
	a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
	store := filepath.Join(a.Dir, "cache")
	write(t, filepath.Join(store, "x"), contentOf("x", 1000))
	if err := os.Rename(store, filepath.Join(a.Dir, "away")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(store, 0o755); err != nil {
		t.Fatal(err)
	}
	sum, entries := a.drain(t, within(t, time.Minute), b)
	wantThere(t, map[string][]byte{"cache/-/x": contentOf("x", 1000)}, entries, b)
	if sum.Moved.Blocks != 1 || sum.Total().Blocks != 1 {
		t.Errorf("got %+v, %v", sum, entries)
	}
}

// A disk is mounted over a store's directory in which blocks land. From then on blocks go to the vault, and after a restart of the
// agent to where the engine looks. Otherwise they would land beneath the mount.
func TestNothingLandsInADirectoryThatLostItsName(t *testing.T) {
	for name, size := range map[string]int{"small": 1000, "large": receiver.PackedBytes + 1} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "b", with(placeStore, "cache"))
			dir := filepath.Join(n.Dir, "cache")
			wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", contentOf("x", size))))
			n.unpack()
			if err := os.Rename(dir, dir+"-beneath"); err != nil {
				t.Fatal(err)
			}
			n.compare()
			if why := n.Stores[0].Displaced(dir); why == nil || !strings.Contains(why.Error(), "removed after") {
				t.Errorf("of a directory that is gone it says %v", why)
			}
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			n.compare()
			if why := n.Stores[0].Displaced(dir); why == nil || !strings.Contains(why.Error(), "another directory") {
				t.Errorf("of the directory it says %v", why)
			}
			n.Stores[0].Compare(unreadable{diskio.OrWell(n.Disks)}, slog.New(slog.DiscardHandler))
			if n.Stores[0].Displaced(dir) == nil {
				t.Error("while its disk does not answer it is taken for the one that is open")
			}
			wantDurable(t, landAll(t, n, blockFrames(2, "cache/-/y", contentOf("y", size))))
			n.unpack()
			if _, err := os.Stat(dir + "-beneath/y"); err == nil {
				t.Error("it landed where nobody looks")
			}
			for _, id := range []string{"x", "y"} {
				if got := n.Content(t, "cache/-/"+id); !bytes.Equal(got, contentOf(id, size)) {
					t.Errorf("%s: other bytes", id)
				}
			}

			// Else the directory would be taken for one whose disk is not mounted.
			if err := os.Mkdir(filepath.Join(dir, inventory.StagingDir), 0o700); err != nil {
				t.Fatal(err)
			}
			s, err := inventory.OpenStore(n.Stores[0].StoreConfig)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			n.Stores[0] = s
			n.Reopen(t)
			n.receive(t)
			n.compare()
			if n.unpack(); size <= receiver.PackedBytes {
				if got, err := os.ReadFile(filepath.Join(dir, "y")); err != nil || !bytes.Equal(got, contentOf("y", size)) {
					t.Errorf("after the restart its file is not there: %v", err)
				}
			}
			if got := n.Content(t, "cache/-/y"); !bytes.Equal(got, contentOf("y", size)) || s.Displaced(dir) != nil {
				t.Errorf("after the restart: %v, or other bytes", s.Displaced(dir))
			}
		})
	}
}

func (n *node) compare() {
	for _, s := range n.Stores {
		s.Compare(diskio.OrWell(n.Disks), slog.New(slog.DiscardHandler))
	}
}

// unreadable is a node on which no disk answers.
type unreadable struct{ diskio.Disks }

func (unreadable) Readable(string) bool { return false }
