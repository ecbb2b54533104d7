package clustertest_test

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// A deactivated node's blocks can be read through all other nodes, and it carries them away when it leaves; the blocks of other leaving
// nodes go elsewhere meanwhile.
func TestDrainPassesADeactivatedNodeBy(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		fill(c, 1)
		c.Deactivate(false, 1)
		c.Sleep(5 * time.Second)
		c.Decommission(0, 100*time.Second, "")
		c.WaitDrained(0)
		_, entries := c.Manifest(0)
		for id, e := range entries {
			if e.GetPeer() != c.Name(2) {
				t.Errorf("%s is at %q, want it at the one that may take it", id, e.GetPeer())
			}
		}
		c.VerifyEverywhere(1, 2)

		c.Deactivate(true, 1)
		c.Sleep(5 * time.Second)
		c.Decommission(2, 100*time.Second, "")
		c.WaitDrained(2)
		if m, _ := c.Manifest(2); m.GetMoved().GetBlocks() == 0 || m.GetLost().GetBlocks() > 0 {
			t.Errorf("reactivated, it was given nothing: %v", m)
		}
		c.VerifyEverywhere(1)
	})
}
