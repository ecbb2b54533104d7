package migration

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/plan"
)

// waiter is a lane that has waited that long for a read from that directory.
type waiter struct {
	lane
	dir  string
	took time.Duration
}

func (w *waiter) busy(time.Time) (string, time.Duration, bool) { return w.dir, w.took, w.dir != "" }

// The plan hands out blocks of one size disk by disk. While lanes wait for the first disk, other lanes take blocks of the next: else a
// machine with four disks would be emptied as fast as one of them can be read.
func TestLanesAreSharedOutAmongDisksThatTheyWaitFor(t *testing.T) {
	const long = heldUp
	for _, row := range []struct {
		what    string
		lanes   []waiter // besides the one that takes blocks
		one     bool     // the directories lie on one disk
		left    int      // blocks on the second disk
		batch   string   // the disk of each block that is taken
		waiting bool     // the blocks of the first disk were handed out already, and came back
	}{
		{what: "nobody waits", lanes: []waiter{{}, {}, {}}, left: 4, batch: "0000"},
		{what: "one of four waits", lanes: []waiter{{dir: "c0", took: long}, {}, {}}, left: 4, batch: "0000"},
		{what: "half of four wait", lanes: []waiter{{dir: "c0", took: long}, {dir: "c0", took: long}, {}}, left: 4, batch: "1111"},
		{what: "they read from memory", lanes: []waiter{{dir: "c0", took: long - 1}, {dir: "c0", took: long - 1}, {}}, left: 4, batch: "0000"},
		{what: "one disk", lanes: []waiter{{dir: "c0", took: long}, {dir: "c0", took: long}, {}}, one: true, left: 4, batch: "0000"},
		{what: "more wait for the first", lanes: []waiter{{dir: "c0", took: long}, {dir: "c0", took: long}, {dir: "c1", took: long}}, left: 4, batch: "1111"},
		{what: "nothing else is left", lanes: []waiter{{dir: "c0", took: long}, {dir: "c0", took: long}, {}}, batch: "0000"},
		{what: "little else is left", lanes: []waiter{{dir: "c0", took: long}, {dir: "c0", took: long}, {}}, left: 2, batch: "11"},
		{what: "they came back", lanes: []waiter{{dir: "c0", took: long}, {dir: "c0", took: long}, {}}, left: 4, waiting: true, batch: "1111"},
	} {
		t.Run(row.what, func(t *testing.T) {
			a, f := onDisks(t, "a", []inventory.StoreConfig{with(filesStore, "c0", "c1")})
			dirs := a.Stores[0].Paths
			if row.one {
				f.Shared = map[string]string{dirs[0]: "sda", dirs[1]: "sda"}
			}
			tr := newTrip(t, a)
			d := NewDrain(tr.cfg)
			defer d.plan.Close()
			for root, blocks := range []int{4, row.left} {
				for i := range blocks {
					b := tiny(10*root + i)
					b.Members[0].Root = root
					if err := d.plan.Add(t.Context(), b); err != nil {
						t.Fatal(err)
					}
				}
			}
			l := &lane{lanes: d.lanes, peer: &peerState{Peer: Peer{Node: "b"}}, books: books{room: plan.RoomOf(math.MaxInt64)}, flow: flow{out: d.lanes.out, traffic: d.lanes.traffic}}
			take := func() []plan.Entry {
				batch, _, err := l.takeShare(4, math.MaxInt64)
				if err != nil {
					t.Fatal(err)
				}
				return batch
			}
			if row.waiting {
				d.plan.PutBack(take())
			}
			d.carriers.join(l)
			for i := range row.lanes {
				w := &row.lanes[i]
				if w.dir != "" {
					w.dir = filepath.Join(a.Dir, w.dir)
				}
				d.carriers.join(w)
			}
			var got strings.Builder
			for _, e := range take() {
				fmt.Fprint(&got, slices.Index(dirs, d.source.where(e.Block)[0]))
			}
			if got.String() != row.batch {
				t.Errorf("got blocks of disks %s, want %s", got.String(), row.batch)
			}
		})
	}
}
