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
