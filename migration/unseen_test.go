package migration

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// A map output whose data cannot be looked at, as on a damaged directory, is not one without data: it is lost, and named. One that
// has no data is whole all the same.
func TestMapOutputWhoseDataCannotBeSeen(t *testing.T) {
	for _, dirs := range [][]string{{"d0"}, {"d0", "d1"}} {
		a, b := newNode(t, "a", with(sparkStore, dirs...)), newNode(t, "b", with(sparkStore, dirs...))
		var managers []string
		for i, d := range dirs {
			managers = append(managers, filepath.Join(a.Dir, d, "blockmgr-"+string(rune('x'+i))))
		}
		writeMapOutput(t, managers, 1, 2, 1000)
		dir, sub := inventory.SparkPlace("shuffle_1_2_0.data", len(dirs))
		shut := filepath.Join(managers[dir], sub)
		for m := 3; ; m++ { // the first whose data would be there, and whose index is not
			data, sub := inventory.SparkPlace(fmt.Sprintf("shuffle_1_%d_0.data", m), len(dirs))
			index, other := inventory.SparkPlace(fmt.Sprintf("shuffle_1_%d_0.index", m), len(dirs))
			if filepath.Join(managers[data], sub) == shut && filepath.Join(managers[index], other) != shut {
				writeMapOutput(t, managers, 1, m)
				break
			}
		}
		// What leads out of a store cannot be looked at.
		if err := os.Rename(shut, filepath.Join(a.Dir, "outside")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(a.Dir, "outside"), shut); err != nil {
			t.Fatal(err)
		}
		sum, entries := a.drain(t, within(t, time.Minute), b)
		index, _ := inventory.SparkPlace("shuffle_1_2_0.index", len(dirs))
		id := "spark/" + filepath.Base(managers[index]) + "/shuffle_1_2_0"
		if e := outcome(t, entries, manifest.Lost)[id]; e.Reason == "" || sum.Lost.Blocks != 1 || sum.Moved.Blocks != 1 {
			t.Errorf("%v: got %+v, %v", dirs, sum, entries)
		}
	}
}

// erring is a layout of a disk that does not give some files: to a look that is asked for them, and to who asks for one by name.
type erring struct {
	inventory.Layout
	looks  atomic.Int32
	errs   func(look int, name string) bool
	unseen bool // nothing can be said of such a file but its name
}

func (l *erring) Scan(ctx context.Context, s *inventory.Store, part int, before inventory.Past, yield func(inventory.Item, error) bool) bool {
	l.looks.Add(1)
	return l.Layout.Scan(ctx, s, part, before, func(it inventory.Item, err error) bool {
		if err == nil && it.ID != "" && l.errs(int(l.looks.Load()), it.ID.Name()) {
			if l.unseen {
				it.Members = []inventory.Member{{Name: it.ID.Name(), Root: it.Members[0].Root}}
			}
			err = &fs.PathError{Op: "read", Path: it.ID.Name(), Err: syscall.EIO}
		}
		return yield(it, err)
	})
}

func (l *erring) Find(s *inventory.Store, id inventory.BlockID, at func(*string)) (inventory.Block, error) {
	if l.errs(int(l.looks.Load())+1, id.Name()) { // a look begins with it
		return inventory.Block{}, &fs.PathError{Op: "read", Path: id.Name(), Err: syscall.EIO}
	}
	return l.Layout.Find(s, id, at)
}

// sleepPastChanges has the bubble's clock be where the files' changes are old, as most are when a drain begins.
func sleepPastChanges(t testing.TB, n *node) {
	t.Helper()
	info, err := os.Stat(n.Dir)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(info.ModTime().Add(time.Hour)))
}

// What cannot be read when it is first looked at is carried if it can be read later, though nothing changed in it.
func TestWhatCannotBeReadAtFirstIsCarriedLater(t *testing.T) {
	for _, unseen := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, _ := cached(t, 10, 1000)
			b := newNode(t, "b")
			sleepPastChanges(t, a)
			a.Stores[0].Shape = &erring{Layout: a.Stores[0].Shape, unseen: unseen, errs: func(look int, name string) bool {
				return look == 1 && name == "f-0003" || name == "f-0004" || name == "f-0005"
			}}
			sum, entries := a.drain(t, within(t, time.Minute), b)
			if sum.Moved.Blocks != 8 || sum.Lost.Blocks != 2 || outcome(t, entries, manifest.Lost)["cache/-/f-0004"].Reason != "read f-0004: input/output error" {
				t.Errorf("got %+v, want all moved but the two that cannot be read: %v", sum, outcome(t, entries, manifest.Lost))
			}
		})
	}
}

// A block that is written amid a drain and cannot be read is named in the account. One that was moved before it became unreadable counts as
// moved.
func TestWhatCannotBeReadIsLostUnlessItWasMoved(t *testing.T) {
	for _, unseen := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
			b.Room = roomFor(1 << 20)
			write(t, filepath.Join(a.Dir, "cache/large"), contentOf("large", 2<<20)) // it is never settled, so there are looks until the deadline
			write(t, filepath.Join(a.Dir, "cache/moved"), contentOf("moved", 10))
			everyLook := &erring{Layout: a.Stores[0].Shape, unseen: unseen}
			everyLook.errs = func(look int, name string) bool { return look > 1 && name != "large" }
			a.Stores[0].Shape = everyLook
			time.AfterFunc(5*time.Second, func() {
				write(t, filepath.Join(a.Dir, "cache/new"), contentOf("new", 10))
				// Only what changed is looked at again: this was touched in no way that its content or times tell.
				if err := os.Chmod(filepath.Join(a.Dir, "cache/moved"), 0o600); err != nil {
					t.Error(err)
				}
			})
			sum, entries := a.drain(t, within(t, time.Minute), b)
			moved, lost := outcome(t, entries, manifest.Moved), outcome(t, entries, manifest.Lost)
			if lost["cache/-/new"].Reason != "read new: input/output error" || lost["cache/-/large"].ID == "" {
				t.Errorf("unseen %v: lost %v", unseen, lost)
			}
			if unseen && (moved["cache/-/moved"].Peer != "b" || sum.Moved.Blocks != 1 || sum.Lost.Blocks != 2) {
				t.Errorf("got %+v, want what was moved to have been moved: %v", sum, lost)
			}
		})
	}
}

// A map output that was moved is met by each look. That it cannot be read any more is no loss.
func TestMapOutputThatCannotBeReadOnceItWasMoved(t *testing.T) {
	for _, unseen := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, b := newNode(t, "a", with(sparkStore, "d0")), newNode(t, "b")
			b.Room = roomFor(1 << 20)
			managers := []string{filepath.Join(a.Dir, "d0", "blockmgr-x")}
			writeMapOutput(t, managers, 1, 0, 1000)
			writeMapOutput(t, managers, 1, 1, 2<<20)
			sleepPastChanges(t, a)
			a.Stores[0].Shape = &erring{Layout: a.Stores[0].Shape, unseen: unseen, errs: func(look int, name string) bool { return look > 1 && name == "shuffle_1_0_0" }}
			sum, entries := a.drain(t, within(t, time.Minute), b)
			if sum.Moved.Blocks != 1 || sum.Lost.Blocks != 1 || outcome(t, entries, manifest.Moved)["spark/blockmgr-x/shuffle_1_0_0"].Peer != "b" {
				t.Errorf("unseen %v: got %+v: %v", unseen, sum, entries)
			}
		})
	}
}

// A disk falls silent between two runs of a drain. What the first one moved from it counts, in the second too.
func TestMapOutputThatAnEarlierRunMovedAndWhoseDiskIsSilent(t *testing.T) {
	n, f := onDisks(t, "a", []inventory.StoreConfig{with(sparkStore, "s0", "s1", "s2")}, "v")
	ids := outputIDs(spreadOutputs(t, n))
	b := newNode(t, "b")
	outlast(t)
	sum, entries := newTrip(t, n, b).run(within(t, 20*time.Second))
	wantMoved(t, sum, entries, ids)
	f.Set(f.Bad, n.Stores[0].Paths[1], true)
	sum, entries = newTrip(t, n, b).run(within(t, 2*time.Second))
	for id := range outcome(t, entries, manifest.Lost) {
		if slices.Contains(ids, id) {
			t.Errorf("%s is lost, and b has it: %+v", id, sum)
		}
	}
}
