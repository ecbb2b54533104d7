package clustertest_test

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// handedOn has node 1, who took some of node 0's blocks, leave, and the one die that it handed most on to. It returns the others.
func handedOn(c *clustertest.Cluster) (live []int) {
	c.Notice(1, 2*time.Minute)
	c.WaitDrained(1)
	c.Kill(1)
	heir := 2
	for i := 3; i <= 4; i++ {
		if c.Sent(1, i) > c.Sent(1, heir) {
			heir = i
		}
	}
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
		live := handedOn(c)
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		c.Kill(0)
		c.VerifyEverywhere(live...)
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
