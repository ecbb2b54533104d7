package clustertest_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
)

// wander is a fleet to which things happen at random, one at a time, while its nodes with blocks are to leave.
type wander struct {
	*testing.T
	*clustertest.Cluster
	*rand.Rand
	homes    []*home
	kinds    int                 // how many kinds of things happen
	narrow   bool                // links are narrow: there is not time for all blocks
	shares   bool                // a share takes blocks that no peer has room for
	were     map[string][][]byte // earlier versions of blocks
	lost     map[string]bool     // blocks that some account names as lost
	removed  map[string]bool     // blocks that their engine has removed
	over     bool                // doneApp has ended
	resumed  bool                // doneApp had ended, and that was taken back
	up, down []int               // the other nodes
	story    []string
}

// home is a node with blocks of its own.
type home struct {
	node    int
	blocks  []*clustertest.Block // of its cache, in order of their names
	ordered bool                 // it was ordered away: nothing is written there any more
}

func (w *wander) say(what string, node ...int) { w.story = append(w.story, fmt.Sprint(what, node)) }

func (w *wander) pick(from *[]int) int {
	at := w.IntN(len(*from))
	node := (*from)[at]
	*from = slices.Delete(*from, at, at+1)
	return node
}

func (w *wander) pause(most int) { w.Sleep(time.Duration(1+w.IntN(most)) * time.Second) }

// drained waits for the end of a drain.
func (w *wander) drained(i int) {
	w.WaitDrained(i)
	_, entries := w.Manifest(i)
	for id, e := range entries {
		if e.Outcome == "lost" {
			w.lost[id] = true
		}
	}
}

func (w *wander) write(h *home) {
	for range 6 {
		h.blocks = append(h.blocks, w.Write(h.node, "cache", fmt.Sprintf("part-%d-%d", h.node, len(h.blocks)), 20_000))
		name := fmt.Sprintf("shuffle_%d_%d_0", h.node, len(h.blocks))
		w.Write(h.node, "spark", name, 20_000)
		w.WriteOf([]string{doneApp, liveApp}[len(h.blocks)%2], h.node, name, 10_000)
	}
}

// remove has an engine remove some blocks of its cache.
func (w *wander) remove(h *home) {
	for range 1 + w.IntN(4) {
		b := h.blocks[w.IntN(len(h.blocks))]
		if w.removed[b.ID] = true; os.Remove(w.file(h, b)) == nil {
			w.say("removes "+b.ID, h.node)
		}
	}
}

func (w *wander) file(h *home, b *clustertest.Block) string {
	return filepath.Join(w.Dir(h.node), "cache", strings.TrimPrefix(b.ID, "cache/-/"))
}

// change gives each file of a cache new bytes, of a size that no earlier version had.
func (w *wander) change(h *home) {
	for i, b := range h.blocks {
		delete(w.removed, b.ID)
		w.were[b.ID] = append(w.were[b.ID], b.Members[b.ID])
		b.Members[b.ID] = bytes.Repeat(fmt.Appendf(nil, "%d of %d in the step %d\n", i, h.node, len(w.story)), 3000)[:30_000+100*len(w.story)]
		if err := os.WriteFile(w.file(h, b), b.Members[b.ID], 0o600); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *wander) happen() {
	h := w.homes[w.IntN(len(w.homes))]
	switch step := w.IntN(w.kinds); {
	case step == 0 && len(w.up) > 3:
		i := w.pick(&w.up)
		w.say("dies", i)
		w.Kill(i)
		w.Until("it is known", 5*time.Minute, func() bool { s := w.State(i); return s == "LOST" || s == "DECOMMISSIONED" })
		w.down = append(w.down, i)
	case step == 1 && len(w.up) > 3:
		i := w.pick(&w.up)
		w.say("leaves", i)
		w.Notice(i, 2*time.Minute)
		w.drained(i)
		w.Kill(i)
		w.down = append(w.down, i)
	case step == 12 && len(w.up) > 4:
		i, j := w.pick(&w.up), w.pick(&w.up)
		w.say("leave together", i, j)
		w.Notice(i, 2*time.Minute)
		w.pause(8)
		w.Notice(j, 2*time.Minute)
		w.drained(i)
		w.Kill(i)
		w.drained(j)
		w.Kill(j)
		w.down = append(w.down, i, j)
	case (step == 2 || step == 3) && len(w.down) > 0:
		i := w.pick(&w.down)
		if step == 2 {
			w.say("is back", i)
			w.Restart(i)
		} else {
			w.say("is another machine", i)
			w.Withdraw(i)
			backWithNothing(w.T, w.Cluster, i)
		}
		w.up = append(w.up, i)
	case step == 4:
		i := w.up[w.IntN(len(w.up))]
		w.say("is replaced", i)
		w.Kill(i)
		backWithNothing(w.T, w.Cluster, i)
	case step == 5 && !h.ordered:
		w.say("writes", h.node)
		w.write(h)
	case step == 6 && !h.ordered:
		w.say("changes", h.node)
		w.change(h)
	case step == 7:
		w.say("coordinator restarts")
		w.restartCoordinator()
		w.pause(60)
	case step == 8:
		i := w.up[w.IntN(len(w.up))]
		w.say("restarts", i)
		w.Kill(i)
		w.Restart(i)
	case step == 9:
		w.say("restarts", h.node)
		w.Kill(h.node)
		w.pause(50)
		w.Restart(h.node)
	case step == 10 && !h.ordered && w.State(h.node) == "ACTIVE": // and there is no rehearsal
		w.say("is ordered away and back", h.node)
		w.Decommission(h.node, 0, "test")
		w.pause(20)
		w.Recommission(h.node)
		w.Sleep(5 * time.Second)
	case step == 11:
		i := w.up[w.IntN(len(w.up))]
		w.say("is advised", i)
		w.Rebalance(i)
	case step == 13:
		i := w.anybody(h)
		w.say("is cut off", i)
		w.Partition(i)
		w.pause(100)
		w.Heal()
	case step == 14:
		i := w.up[w.IntN(len(w.up))]
		w.say("are cut off from each other", h.node, i)
		w.Partition(h.node, w.Name(i))
		w.pause(100)
		w.Heal()
	case step == 15:
		i := w.anybody(h)
		w.say("is cut off from the coordinator", i)
		w.Partition(i, clustertest.Coordinator)
		w.pause(100)
		w.Heal()
	case step == 16:
		w.flip(h, w.up[w.IntN(len(w.up))])
	case step == 17:
		i := w.up[w.IntN(len(w.up))]
		w.say("has a disk that dies", i)
		w.SetDisk(i, "data", disks.Critical)
		w.pause(100)
		w.SetDisk(i, "data", disks.Healthy)
	case step == 18 && len(w.up) > 3:
		i := w.pick(&w.up)
		w.say("goes down", i)
		w.ShutDown(i, systemd.HowPowerOff)
		w.down = append(w.down, i)
	case step == 19:
		if i := w.up[w.IntN(len(w.up))]; w.State(i) == "ACTIVE" {
			w.say("is ordered away and back", i)
			w.Decommission(i, 0, "test")
			w.pause(50)
			w.Recommission(i)
			w.Sleep(5 * time.Second)
		}
	case step == 20:
		i := w.up[w.IntN(len(w.up))]
		w.say("is given nothing new", i)
		w.Deactivate(false, i)
		w.pause(100)
		w.Deactivate(true, i)
	case step == 21 && !h.ordered:
		w.remove(h)
	case step == 22 && !h.ordered:
		if w.IntN(2) == 0 {
			w.say("is advised", h.node)
			w.Rebalance(h.node)
		} else {
			w.say("is advised no more", h.node)
			w.Withdraw(h.node)
		}
	case step == 23:
		i := w.up[w.IntN(len(w.up))]
		w.say("boots", i)
		w.Kill(i)
		w.pause(100)
		w.Reboot(i)
	case step == 24 && w.Coordinators() > 1:
		w.say("another coordinator leads")
		w.Transfer("test")
	case step == 25 && w.over:
		w.say("an app goes on")
		w.ResumeApps(doneApp)
		w.over, w.resumed = false, true
	case step == 25:
		w.say("an app is over")
		w.EndApps("test", doneApp)
		w.over = true
	case step == 26:
		if i := w.anybody(h); w.Show(i).Schedulable { // a node under a real notice cannot rehearse
			w.say("is rehearsed", i)
			w.Simulate(i, preemption.KindTerminate, time.Duration(1+w.IntN(3))*40*time.Second, false)
			w.pause(150)
		}
	case step == 27 && w.takers() > 3:
		w.maintain()
	case step == 28:
		w.without(w.anybody(h), []string{"cache", "spark-0", "spark-1"}[w.IntN(3)])
	case step == 29:
		w.say("time passes")
		w.Sleep(time.Duration(1+w.IntN(20)) * time.Minute)
	case step >= 30:
		w.rarer(h)
	}
	w.pause(40)
	w.look()
}

// maintain gives a machine an appointment, and has it worked on.
func (w *wander) maintain() {
	i := w.up[w.IntN(len(w.up))]
	w.say("is maintained", i)
	w.ScheduleMaintenance(time.Now().Add(3*time.Minute), i)
	w.pause(240)
	w.TakeMachine(false, i)
	w.WaitState(i, "DECOMMISSIONED")
	w.Kill(i)
	w.pause(100)
	w.Restart(i)
	w.TakeMachine(true, i)
	w.Sleep(20 * time.Second)
}

// without restarts a node without the disk of one of its stores, and then with the disk again.
func (w *wander) without(i int, store string) {
	dir := filepath.Join(w.Dir(i), store)
	if _, err := os.Lstat(filepath.Join(dir, ".lifeboat-staging")); err != nil && store != "cache" {
		return // if nothing has landed there, blocks that land now would lie beneath the mount
	}
	w.say("comes up without "+store, i)
	for _, names := range [][2]string{{dir, dir + "-aside"}, {dir + "-aside", dir}} {
		w.Kill(i)
		if err := errors.Join(os.RemoveAll(names[1]), os.Rename(names[0], names[1])); err != nil { // files that are beneath the mount are out of sight
			w.Fatal(err)
		}
		w.Restart(i)
		w.pause(150)
	}
}

// flip flips a bit of a landed block, and reads it there.
func (w *wander) flip(h *home, i int) {
	b := h.blocks[w.IntN(len(h.blocks))]
	if w.Flip(i, "data", b.Members[b.ID]) == 0 {
		return
	}
	w.say("has a bit flipped", i)
	w.read(i, b)
}

func (w *wander) restartCoordinator() {
	at := 0
	if w.Coordinators() > 1 {
		at = w.Leader()
	}
	w.KillCoordinator(at)
	w.Sleep(time.Second)
	w.RestartCoordinator(at)
}

// takers returns how many nodes would take blocks: a node that is back may still be under notice.
func (w *wander) takers() (n int) {
	for _, i := range w.up {
		if w.State(i) == "ACTIVE" {
			n++
		}
	}
	return n
}

// anybody returns a random node of those that are there.
func (w *wander) anybody(h *home) int {
	if w.IntN(2) == 0 {
		return h.node
	}
	return w.up[w.IntN(len(w.up))]
}

// amid does what happens within the two minutes of a notice, or in the rest of them.
func (w *wander) amid() {
	h, i := w.homes[w.IntN(len(w.homes))], w.up[w.IntN(len(w.up))]
	switch step := w.IntN(16); step {
	case 0, 1:
		if w.takers() < 3 {
			return
		}
		w.say("dies", i)
		w.Kill(i)
		if w.IntN(2) == 0 {
			w.say("is replaced", i)
			backWithNothing(w.T, w.Cluster, i)
		} else {
			w.up = slices.DeleteFunc(w.up, func(other int) bool { return other == i })
		}
	case 2:
		w.say("are cut off from each other", h.node, i)
		w.Partition(h.node, w.Name(i))
		w.pause(10)
		w.Heal()
	case 3:
		w.say("coordinator restarts")
		w.restartCoordinator()
	case 4:
		w.say("restarts", h.node)
		w.Kill(h.node)
		w.Restart(h.node)
	case 5:
		w.say("restarts", i)
		w.Kill(i)
		w.Restart(i)
	case 6:
		w.flip(h, i)
	case 7:
		if w.takers() > 2 {
			w.say("is given nothing new", i)
			w.Deactivate(false, i)
		}
	case 8:
		w.remove(h)
	default:
		w.rarerAmid(h, i, step-10)
	}
}

// One to three nodes have blocks, and each is advised to go, ordered away, or neither yet. At any time other nodes die, leave, come back, or
// are replaced by machines of their names; blocks change, bits flip, links are cut, disks die, and agents and the coordinator restart. The
// nodes go one after the other. Then the last versions of their blocks are read everywhere, apart from those named as lost because links
// are narrow. It is a search for faults that the other stories miss: LIFEBOAT_WANDERS=N (make wander) runs N stories rather than two; -run
// 'Wander/N' runs one of them, and not always alike.
func TestWander(t *testing.T) {
	stories, err := strconv.Atoi(os.Getenv("LIFEBOAT_WANDERS"))
	if err != nil {
		stories = 2
	}
	for seed := range stories {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			cfg := clustertest.Config{Agents: 7}
			if seed%4 > 1 {
				cfg.BytesPerSecond = 3000
			}
			if seed%5 == 4 {
				cfg.Coordinators = 3
			}
			shares, share := seed%3 == 2, t.TempDir()
			cfg.Agent = func(_ int, cfg *agent.Config) {
				if shares { // what no peer has room for goes to a share
					cfg.Receive.MaxBytes = 100_000
					cfg.Fallback.Dir = share
				}
				if seed%11 == 5 {
					cfg.Receive.Keep = 12 * time.Minute
				}
			}
			bubble(t, cfg, func(t *testing.T, c *clustertest.Cluster) {
				w := &wander{T: t, Cluster: c, Rand: rand.New(rand.NewPCG(uint64(seed), 1)), homes: []*home{{node: 0}}, up: []int{1, 2, 3, 4, 5, 6}, lost: map[string]bool{}, were: map[string][][]byte{}, removed: map[string]bool{}, kinds: 40}
				w.narrow, w.shares = cfg.BytesPerSecond > 0, shares
				if seed%2 == 1 {
					w.homes, w.up = append(w.homes, &home{node: 1}), w.up[1:]
				}
				if seed%7 == 6 {
					last := len(w.up) - 1
					w.homes, w.up = append(w.homes, &home{node: w.up[last]}), w.up[:last]
				}
				t.Cleanup(func() {
					if t.Failed() {
						t.Log(w.story)
					}
				})
				w.run()
			})
		})
	}
}

func (w *wander) run() {
	for _, h := range w.homes {
		w.write(h)
		w.write(h)
		switch w.IntN(3) {
		case 0:
			w.say("is advised", h.node)
			w.Rebalance(h.node)
		case 1:
			w.say("is ordered away", h.node)
			h.ordered = true
			w.Decommission(h.node, 0, "test")
		}
	}
	w.Sleep(90 * time.Second)
	for range 6 + w.IntN(14) {
		w.happen()
	}
	w.Shuffle(len(w.homes), func(i, j int) { w.homes[i], w.homes[j] = w.homes[j], w.homes[i] })
	for _, h := range w.homes {
		w.say("goes", h.node)
		if !h.ordered {
			w.Notice(h.node, 2*time.Minute)
		}
		w.pause(40 / len(w.homes))
	}
	if !w.narrow {
		w.amid()
	}
	for _, h := range w.homes {
		w.WaitDrained(h.node)
	}
	if !w.narrow {
		w.amid()
	}
	w.Sleep(55 * time.Second)
	for _, h := range w.homes {
		w.Until("what was lost is carried again", 5*time.Minute, func() bool { return w.Status(h.node).GetStatus().GetDrain().GetPhase() == "drained" })
	}
	for _, h := range w.homes {
		w.drained(h.node)
		w.Kill(h.node)
	}
	w.Sleep(time.Minute)
	if !w.narrow {
		clear(w.lost)
	}
	if !w.narrow && !w.shares { // with a share, nobody tells a node that is back of newer versions there
		for _, i := range w.down {
			w.say("is back at last", i)
			w.Restart(i)
		}
		w.up = append(w.up, w.down...)
		w.Sleep(3 * time.Minute)
	}
	for _, i := range w.up {
		w.Verify(i, slices.DeleteFunc(w.Written(), func(b *clustertest.Block) bool {
			return w.lost[b.ID] || w.removed[b.ID] || (w.over || w.resumed && w.narrow) && strings.HasPrefix(b.ID, "spark/"+doneApp+"/")
		})...)
	}
}
