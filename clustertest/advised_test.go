package clustertest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// All nodes of a fleet are advised to go, as EC2 does with a whole pool. Each copies its own blocks ahead, and none that landed there:
// else blocks would go round for as long as the advice stands. When one node is taken the others have its blocks.
func TestAllAreAdvisedAndOneGoes(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		for i := range 4 {
			fill(c, i)
			c.Rebalance(i)
		}
		c.Sleep(5 * time.Minute)
		held := int64(0)
		for i := range 4 {
			held += c.Status(i).GetStatus().GetHeldBlocks()
		}
		if held != 4*fillBlocks {
			t.Errorf("%d copies of %d blocks are with others: want one of each", held, 4*fillBlocks)
		}
		sent := func() int64 { return c.Sent(0, 1) + c.Sent(0, 2) + c.Sent(0, 3) }
		before, landed := sent(), c.Status(0).GetStatus().GetHeldBytes()
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		if sum, _ := c.Manifest(0); sum.GetLost().GetBlocks() > 0 {
			t.Errorf("%d blocks are lost: want none", sum.GetLost().GetBlocks())
		}
		if more := sent() - before; more > landed+fillBlocks*fillSize/10 {
			t.Errorf("%d bytes were sent then: want at most the %d that landed here, and nothing that was copied ahead", more, landed)
		}
		c.Sleep(time.Minute)
		c.Kill(0)
		c.VerifyEverywhere(1, 2, 3)
	})
}

// Nothing was copied ahead, since the blocks are written just before the notice.
func TestAllAreAdvisedAsOneGoes(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		for i := range 4 {
			c.Rebalance(i)
		}
		c.Sleep(30 * time.Second)
		fill(c, 0)
		c.Notice(0, 20*time.Second)
		c.WaitDrained(0)
		if sum, _ := c.Manifest(0); sum.GetLost().GetBlocks() > 0 {
			t.Errorf("%d blocks are lost: want none", sum.GetLost().GetBlocks())
		}
		c.Sleep(5 * time.Second)
		c.Kill(0)
		c.VerifyEverywhere(1, 2, 3)
	})
}

// The node that is not advised gets all blocks.
func TestWhoIsAdvisedTakesNothingThatOthersTake(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Rebalance(1)
		c.Rebalance(2)
		c.Sleep(30 * time.Second)
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		_, entries := c.Manifest(0)
		for _, b := range blocks {
			if e := entries[b.ID]; e.GetPeer() != c.Name(3) {
				t.Errorf("%s is with %q: want it with %s", b.ID, e.GetPeer(), c.Name(3))
			}
		}
	})
}

// Without the coordinator only the advised nodes themselves say that they are advised. An advised node copies the blocks that it took ahead
// to the first node that is not advised.
func TestAdvisedNodePassesOnWhatItTook(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Kill(3)
		for i := range 3 {
			c.Rebalance(i)
		}
		c.WaitState(3, "LOST")
		c.Sleep(30 * time.Second)
		c.KillCoordinator()
		c.Notice(0, 2*time.Minute)
		c.Sleep(30 * time.Second)
		c.RestartCoordinator()
		c.WaitDrained(0)
		c.Sleep(time.Minute)
		c.Kill(0)
		c.Restart(3)
		c.Until("all that landed is with the one that is not advised", 5*time.Minute, func() bool {
			return slices.Contains(c.Peers(1), c.Name(3)) && c.Status(3).GetStatus().GetHeldBlocks() >= c.Status(1).GetStatus().GetHeldBlocks()+c.Status(2).GetStatus().GetHeldBlocks()
		})
		c.VerifyEverywhere(1, 2, 3)
		c.Kill(1)
		c.Kill(2)
		c.Sleep(time.Minute)
		c.Verify(3)
	})
}

// The nodes that are not advised are behind a cut link. None of Google's half minute is spent on waiting for them.
func TestAdvisedTakeWhatCannotReachOthers(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Rebalance(1)
		c.Sleep(30 * time.Second)
		c.Partition(0, c.Name(2), c.Name(3))
		c.Notice(0, 20*time.Second)
		c.WaitDrained(0)
		if sum, _ := c.Manifest(0); sum.GetLost().GetBlocks() > 0 {
			t.Errorf("%d blocks are lost: want none", sum.GetLost().GetBlocks())
		}
	})
}
