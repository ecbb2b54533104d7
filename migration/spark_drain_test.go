package migration

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// If it cannot be told which files make up a map output, the output is lost by name, and the account says why.
func TestSparkScanNamesWhatIsAmbiguous(t *testing.T) {
	n := newNode(t, "a", with(sparkStore, "d0", "d1", "d2"))
	for x := range 2 {
		writeMapOutput(t, executor(n.Dir, x), 0, apart(1)[0], 77)
	}
	stranded := 0
	for it, err := range Inventory(t.Context(), n.Stores, n.Vault) {
		if why, _ := inventory.Stranded(it, err); strings.Contains(why, "cannot tell") {
			stranded++
		}
	}
	if stranded != 2 {
		t.Errorf("got %d that would be lost for sure, want 2", stranded)
	}
	// The files are whole, and stay behind: that is no reason to say that nothing was lost.
	sum, entries := n.drain(t, within(t, time.Minute), newNode(t, "b"))
	id := fmt.Sprintf("/shuffle_0_%d_0", apart(1)[0])
	for name, e := range outcome(t, entries, manifest.Lost) {
		if !strings.HasSuffix(name, id) || !strings.Contains(e.Reason, "cannot tell") {
			t.Errorf("%s: got %+v", name, e)
		}
	}
	if sum.Lost.Blocks != 2 || sum.Skipped.Blocks != 0 {
		t.Errorf("got %+v, want two lost", sum)
	}
}

// Blocks that landed are found again under their ids, by a scan of a node with another number of disks.
func TestSparkScanFindsLandedBlocksUnderTheirIDs(t *testing.T) {
	a := newNode(t, "a", with(sparkStore, "d0", "d1"))
	writeMapOutput(t, []string{filepath.Join(a.Dir, "d0/x/blockmgr-a"), filepath.Join(a.Dir, "d1/x/blockmgr-b")}, 1, 1, 100, 200)
	app := []string{filepath.Join(a.Dir, "d0/app-20260101000000-0001/blockmgr-c"), filepath.Join(a.Dir, "d1/app-20260101000000-0001/blockmgr-d")}
	writeMapOutput(t, app, 1, 1, 300)
	write(t, spot(app, "rdd_1_1"), []byte("cached"))
	b := newNode(t, "b", with(sparkStore, "d0", "d1", "d2"))
	a.drain(t, within(t, 20e9), b)
	ids := func(s *inventory.Store) (ids []string) {
		for it := range s.Scan(t.Context()) {
			ids = append(ids, fmt.Sprint(it.ID, it.Skip))
		}
		slices.Sort(ids)
		return ids
	}
	if was, is := ids(a.Stores[0]), ids(b.Stores[0]); !slices.Equal(was, is) || len(was) != 3 {
		t.Errorf("%v became %v", was, is)
	}
}
