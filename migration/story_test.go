package migration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// A node with cached files and Spark's shuffle files leaves. Afterwards everything is at the peers, in as many local
// directories as they have, and reads back byte for byte; unfinished files are named.
func TestDrainMovesEverything(t *testing.T) {
	a := newNode(t, "a", with(filesStore, "cache"), with(sparkStore, "d0", "d1"))
	b := newNode(t, "b", with(filesStore, "cache"), with(sparkStore, "d0", "d1", "d2"))
	c := newNode(t, "c") // has no such stores: its vault takes all
	want := map[string][]byte{}
	for i, size := range []int{0, 1, 4096, wire.ChunkBytes, wire.ChunkBytes + 1, 3*wire.ChunkBytes + 17} {
		name := fmt.Sprintf("part-%d/x", i)
		want["cache/-/"+name] = contentOf(name, size)
		write(t, filepath.Join(a.Dir, "cache", name), want["cache/-/"+name])
	}
	for i := range 300 {
		name := fmt.Sprintf("small/%03d", i)
		want["cache/-/"+name] = contentOf(name, 1000+i)
		write(t, filepath.Join(a.Dir, "cache", name), want["cache/-/"+name])
	}
	write(t, filepath.Join(a.Dir, "cache", "unfinished.tmp"), []byte("half"))
	managers := []string{filepath.Join(a.Dir, "d0/spark-1/executor-1/blockmgr-aa"), filepath.Join(a.Dir, "d1/spark-2/executor-1/blockmgr-bb")}
	for m := range 20 {
		for name, content := range writeMapOutput(t, managers, 3, m, 100*m, 0, 70000) {
			// The scope is where the index lies.
			dir, _ := inventory.SparkPlace(fmt.Sprintf("shuffle_3_%d_0.index", m), 2)
			want["spark/"+filepath.Base(managers[dir])+"/"+name] = content
		}
	}
	dir, sub := inventory.SparkPlace("shuffle_9_9_0.data", 2)
	write(t, filepath.Join(managers[dir], sub, "shuffle_9_9_0.data"), []byte("no index yet"))

	sum, entries := a.drain(t, t.Context(), b, c)
	if sum.Lost.Blocks != 0 || sum.Moved.Blocks != 326 || sum.Skipped.Blocks != 2 {
		t.Fatalf("got %+v, want 326 moved, 2 skipped, none lost\n%v", sum, entries[:min(5, len(entries))])
	}
	peer := map[string]*node{}
	for _, e := range entries {
		if e.Outcome == manifest.Moved {
			peer[e.ID] = map[string]*node{"b": b, "c": c}[e.Peer]
		}
	}
	for id, content := range want {
		at := peer[string(inventory.BlockID(id).Block())]
		if at == nil {
			t.Fatalf("%s is in no peer's hands", id)
		}
		status, got, _ := at.Get(t, id, "")
		if status != 200 || !bytes.Equal(got, content) {
			t.Fatalf("read %s at %s: status %d, %d bytes, want %d", id, at.Name, status, len(got), len(content))
		}
	}
	// Spark on b would find its files at these places.
	for id, at := range peer {
		if at != b || !strings.HasPrefix(id, "spark/") {
			continue
		}
		name := inventory.BlockID(id).Name() + ".index"
		dir, sub := inventory.SparkPlace(name, 3)
		if _, err := os.Stat(filepath.Join(b.Dir, fmt.Sprint("d", dir), inventory.BlockID(id).Scope(), sub, name)); err != nil {
			t.Errorf("index not in its place: %v", err)
		}
	}
	// b and c report all blocks that they hold.
	if n := len(b.Landed) + len(c.Landed); n != 326 {
		t.Errorf("receivers were told of %d blocks, want 326", n)
	}
	// And b can leave in its turn.
	sum, _ = b.drain(t, t.Context(), c)
	if want := int64(len(b.Landed)); sum.Moved.Blocks != want || sum.Lost.Blocks != 0 {
		t.Errorf("second hop: got %+v, want %d moved", sum, want)
	}
	for id, content := range want {
		if status, got, _ := c.Get(t, id, ""); status != 200 || !bytes.Equal(got, content) {
			t.Fatalf("read %s after two hops: status %d, %d bytes, want %d", id, status, len(got), len(content))
		}
	}
}
