package migration

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A map output whose data cannot be looked at, as on a damaged directory, is not one without data: it is lost, and named. One that
// has no data is whole all the same.
func TestMapOutputWhoseDataCannotBeSeen(t *testing.T) {
	for _, dirs := range [][]string{{"d0"}, {"d0", "d1"}} {
		a, b := newNode(t, "a", with(sparkStore, dirs...)), newNode(t, "b", with(sparkStore, dirs...))
		var managers []string
		for i, d := range dirs {
			managers = append(managers, filepath.Join(a.dir, d, "blockmgr-"+string(rune('x'+i))))
		}
		writeMapOutput(t, managers, 1, 2, 1000)
		dir, sub := SparkPlace("shuffle_1_2_0.data", len(dirs))
		shut := filepath.Join(managers[dir], sub)
		for m := 3; ; m++ { // the first whose data would be there, and whose index is not
			data, sub := SparkPlace(fmt.Sprintf("shuffle_1_%d_0.data", m), len(dirs))
			index, other := SparkPlace(fmt.Sprintf("shuffle_1_%d_0.index", m), len(dirs))
			if filepath.Join(managers[data], sub) == shut && filepath.Join(managers[index], other) != shut {
				writeMapOutput(t, managers, 1, m)
				break
			}
		}
		// What leads out of a store cannot be looked at.
		if err := os.Rename(shut, filepath.Join(a.dir, "outside")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(a.dir, "outside"), shut); err != nil {
			t.Fatal(err)
		}
		sum, entries := a.drain(t, within(t, time.Minute), b)
		index, _ := SparkPlace("shuffle_1_2_0.index", len(dirs))
		id := "spark/" + filepath.Base(managers[index]) + "/shuffle_1_2_0"
		if e := outcome(t, entries, Lost)[id]; e.Reason == "" || sum.Lost.Blocks != 1 || sum.Moved.Blocks != 1 {
			t.Errorf("%v: got %+v, %v", dirs, sum, entries)
		}
	}
}
