package clustertest_test

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/clustertest"
)

// copiedAhead has node 0 carry all that it has elsewhere, and stay.
func copiedAhead(c *clustertest.Cluster) []*clustertest.Block {
	blocks := fill(c, 0)
	c.Rebalance(0)
	c.Until("all is copied ahead", 5*time.Minute, func() bool { n, _ := c.Moved(0); return n == fillBlocks })
	return blocks
}

// wasTaken tells how much of what a node carried a peer has, by the node's account.
func wasTaken(c *clustertest.Cluster, from, by int) (n int) {
	_, entries := c.Manifest(from)
	for _, e := range entries {
		if e.Peer == c.Name(by) {
			n++
		}
	}
	return n
}

// A node that was advised to go may stay for weeks, and who has its blocks meanwhile may go first. When it goes itself, it carries
// again what nobody has any more, and nothing else.
func TestHolderIsGoneBeforeTheNotice(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := copiedAhead(c)
		c.Kill(1)
		c.WaitState(1, "LOST")
		ahead := c.Sent(0, 2) + c.Sent(0, 3)
		late := c.Write(0, "cache", "late", 1000)
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		accounted(t, c, 0, append(blocks, late), 0)
		if n := wasTaken(c, 0, 1); n > 0 {
			t.Errorf("%d blocks are said to be at the one that is gone", n)
		}
		if again := c.Sent(0, 2) + c.Sent(0, 3) - ahead; again < fillBytes/10 || again > fillBytes*2/3 {
			t.Errorf("sent %d bytes, want the part of %d that was at the one of three that is gone", again, fillBytes)
		}
		c.Kill(0)
		c.VerifyEverywhere(2, 3)
	})
}

// Nobody need say that the node goes: while it is advised to, it sees to it that somebody has its blocks.
func TestHolderIsGoneAndNoNoticeComes(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		copiedAhead(c)
		c.Kill(1)
		c.WaitState(1, "LOST")
		c.Sleep(20 * time.Minute)
		c.Kill(0)
		c.WaitState(0, "LOST")
		c.VerifyEverywhere(2, 3)
	})
}

// Whoever takes blocks gives them up when they were kept for long enough, also while their node is advised to go.
func TestKeepEndsBeforeTheNotice(t *testing.T) {
	short := func(_ int, cfg *agent.Config) { cfg.Receive.Keep = 10 * time.Minute }
	bubble(t, clustertest.Config{Agents: 2, Agent: short}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := copiedAhead(c)
		c.Sleep(80 * time.Minute)
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
		c.Kill(0)
		c.Verify(1)
	})
}

// A coordinator that began anew has been told of nothing yet: what is carried already is not taken for gone.
func TestNewCoordinatorHasNothingCarriedAgain(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := copiedAhead(c)
		ahead := c.Sent(0, 1) + c.Sent(0, 2)
		c.KillCoordinator()
		c.Sleep(time.Second)
		c.RestartCoordinator()
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
		if again := c.Sent(0, 1) + c.Sent(0, 2) - ahead; again > 100_000 {
			t.Errorf("the drain sent %d bytes, want next to nothing", again)
		}
	})
}
