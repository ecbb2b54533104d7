package nodetest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/enginetest"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// WantPacked checks that blocks are read from their segments, and that no file has the name of one.
func (n *Node) WantPacked(t testing.TB, want map[string][]byte) {
	t.Helper()
	for id, content := range want {
		if r, err := n.Vault.Catalog.Get(inventory.BlockID(id)); err != nil || r.Segment == 0 {
			t.Errorf("%s: %v, segment %d, want it in one", id, err, r.Segment)
		}
		if _, err := os.Stat(n.File(id)); err == nil {
			t.Errorf("%s is a file already", id)
		}
		if got := n.Content(t, id); !bytes.Equal(got, content) {
			t.Errorf("%s: %d other bytes are read", id, len(got))
		}
	}
}

// WantFiles checks that blocks are files in their place, are read from there, and take no other space.
func (n *Node) WantFiles(t testing.TB, want map[string][]byte) {
	t.Helper()
	for id, content := range want {
		if r, err := n.Vault.Catalog.Get(inventory.BlockID(id)); err != nil || r.Segment != 0 || len(r.Placed) != 1 {
			t.Errorf("%s: %v, segment %d, placed %v, want it in place", id, err, r.Segment, r.Placed)
		}
		if got, err := os.ReadFile(n.File(id)); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: a file of %d bytes, %v", id, len(got), err)
		}
		if got := n.Content(t, id); !bytes.Equal(got, content) {
			t.Errorf("%s: %d other bytes are read", id, len(got))
		}
	}
	if got := SegmentsIn(t, n.Vault.Dir); len(got) != 0 {
		t.Errorf("nothing is of use in %v", got)
	}
	if left, _ := filepath.Glob(filepath.Join(n.Dir, "cache", inventory.StagingDir, "*")); len(left) != 0 {
		t.Errorf("%v are staged still", left)
	}
	if got := n.Vault.Count().Blocks; got != int64(len(want)) {
		t.Errorf("holds %d blocks, want %d", got, len(want))
	}
}

// File is where a file of the store of plain files is to be.
func (n *Node) File(id string) string {
	return filepath.Join(n.Dir, "cache", inventory.BlockID(id).Name())
}

// Unmounted has a node come up without the disk of its first store, and returns how to mount it again.
func (n *Node) Unmounted(t *testing.T) (mount func()) {
	t.Helper()
	dir := n.Stores[0].Paths[0]
	open := func() {
		s, err := inventory.OpenStore(n.Stores[0].StoreConfig) // makes the directory, as the agent's start does
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		s.System = s.Device(0)
		n.Stores[0] = s
		n.Reopen(t)
	}
	if err := os.Rename(dir, dir+"-elsewhere"); err != nil {
		t.Fatal(err)
	}
	open()
	return func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(dir+"-elsewhere", dir); err != nil {
			t.Fatal(err)
		}
		open()
	}
}

// HeldIDs are those of the blocks that a vault holds.
func HeldIDs(t testing.TB, v *vault.Vault) (ids []string) {
	t.Helper()
	for h, err := range v.Held() {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, string(h.ID))
	}
	return ids
}

// Pack is so many blocks of plain files, as a sender would send them, and what they are.
func (n *Node) Pack(count, size int) (frames [][]byte, want map[string][]byte) {
	want = map[string][]byte{}
	for i := range count {
		id := fmt.Sprintf("cache/-/d%d/f-%04d", i%7, i)
		want[id] = enginetest.Content(id, size)
		frames = append(frames, BlockFrames(uint32(i+1), id, want[id]))
	}
	return frames, want
}

// OfApp are the blocks of an app.
func OfApp(app string) func(vault.Held) bool {
	return func(h vault.Held) bool { return h.App() == app }
}

// CarriedIn are the blocks that a scan of a store meets.
func CarriedIn(t testing.TB, s *inventory.Store) (ids []inventory.BlockID) {
	t.Helper()
	for it, err := range s.Scan(t.Context()) {
		if err != nil || !it.Carried() {
			t.Errorf("got %+v, %v", it, err)
		}
		ids = append(ids, it.ID)
	}
	return ids
}

// VaultOfApps is a vault with some blocks of each of the scopes.
func VaultOfApps(t *testing.T, blocks int, scopes ...string) *vault.Vault {
	t.Helper()
	v, err := vault.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	var records []catalog.Change
	for _, store := range []string{"cache", "spark"} {
		for _, scope := range scopes {
			for i := range blocks {
				records = append(records, catalog.Change{Record: &catalog.Record{Opening: wire.Opening{ID: fmt.Sprintf("%s/%s/b/%d", store, scope, i)}, Segment: 1}})
			}
		}
	}
	if _, err := v.Catalog.Commit(records, nil, nil); err != nil {
		t.Fatal(err)
	}
	return v
}
