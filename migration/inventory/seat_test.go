package inventory

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// An executor has its directories in an order and a number of its own: YARN leaves out the disks that failed, and the operator may
// have listed them by name. All of its blocks are found, by a scan and by their ids.
func TestExecutorHasItsDirectoriesInAnOrderOfItsOwn(t *testing.T) {
	app := "usercache/u/appcache/application_1_1/blockmgr-"
	for what, dirs := range map[string][]string{
		"in another order":             {"d2/" + app + "a", "d0/" + app + "b", "d1/" + app + "c", "d3/" + app + "d"},
		"without a disk that failed":   {"d0/" + app + "a", "d2/" + app + "b", "d3/" + app + "c"},
		"one alone":                    {"d3/" + app + "a"},
		"two on a disk":                {"d1/x/" + app + "a", "d1/y/" + app + "b", "d2/" + app + "c"},
		"in another order, not YARN's": {"d2/blockmgr-a", "d0/blockmgr-b", "d1/blockmgr-c"},
	} {
		t.Run(what, func(t *testing.T) {
			n := newBox(t, with(sparkStore, "d0", "d1", "d2", "d3"))
			var managers []string
			for _, d := range dirs {
				managers = append(managers, filepath.Join(n.dir, d))
			}
			const outputs, cached = 40, 20
			for i := range outputs {
				writeMapOutput(t, managers, 2, i, 10+i, 5)
			}
			for i := range cached {
				write(t, spot(managers, fmt.Sprintf("rdd_7_%d", i)), []byte("cached"))
			}
			// An executor that ended has left nothing; its directory must not be taken for the other's.
			write(t, filepath.Join(n.dir, "d1", strings.TrimSuffix(app, "blockmgr-"), "blockmgr-empty/0c/temp_local_1"), nil)
			found := 0
			for it, err := range n.stores[0].Scan(t.Context()) {
				if it.Skip != "" && strings.HasSuffix(it.Skip, "temporary file") {
					continue
				}
				if err != nil || it.Skip != "" {
					t.Fatalf("%s: %v, %v", it.ID, it.Skip, err)
				}
				if strings.Contains(string(it.ID), "shuffle") && len(it.Members) != 3 {
					t.Errorf("%s has %d files", it.ID, len(it.Members))
				}
				if b, err := n.stores[0].Find(it.ID); err != nil || !slices.Equal(b.Members, it.Members) {
					t.Errorf("find %s: %v", it.ID, err)
				}
				found++
			}
			if found != outputs+cached {
				t.Errorf("%d blocks found of %d", found, outputs+cached)
			}
		})
	}
}

// A manager's first files are too few to tell its seat; later ones are found all the same.
func TestSeatOfAManagerThatFills(t *testing.T) {
	n := newBox(t, with(sparkStore, "d0", "d1", "d2"))
	managers := []string{filepath.Join(n.dir, "d2/blockmgr-a"), filepath.Join(n.dir, "d1/blockmgr-b"), filepath.Join(n.dir, "d0/blockmgr-c")}
	for i := range 60 {
		writeMapOutput(t, managers, 0, i, 10)
		write(t, filepath.Join(managers[i%3], "30/notes"), nil)
		if got := strings.Count(listing(t, n.stores[0]), "carry"); got != i+1 {
			t.Fatalf("%d of %d found", got, i+1)
		}
		n.stores[0].seenAt = time.Time{} // as if a second had passed
		id := BlockID(fmt.Sprintf("shuffle_0_%d_0", i))
		index, _ := SparkPlace(string(id)+".index", 3)
		if _, err := n.stores[0].Find("spark/" + BlockID(filepath.Base(managers[index])) + "/" + id); err != nil {
			t.Errorf("find %s: %v", id, err)
		}
	}
}
