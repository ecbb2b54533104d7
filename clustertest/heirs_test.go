package clustertest_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/clustertest"
)

// handedOn has node 1, which took some of node 0's blocks, leave, and kills the node to which it handed most of them. It returns the others.
func handedOn(c *clustertest.Cluster) (live []int) {
	c.Notice(1, 2*time.Minute)
	c.WaitDrained(1)
	c.Kill(1)
	heir := heirOf(c)
	c.Sleep(2 * time.Minute) // by then node 0 has looked after the blocks that node 1 took
	c.Kill(heir)
	c.WaitState(heir, "LOST")
	for i := 2; i <= 4; i++ {
		if i != heir {
			live = append(live, i)
		}
	}
	return live
}

// handsOn has the one of nodes 1 to 3 that took most of node 0's blocks leave. It returns that node, and the others of nodes 1 to 4.
func handsOn(c *clustertest.Cluster) (taker int, live []int) {
	taker, _ = most(c, 0)
	c.Notice(taker, 2*time.Minute)
	c.WaitDrained(taker)
	c.Kill(taker)
	return taker, slices.DeleteFunc([]int{1, 2, 3, 4}, func(i int) bool { return i == taker })
}

// heirOf returns the one of nodes 2 to 4 to which node 1 sent most.
func heirOf(c *clustertest.Cluster) (heir int) {
	heir = 2
	for i := 3; i <= 4; i++ {
		if c.Sent(1, i) > c.Sent(1, heir) {
			heir = i
		}
	}
	return heir
}

// The receiver of a node's blocks leaves, and the node to which it hands them on dies.
func TestHeirIsGoneAfterTheDrain(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 5}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Decommission(0, 0, "test")
		c.WaitDrained(0)
		live := handedOn(c)
		c.Sleep(2 * time.Minute)
		c.Kill(0)
		c.VerifyEverywhere(live...)
	})
}

func TestHeirIsGoneBeforeTheNotice(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 5}, func(t *testing.T, c *clustertest.Cluster) {
		copiedAhead(c)
		goes(c, handedOn(c)...)
	})
}

// A node carries landed blocks like its own, and again when their receiver dies: its own copies, which it still has, do not count.
func TestHolderOfWhatWasTakenInIsGone(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 5}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 4)
		for i := 1; i <= 3; i++ {
			c.Deactivate(false, i)
		}
		c.Sleep(5 * time.Second) // all nodes have heard of it
		c.Notice(4, 2*time.Minute)
		c.WaitDrained(4)
		if n := wasTaken(c, 4, 0); n != fillBlocks {
			t.Fatalf("node 0 has %d blocks of others, want all %d", n, fillBlocks)
		}
		c.Kill(4)
		for i := 1; i <= 3; i++ {
			c.Deactivate(true, i)
		}
		c.Decommission(0, 0, "test")
		c.WaitDrained(0)
		dead, live := killHolder(c)
		c.Sleep(2 * time.Minute)
		if n := wasTaken(c, 0, dead); n > 0 {
			t.Errorf("%d blocks are said to be at the one that is gone", n)
		}
		c.Kill(0)
		c.Sleep(time.Minute)
		c.VerifyEverywhere(live[0], live[1])
	})
}

// backWithNothing starts another machine, with empty disks, under the name of a killed node.
func backWithNothing(t *testing.T, c *clustertest.Cluster, i int) {
	t.Helper()
	for _, dir := range []string{"data", "cache", "spark-0", "spark-1"} {
		dir = filepath.Join(c.Dir(i), dir)
		if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	c.Restart(i)
}

// The node's agent restarts, and does not remember which peers were gone before: the blocks that it copied ahead are at other peers than
// those that it sent them to.
func TestHeirIsGoneAfterARestart(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 5}, func(t *testing.T, c *clustertest.Cluster) {
		copiedAhead(c)
		c.Notice(1, 2*time.Minute)
		c.WaitDrained(1)
		c.Kill(1)
		backWithNothing(t, c, 1)
		c.Sleep(2 * time.Minute)
		c.Kill(0)
		c.Restart(0)
		c.Sleep(2 * time.Minute)
		heir := heirOf(c)
		c.Kill(heir)
		c.WaitState(heir, "LOST")
		goes(c, 1, 2+(heir-1)%3, 2+heir%3)
	})
}

// A receiver is back within seconds with an empty disk, as a container is: the node was never LOST, but the blocks that it took are gone.
func TestHolderIsBackWithNothing(t *testing.T) {
	for _, after := range []time.Duration{time.Second, 2 * time.Minute} { // before the next look at what is to be copied, and later
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
				copiedAhead(c)
				wiped, _ := most(c, 0)
				c.Sleep(after)
				c.Kill(wiped)
				backWithNothing(t, c, wiped)
				c.Sleep(30 * time.Second)
				c.Notice(0, 2*time.Minute)
				c.WaitDrained(0)
				c.Kill(0)
				c.Sleep(time.Minute)
				c.VerifyEverywhere(1, 2, 3)
			})
		})
	}
}

// The coordinator, which knew of that, loses its disk before the node's next check, and counts its events from one again.
func TestHolderIsBackWithNothingAndSoIsTheCoordinator(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		copiedAhead(c)
		c.Sleep(10 * time.Second)
		wiped, _ := most(c, 0)
		c.Kill(wiped)
		backWithNothing(t, c, wiped)
		c.Sleep(2 * time.Second)
		beginAnew(t, c)
		c.Sleep(2 * time.Minute)
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		c.Kill(0)
		c.Sleep(time.Minute)
		c.VerifyEverywhere(1, 2, 3)
	})
}

// beginAnew has the only coordinator start with an empty disk.
func beginAnew(t *testing.T, c *clustertest.Cluster) {
	t.Helper()
	c.KillCoordinator()
	if err := os.RemoveAll(filepath.Join(filepath.Dir(c.Dir(0)), clustertest.Coordinator)); err != nil {
		t.Fatal(err)
	}
	c.RestartCoordinator()
}

// A pass of copying ahead waits for a peer with room for as long as it takes: meanwhile the node checks that the receivers of its blocks
// are still there.
func TestHolderIsBackWithNothingWhileNobodyHasRoom(t *testing.T) {
	room := func(_ int, cfg *agent.Config) { cfg.Receive.MaxBytes = fillBlocks * fillSize / 4 }
	bubble(t, clustertest.Config{Agents: 4, Agent: room}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Rebalance(0)
		c.Sleep(5 * time.Minute)
		wiped, _ := most(c, 0)
		c.Kill(wiped)
		backWithNothing(t, c, wiped)
		c.Sleep(2 * time.Minute)
		held := int64(0)
		for _, b := range blocks {
			held += int64(min(1, len(c.Locate(b.ID).Holders)))
		}
		if moved, _ := c.Moved(0); moved != held || moved == 0 {
			t.Errorf("by its account %d blocks are with others, who have %d", moved, held)
		}
	})
}

// The same in the two minutes of a notice, during a drain and after it.
func TestHolderIsBackWithNothingAfterTheDrain(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		began := time.Now()
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		wiped, _ := most(c, 0)
		c.Kill(wiped)
		backWithNothing(t, c, wiped)
		c.Sleep(time.Until(began.Add(115 * time.Second)))
		c.Kill(0)
		c.Sleep(time.Minute)
		c.VerifyEverywhere(1, 2, 3)
	})
}

func TestHolderIsBackWithNothingAmidTheDrain(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4, BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Sleep(70 * time.Second) // all nodes have reported: before that the coordinator takes unreported blocks to be held
		c.Notice(0, 2*time.Minute)
		half(t, c, 0)
		wiped, _ := most(c, 0)
		c.Kill(wiped)
		backWithNothing(t, c, wiped)
		c.WaitDrained(0)
		c.Kill(0)
		c.Sleep(time.Minute)
		c.VerifyEverywhere(1, 2, 3)
	})
}

// Blocks that landed at a machine that came after the advice are not carried again because the machine is new.
func TestNewMachineTakesBlocks(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		c.Rebalance(0)
		c.Sleep(3 * time.Second)
		for i := 1; i <= 3; i++ {
			c.Kill(i)
			backWithNothing(t, c, i)
		}
		c.Sleep(time.Minute)
		blocks := fill(c, 0)
		c.Until("all is copied ahead", 5*time.Minute, func() bool { n, _ := c.Moved(0); return n == fillBlocks })
		sent := c.Sent(0, 1) + c.Sent(0, 2) + c.Sent(0, 3)
		c.Sleep(5 * time.Minute)
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
		if again := c.Sent(0, 1) + c.Sent(0, 2) + c.Sent(0, 3) - sent; again > 100_000 {
			t.Errorf("%d bytes were carried again", again)
		}
	})
}

// A receiver hands blocks on. They change, and their new versions go to another peer: when their node is gone nobody serves the old ones.
func TestHeirForgetsWhatIsOutOfDate(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 5}, func(t *testing.T, c *clustertest.Cluster) {
		var blocks []*clustertest.Block
		for i := range 24 {
			blocks = append(blocks, c.Write(0, "cache", fmt.Sprintf("part-%d", i), 20_000))
		}
		c.Rebalance(0)
		c.Until("all is copied ahead", time.Minute, func() bool { n, _ := c.Moved(0); return n == int64(len(blocks)) })
		for _, leaves := range []int{1, 2} {
			c.Notice(leaves, 2*time.Minute)
			c.WaitDrained(leaves)
			c.Kill(leaves)
		}
		c.Sleep(2 * time.Minute)
		rewrite(t, c, blocks)
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		c.Kill(0)
		c.Sleep(time.Minute)
		c.VerifyEverywhere(3, 4)
	})
}

// A holder that is advised to go has handed its copies on. The blocks change, and there is no time to carry them again before the node's
// order is taken back: nobody serves the old versions.
func TestHeirForgetsWhatThereWasNoTimeFor(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 3, BytesPerSecond: 1000}, func(t *testing.T, c *clustertest.Cluster) {
		c.Deactivate(false, 2)
		c.Sleep(5 * time.Second)
		var blocks []*clustertest.Block
		for i := range 4 {
			blocks = append(blocks, c.Write(0, "cache", fmt.Sprint("part-", i), 20_000))
		}
		c.Rebalance(0)
		c.Until("all is copied ahead", time.Minute, func() bool { return c.Status(1).GetStatus().GetHeldBlocks() == 4 })
		c.Deactivate(true, 2)
		c.Sleep(5 * time.Second)
		c.Rebalance(1)
		c.Until("it is handed on", 2*time.Minute, func() bool { return c.Status(2).GetStatus().GetHeldBlocks() >= 4 })
		c.Deactivate(false, 2) // the new versions do not go there
		c.Sleep(5 * time.Second)
		rewrite(t, c, blocks)
		c.Decommission(0, 0, "test")
		c.Sleep(3 * time.Second)
		c.Recommission(0)
		c.Sleep(2 * time.Second)
		for _, b := range blocks {
			if _, got := c.Read(2, b.ID); len(got) == 20_000 {
				t.Errorf("%s is read as it was", b.ID)
			}
		}
	})
}

// A node to which a block was handed on is away while the block changes, and back with the old version. Only the coordinator knew that it
// has the block.
func TestHeirIsBackWithWhatItWas(t *testing.T) {
	for name, away := range map[string]func(c *clustertest.Cluster, heir int, meanwhile func()){
		"its agent was killed": func(c *clustertest.Cluster, heir int, meanwhile func()) {
			c.Kill(heir)
			meanwhile()
			c.Restart(heir)
		},
		"it was cut off": func(c *clustertest.Cluster, heir int, meanwhile func()) {
			c.Partition(heir)
			meanwhile()
			c.Heal()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, clustertest.Config{Agents: 5}, func(t *testing.T, c *clustertest.Cluster) {
				blocks := copiedAhead(c)
				taker, live := handsOn(c)
				heir := slices.MaxFunc(live, func(i, j int) int { return cmp.Compare(c.Sent(taker, i), c.Sent(taker, j)) })
				c.Sleep(2 * time.Minute)
				away(c, heir, func() {
					c.WaitState(heir, "LOST")
					rewrite(t, c, blocks)
					c.Sleep(2 * time.Minute)
				})
				c.Sleep(30 * time.Second)
				goes(c, live...)
			})
		})
	}
}

// awayAsTheHomeGoes has the holder of most of node 0's blocks be away while they change, and while node 0 goes. It returns the holder, and
// the other nodes.
func awayAsTheHomeGoes(t *testing.T, c *clustertest.Cluster) (away int, live [2]int) {
	t.Helper()
	blocks := copiedAhead(c)
	away, live = killHolder(c)
	rewrite(t, c, blocks)
	goes(c, live[0], live[1])
	c.Sleep(2 * time.Minute)
	return away, live
}

// A holder is away while its blocks change and their node goes, and is back when that node is gone. The peers that took the blocks last
// have the new versions.
func TestHolderIsBackWhenTheHomeIsGone(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		away, _ := awayAsTheHomeGoes(t, c)
		c.Restart(away)
		c.Sleep(30 * time.Second)
		c.VerifyEverywhere(1, 2, 3)
	})
}

// The same, but the holder is ordered away as soon as it is back: it hands on no block of which another node has a newer version.
func TestHolderIsBackAndLeavesWhenTheHomeIsGone(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		away, live := awayAsTheHomeGoes(t, c)
		c.Notice(away, 2*time.Minute)
		c.Restart(away)
		c.WaitDrained(away)
		c.Kill(away)
		c.Sleep(time.Minute)
		c.VerifyEverywhere(live[0], live[1])
	})
}

// Node 1 took node 0's blocks, handed them back to node 0, and stayed. Then both leave: node 1 counts on node 0's copies, so node 0 must
// not count on node 1's.
func TestEachHasWhatTheOtherGoesWith(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		c.Deactivate(false, 2)
		c.Sleep(5 * time.Second) // all nodes have heard of it
		copiedAhead(c)
		c.Decommission(1, 0, "test")
		c.WaitDrained(1)
		c.Recommission(1)
		c.Deactivate(true, 2)
		c.Sleep(20 * time.Second)
		c.Notice(0, 2*time.Minute)
		c.Sleep(3 * time.Second)
		c.Notice(1, 2*time.Minute)
		c.WaitDrained(0)
		c.WaitDrained(1)
		c.Kill(0)
		c.Kill(1)
		c.Sleep(time.Minute)
		c.Verify(2)
	})
}
