package clustertest_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/preemption"
)

// rarer does to the fleet what happens once in a while: to disks and clocks, and to notices that come to nothing.
func (w *wander) rarer(h *home) {
	switch i := w.up[w.IntN(len(w.up))]; w.IntN(13) {
	case 0:
		if w.Coordinators() == 1 {
			w.say("the coordinator begins anew")
			w.coordinatorForgets()
		}
	case 1:
		w.say("has a disk of its own that dies", h.node)
		store := []string{"cache", "spark-0", "spark-1"}[w.IntN(3)]
		w.SetDisk(h.node, store, disks.Critical)
		w.pause(200)
		w.SetDisk(h.node, store, disks.Healthy)
	case 2:
		i = w.anybody(h)
		w.say("is stopped", i)
		w.Stop(i)
		w.pause(100)
		w.Restart(i)
	case 3:
		i = w.anybody(h)
		w.say("has its clock set", i)
		w.SetClock(i, time.Duration(1+w.IntN(900))*time.Second)
	case 4:
		w.say("is away for long", h.node)
		w.Kill(h.node)
		w.pause(900)
		w.Restart(h.node)
		w.Sleep(20 * time.Second)
	case 5:
		i = w.anybody(h)
		w.say("is installed anew", i)
		w.Kill(i)
		w.empty(i, "data")
		w.Restart(i)
		w.Sleep(20 * time.Second)
		if i == h.node && h.ordered { // to the coordinator it is another machine, to which the order does not apply
			w.Decommission(i, 0, "test")
		}
	case 6:
		if !h.ordered {
			w.say("is to be terminated and is not", h.node)
			w.Notice(h.node, 2*time.Minute)
			w.pause(110)
			w.Withdraw(h.node)
			w.Sleep(20 * time.Second)
		}
	case 7:
		if w.takers() > 4 {
			j := w.up[w.IntN(len(w.up))]
			w.say("die together and are back", i, j)
			for _, k := range slices.Compact([]int{i, j}) {
				w.Kill(k)
			}
			w.pause(200)
			for _, k := range slices.Compact([]int{i, j}) {
				w.Restart(k)
			}
		}
	case 8:
		if !w.narrow && !h.ordered {
			w.say("writes large and many", h.node)
			h.blocks = append(h.blocks, w.Write(h.node, "cache", fmt.Sprintf("large-%d-%d", h.node, len(h.blocks)), 300_000+w.IntN(700_000)))
			for range 60 {
				h.blocks = append(h.blocks, w.Write(h.node, "cache", fmt.Sprintf("small/%d-%d", h.node, len(h.blocks)), 1+w.IntN(300)))
			}
		}
	case 9:
		if !h.ordered && w.Show(h.node).Schedulable {
			w.say("says that it goes, and that it does not", h.node)
			w.DecommissionSelf(h.node, preemption.SourceManual, time.Duration(60+w.IntN(300))*time.Second, "test")
			w.pause(50)
			w.Cancel(h.node, "test")
			w.Sleep(20 * time.Second)
		}
	case 10:
		w.say("restarts while the coordinator is away", h.node)
		at := 0
		if w.Coordinators() > 1 {
			at = w.Leader()
		}
		w.KillCoordinator(at)
		w.Kill(h.node)
		w.pause(20)
		w.Restart(h.node)
		w.pause(60)
		w.RestartCoordinator(at)
		w.Sleep(20 * time.Second)
	case 11:
		if j := w.up[w.IntN(len(w.up))]; i != j {
			w.say("are cut off from each other", i, j)
			w.Partition(i, w.Name(j))
			w.pause(200)
			w.Heal()
		}
	case 12:
		if !h.ordered {
			w.say("is another machine of the name, with other files", h.node)
			w.Kill(h.node)
			w.empty(h.node, "data")
			w.change(h)
			w.Restart(h.node)
			w.Sleep(20 * time.Second)
		}
	}
}

// rarerAmid does what happens once in a while within the two minutes of a notice.
func (w *wander) rarerAmid(h *home, i, step int) {
	switch step {
	case 0:
		w.say("is stopped", h.node)
		w.Stop(h.node)
		w.Restart(h.node)
	case 1:
		if w.Coordinators() == 1 {
			w.say("the coordinator begins anew")
			beginAnew(w.T, w.Cluster)
			w.orderAgain()
		}
	case 2:
		i = []int{i, h.node}[w.IntN(2)]
		w.say("has its clock set", i)
		w.SetClock(i, 10*time.Second)
	case 3:
		w.say("has a disk that dies", i)
		w.SetDisk(i, "data", disks.Critical)
		w.pause(10)
		w.SetDisk(i, "data", disks.Healthy)
	case 4:
		w.say("is cut off from the coordinator", h.node)
		w.Partition(h.node, clustertest.Coordinator)
		w.pause(20)
		w.Heal()
	case 5:
		if !h.ordered {
			w.say("is not to go, and goes", h.node)
			w.Withdraw(h.node)
			w.pause(10)
			w.Notice(h.node, 2*time.Minute)
		}
	}
}

// coordinatorForgets has the only coordinator start with an empty disk, and operators give their orders again.
func (w *wander) coordinatorForgets() {
	beginAnew(w.T, w.Cluster)
	w.pause(100)
	w.orderAgain()
}

// orderAgain gives the orders again that the coordinator has forgotten, once all nodes are back.
func (w *wander) orderAgain() {
	if w.over {
		w.EndApps("test", doneApp)
	}
	there := slices.Clone(w.up)
	for _, h := range w.homes {
		there = append(there, h.node)
	}
	w.Until("all are back", time.Minute, func() bool {
		known := w.Nodes()
		return !slices.ContainsFunc(there, func(i int) bool {
			return !slices.ContainsFunc(known, func(n *api.Node) bool { return n.Name == w.Name(i) })
		})
	})
	for _, h := range w.homes {
		if h.ordered {
			w.Decommission(h.node, 0, "test")
		}
	}
}

func (w *wander) empty(i int, dir string) {
	dir = filepath.Join(w.Dir(i), dir)
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
		w.Fatal(err)
	}
}

// look reads some blocks at some node, and checks that each read gets a version that its block has or had.
func (w *wander) look() {
	for range 3 {
		h, i := w.homes[w.IntN(len(w.homes))], w.up[w.IntN(len(w.up))]
		w.read(i, h.blocks[w.IntN(len(h.blocks))])
	}
}

func (w *wander) read(i int, b *clustertest.Block) {
	status, got := w.Read(i, b.ID)
	if status == http.StatusOK && !slices.ContainsFunc(append(w.were[b.ID], b.Members[b.ID]), func(was []byte) bool { return bytes.Equal(got, was) }) {
		w.Errorf("%s was read on %s as what it never was", b.ID, w.Name(i))
	}
}
