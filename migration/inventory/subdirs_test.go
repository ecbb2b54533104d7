package inventory

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// openBelow returns how many directories below one this process has open.
func openBelow(t *testing.T, dir string) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range all {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, dir+"/") {
			n++
		}
	}
	return n
}

// An executor has more subdirectories than are kept open: its map outputs are found all the same, and everything is closed afterwards.
func TestSubdirectoriesAreKeptOpenUpToABound(t *testing.T) {
	dirs, managers := make([]string, maxOpenSubdirs/subDirectories+1), []string(nil)
	for i := range dirs {
		dirs[i] = fmt.Sprint("d", i)
	}
	n := newBox(t, with(sparkStore, dirs...))
	for _, dir := range dirs {
		managers = append(managers, filepath.Join(n.dir, dir, "blockmgr-"+dir))
	}
	const outputs = 3000 // some in each subdirectory
	for m := range outputs {
		writeMapOutput(t, managers, 0, m, 4)
	}
	before, most, found := openBelow(t, n.dir), 0, 0
	s := n.stores[0]
	s.Shape.Scan(t.Context(), s, 0, Past{}, func(it Item, err error) bool {
		switch {
		case err != nil || it.Skip != "" || it.Stays != "":
			t.Errorf("%s: %v %s %s", it.ID, err, it.Skip, it.Stays)
		case len(it.Members) != 3:
			t.Errorf("%s has %d files, want 3", it.ID, len(it.Members))
		}
		if found++; found%100 == 0 {
			most = max(most, openBelow(t, n.dir))
		}
		return true
	})
	if found != outputs {
		t.Errorf("found %d, want %d", found, outputs)
	}
	if most -= before; most < maxOpenSubdirs/2 || most > maxOpenSubdirs+8 {
		t.Errorf("%d files were open in the scan, want at most %d and many", most, maxOpenSubdirs)
	}
	if after := openBelow(t, n.dir); after > before {
		t.Errorf("%d files are open after the scan, and were %d before", after, before)
	}
}

// A subdirectory is moved away while it is open, and another takes its place: that costs map outputs for one look at most.
func TestSubdirectoryIsReplacedInTheScan(t *testing.T) {
	n := newBox(t, with(sparkStore, "d0"))
	manager := filepath.Join(n.dir, "d0/blockmgr-a")
	for m := range 200 {
		writeMapOutput(t, []string{manager}, 0, m, 4)
	}
	s, first := n.stores[0], true
	look := func() (found int) {
		s.Shape.Scan(t.Context(), s, 0, Past{}, func(it Item, err error) bool {
			if first {
				first = false
				if err := os.Rename(manager, manager+"-old"); err != nil {
					t.Fatal(err)
				}
				if err := os.CopyFS(manager, os.DirFS(manager+"-old")); err != nil {
					t.Fatal(err)
				}
				if err := os.RemoveAll(manager + "-old"); err != nil {
					t.Fatal(err)
				}
			}
			if it.Carried() && it.ID != "" {
				found++
			}
			return true
		})
		return found
	}
	look()
	if found := look(); found != 200 {
		t.Errorf("the look after found %d, want 200", found)
	}
}
