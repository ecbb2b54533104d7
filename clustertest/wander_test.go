package clustertest_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// wander is a fleet to which things happen by chance, one at a time, while its node 0 is to leave.
type wander struct {
	*testing.T
	*clustertest.Cluster
	*rand.Rand
	blocks   []*clustertest.Block // of node 0's cache, in order of their names
	up, down []int
	story    []string
}

func (w *wander) say(what string, node ...int) { w.story = append(w.story, fmt.Sprint(what, node)) }

func (w *wander) pick(from *[]int) int {
	at := w.IntN(len(*from))
	node := (*from)[at]
	*from = slices.Delete(*from, at, at+1)
	return node
}

func (w *wander) pause(most int) { w.Sleep(time.Duration(1+w.IntN(most)) * time.Second) }

func (w *wander) write() {
	for range 6 {
		w.blocks = append(w.blocks, w.Write(0, "cache", fmt.Sprint("part-", len(w.blocks)), 20_000))
		w.Write(0, "spark", fmt.Sprintf("shuffle_0_%d_0", len(w.blocks)), 20_000)
	}
}

// change gives each file of the cache other bytes, and as many as no version had before.
func (w *wander) change() {
	for i, b := range w.blocks {
		b.Members[b.ID] = bytes.Repeat([]byte{byte(i)}, 30_000+100*len(w.story))
		if err := os.WriteFile(filepath.Join(w.Dir(0), "cache", fmt.Sprint("part-", i)), b.Members[b.ID], 0o600); err != nil {
			w.Fatal(err)
		}
	}
}

// happen has something happen. Where node 0 is drained, nothing is written there any more.
func (w *wander) happen(drained bool) {
	switch step := w.IntN(11); {
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
		w.WaitDrained(i)
		w.Kill(i)
		w.down = append(w.down, i)
	case (step == 2 || step == 3) && len(w.down) > 0:
		i := w.pick(&w.down)
		if step == 2 {
			w.say("is back", i)
			w.Restart(i)
		} else {
			w.say("is another machine", i)
			backWithNothing(w.T, w.Cluster, i)
		}
		w.up = append(w.up, i)
	case step == 4:
		i := w.up[w.IntN(len(w.up))]
		w.say("is replaced", i)
		w.Kill(i)
		backWithNothing(w.T, w.Cluster, i)
	case step == 5 && !drained:
		w.say("writes")
		w.write()
	case step == 6 && !drained:
		w.say("changes")
		w.change()
	case step == 7:
		w.say("coordinator restarts")
		w.KillCoordinator()
		w.Sleep(time.Second)
		w.RestartCoordinator()
		w.Sleep(90 * time.Second) // it has to hear from all
	case step == 8:
		i := w.up[w.IntN(len(w.up))]
		w.say("restarts", i)
		w.Kill(i)
		w.Restart(i)
	case step == 9:
		w.say("restarts", 0)
		w.Kill(0)
		w.pause(50)
		w.Restart(0)
	case step == 10 && !drained:
		w.say("is ordered away and back", 0)
		w.Decommission(0, 0, "test")
		w.pause(20)
		w.Recommission(0)
		w.Sleep(5 * time.Second)
	}
	w.pause(40)
}

// A node is advised to go, or ordered, or nothing is said of it yet, and at any time others die, leave, come back, or are replaced by
// others of their names; its blocks change, agents and the coordinator start anew. When it has gone, all that it had last is read
// everywhere. It is a search, for who looks for what the other stories do not tell: LIFEBOAT_WANDERS=N has N stories, and not a few, of
// which each runs by itself as -run 'Wander/N', and not always alike.
func TestWander(t *testing.T) {
	stories, err := strconv.Atoi(os.Getenv("LIFEBOAT_WANDERS"))
	if err != nil {
		stories = 2
	}
	for seed := range stories {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, clustertest.Config{Agents: 7}, func(t *testing.T, c *clustertest.Cluster) {
				w := &wander{T: t, Cluster: c, Rand: rand.New(rand.NewPCG(uint64(seed), 1)), up: []int{1, 2, 3, 4, 5, 6}}
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
	w.write()
	w.write()
	ordered := false
	switch w.IntN(3) {
	case 0:
		w.say("is advised", 0)
		w.Rebalance(0)
	case 1:
		w.say("is ordered away", 0)
		ordered = true
		w.Decommission(0, 0, "test")
	}
	w.Sleep(90 * time.Second)
	for range 6 + w.IntN(8) {
		w.happen(ordered)
	}
	if !ordered {
		w.Notice(0, 2*time.Minute)
	}
	w.WaitDrained(0)
	if w.IntN(2) == 0 { // in what is left of the two minutes
		i := w.pick(&w.up)
		w.say("dies", i)
		w.Kill(i)
		if w.IntN(2) == 0 {
			w.say("is replaced", i)
			backWithNothing(w.T, w.Cluster, i)
			w.up = append(w.up, i)
		}
	}
	w.Sleep(75 * time.Second)
	w.Kill(0)
	w.Sleep(time.Minute)
	w.VerifyEverywhere(w.up...)
}
