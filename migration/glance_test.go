package migration

import (
	"os"
	"path/filepath"
	"testing"
)

// What the node's own store has under an id stands against other bytes that come by it; what it has not, and what is only
// reached out of the store, does not.
func TestOwnStoreStandsAgainstOtherBytes(t *testing.T) {
	n := newNode(t, "b", with(filesStore, "one", "two"))
	write(t, filepath.Join(n.dir, "one/deep/er/x"), []byte("own"))
	write(t, filepath.Join(n.dir, "two/deep/y"), []byte("own"))
	write(t, filepath.Join(n.dir, "two/z"), []byte("own"))
	write(t, filepath.Join(n.dir, "outside/x"), []byte("not the store's"))
	if err := os.Symlink("../outside", filepath.Join(n.dir, "one/out")); err != nil {
		t.Fatal(err)
	}
	ids := map[string]verdictCode{
		"cache/-/deep/er/x": verdictConflict, "cache/-/deep/er/y": verdictDurable, "cache/-/deep/y": verdictConflict, "cache/-/z": verdictConflict,
		"cache/-/deep/er": verdictDurable, "cache/-/none/x": verdictDurable, "cache/-/out/x": verdictDurable, "cache/-/z/x": verdictDurable,
		"cache/app/z": verdictDurable,
	}
	var frames [][]byte
	var order []string
	for id := range ids {
		order = append(order, id)
		frames = append(frames, blockFrames(uint32(len(order)), id, []byte("other")))
	}
	for _, v := range landAll(t, n, frames...) {
		if id := order[v.Transfer-1]; v.Code != ids[id] {
			t.Errorf("%s: verdict %d %s, want %d", id, v.Code, v.Reason, ids[id])
		}
	}
}
