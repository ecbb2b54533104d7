package clustertest_test

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/coordinator"
)

// In a large fleet heartbeats are seconds apart. A node's machine may go as soon as the node has said goodbye, so readers must be able to
// find its blocks by then.
func TestBlocksAreFoundAsSoonAsTheirNodeMayGo(t *testing.T) {
	beat := func(cfg *coordinator.Config) { cfg.Heartbeat = 10 * time.Second }
	bubble(t, clustertest.Config{Coordinator: beat}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Sleep(time.Minute)
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		c.Kill(0)
		for _, b := range blocks {
			if got := c.Locate(b.ID); got.State != "held" || got.Holders[0].Node == c.Name(0) {
				t.Errorf("locate %s: got %v, want it at a peer", b.ID, got)
			}
		}
		c.VerifyEverywhere(1, 2)
	})
}
