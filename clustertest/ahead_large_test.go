package clustertest_test

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/clustertest"
)

// A block that no peer has room for does not keep later blocks from being copied ahead.
func TestLargeBlockDoesNotHoldUpCopyingAhead(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 3, Agent: func(_ int, cfg *agent.Config) { cfg.Receive.MaxBytes = 300_000 }}, func(t *testing.T, c *clustertest.Cluster) {
		c.Write(0, "cache", "large", 400_000)
		c.Rebalance(0)
		c.Sleep(5 * time.Minute)
		late := c.Write(0, "cache", "late", 1000)
		c.Until("it is copied ahead", 10*time.Minute, func() bool { return c.Locate(late.ID).GetState() == "held" })
	})
}

// A block that takes long to copy is not begun again and again.
func TestLargeBlockIsCopiedAheadSlowly(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 3, Agent: func(_ int, cfg *agent.Config) { cfg.Drain.PreCopyBytesPerSecond = 5_000 }}, func(t *testing.T, c *clustertest.Cluster) {
		large := c.Write(0, "cache", "large", 5_000_000)
		c.Rebalance(0)
		c.Until("it is copied ahead", 20*time.Minute, func() bool { return c.Locate(large.ID).GetState() == "held" })
	})
}
