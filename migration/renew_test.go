package migration

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Who cleans a cache up removes its directory and makes it again. What is in it when the node leaves is carried, though the agent
// opened the one before.
func TestDirectoryThatWasMadeAgainIsCarried(t *testing.T) {
	a, b := newNode(t, "a", with(filesStore, "c0", "c1")), newNode(t, "b")
	write(t, filepath.Join(a.dir, "c0/old"), contentOf("old", 1000))
	write(t, filepath.Join(a.dir, "c1/stays"), contentOf("stays", 1000))
	ix := indexed(t, a)
	if err := os.RemoveAll(filepath.Join(a.dir, "c0")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(a.dir, "c0/new"), contentOf("new", 1000))
	tr := newTrip(t, a, b)
	tr.cfg.Index = ix
	sum, entries := tr.run(within(t, time.Minute))
	wantThere(t, map[string][]byte{"cache/-/new": contentOf("new", 1000), "cache/-/stays": contentOf("stays", 1000)}, entries, b)
	if sum.Total().Blocks != 2 {
		t.Errorf("got %+v, %v", sum, entries)
	}
}

// A disk that vanishes leaves the empty directory that it was mounted on, and a while passes before that is noticed. What can be read
// of it still is carried, and nothing of it is forgotten.
func TestEmptyDirectoryInThePlaceOfAnother(t *testing.T) {
	a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
	store := filepath.Join(a.dir, "cache")
	write(t, filepath.Join(store, "x"), contentOf("x", 1000))
	if err := os.Rename(store, filepath.Join(a.dir, "away")); err != nil {
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
