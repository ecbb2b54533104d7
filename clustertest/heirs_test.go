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

// handedOn has node 1, who took some of node 0's blocks, leave, and the one die that it handed most on to. It returns the others.
func handedOn(c *clustertest.Cluster) (live []int) {
	c.Notice(1, 2*time.Minute)
	c.WaitDrained(1)
	c.Kill(1)
	heir := heirOf(c)
	c.Sleep(2 * time.Minute) // node 0 has seen to what node 1 took
	c.Kill(heir)
	c.WaitState(heir, "LOST")
	for i := 2; i <= 4; i++ {
		if i != heir {
			live = append(live, i)
		}
	}
	return live
}

// handsOn has the one of nodes 1 to 3 that took most of node 0's blocks leave, and returns it, and the others of nodes 1 to 4.
func handsOn(c *clustertest.Cluster) (taker int, live []int) {
	taker, _ = most(c, 0)
	c.Notice(taker, 2*time.Minute)
	c.WaitDrained(taker)
	c.Kill(taker)
	return taker, slices.DeleteFunc([]int{1, 2, 3, 4}, func(i int) bool { return i == taker })
}

// heirOf is to which of nodes 2 to 4 node 1 sent most.
func heirOf(c *clustertest.Cluster) (heir int) {
	heir = 2
	for i := 3; i <= 4; i++ {
		if c.Sent(1, i) > c.Sent(1, heir) {
			heir = i
		}
	}
	return heir
}

// Who took a node's blocks leaves, and whoever it hands them on to dies.
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

// What a node has of others it carries like its own, and again when who took it dies: that it has it itself still does not count.
func TestHolderOfWhatWasTakenInIsGone(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 5}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 4)
		for i := 1; i <= 3; i++ {
			c.Deactivate(false, i)
		}
		c.Sleep(5 * time.Second) // all have heard
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

// backWithNothing has another machine come under a node's name, which was killed.
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

// The node's agent starts anew, and does not know who was gone before that: what it carried ahead is with others than it told of.
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

// Whoever took blocks is back within seconds with an empty disk, as a container is: it was never gone, but what it took is.
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

// The coordinator that knew of that begins anew before the next look, and counts its events from one again.
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

// A pass of copying ahead waits until somebody has room, for as long as that takes: who took blocks is watched meanwhile.
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

// The same in the two minutes of a notice, with the blocks of a drain that runs and of one that is over.
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
		c.Sleep(70 * time.Second) // the coordinator has heard from all: else what nobody has told of is taken to be held
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

// Nothing that came with a machine that is new since the advice is carried again for that.
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

// What a taker handed on is out of date once its block has changed and went to another: nobody serves it when its node is gone.
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

// A holder that is advised to go has handed its copies on. They change, and there is no time to carry them once more before the node's order
// is taken back: nobody serves what they were.
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
		c.Deactivate(false, 2) // what they have become does not go there
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

// A block is with an heir, which is away as it changes, and back with what it was. Nobody could tell it, for nobody but the coordinator
// knew that it has it.
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

// awayAsTheHomeGoes has the holder of most of node 0's blocks be away as they change, and as that node goes. It returns it, and the others.
func awayAsTheHomeGoes(t *testing.T, c *clustertest.Cluster) (away int, live [2]int) {
	t.Helper()
	blocks := copiedAhead(c)
	away, live = killHolder(c)
	rewrite(t, c, blocks)
	goes(c, live[0], live[1])
	c.Sleep(2 * time.Minute)
	return away, live
}

// Who took blocks is away as they change and as their node goes, and is back when nobody is there any more that they were born on. Those
// have them who took them last.
func TestHolderIsBackWhenTheHomeIsGone(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		away, _ := awayAsTheHomeGoes(t, c)
		c.Restart(away)
		c.Sleep(30 * time.Second)
		c.VerifyEverywhere(1, 2, 3)
	})
}

// The same, and it is told to go itself as soon as it is there: it hands on nothing that is newer elsewhere.
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

// A node handed blocks back to the one that it had them from, and stayed. Both go, that one first: it says that the other has them, and the
// other may not say the same of it.
func TestEachHasWhatTheOtherGoesWith(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		c.Deactivate(false, 2)
		c.Sleep(5 * time.Second) // all have heard
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
