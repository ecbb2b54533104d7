package receiver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lifeboat/lifeboat/migration/wire"
)

// A file in the node's own store stands against other bytes that come under its id. A name that the store does not have,
// or that a link leads out of it, does not.
func TestOwnStoreStandsAgainstOtherBytes(t *testing.T) {
	n := newNode(t, "b", with(filesStore, "one", "two"))
	write(t, filepath.Join(n.Dir, "one/deep/er/x"), []byte("own"))
	write(t, filepath.Join(n.Dir, "two/deep/y"), []byte("own"))
	write(t, filepath.Join(n.Dir, "two/z"), []byte("own"))
	write(t, filepath.Join(n.Dir, "outside/x"), []byte("not the store's"))
	if err := os.Symlink("../outside", filepath.Join(n.Dir, "one/out")); err != nil {
		t.Fatal(err)
	}
	ids := map[string]wire.VerdictCode{
		"cache/-/deep/er/x": wire.VerdictConflict, "cache/-/deep/er/y": wire.VerdictDurable, "cache/-/deep/y": wire.VerdictConflict, "cache/-/z": wire.VerdictConflict,
		"cache/-/deep/er": wire.VerdictDurable, "cache/-/none/x": wire.VerdictDurable, "cache/-/out/x": wire.VerdictDurable, "cache/-/z/x": wire.VerdictDurable,
		"cache/app/z": wire.VerdictDurable,
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
