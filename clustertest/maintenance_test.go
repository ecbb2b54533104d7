package clustertest_test

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// Two machines of three have appointments. The node of the first leaves in time and carries all of its blocks, some to the second, whose
// appointment is hours away. Booted while it is worked on it is not let in, and afterwards it is. The second is taken down early, and its
// node carries its own blocks and those that landed there.
func TestNodesLeaveForTheirMachinesMaintenance(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: 2 << 20}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		fill(c, 1)
		now := time.Now()
		c.ScheduleMaintenance(now.Add(12*time.Minute), 0)
		c.ScheduleMaintenance(now.Add(3*time.Hour), 1)
		c.Sleep(time.Minute)
		if n := c.Show(0); n.State != "ACTIVE" || n.Maintenance != "DRAINING" || n.Schedulable {
			t.Errorf("11 minutes before: got %v", n)
		}
		c.KillCoordinator()
		c.RestartCoordinator()
		c.WaitState(0, "DECOMMISSIONED")
		m, entries := c.Manifest(0)
		if m.GetLost().GetBlocks() != 0 {
			t.Errorf("lost: %v", m)
		}
		brought := 0
		for _, e := range entries {
			if e.GetPeer() == c.Name(1) {
				brought++
			}
		}
		if brought == 0 {
			t.Error("nothing went to the node whose appointment is hours away")
		}

		c.TakeMachine(false, 0)
		c.Stop(0)
		c.Sleep(10 * time.Second)
		c.Restart(0)
		c.Sleep(20 * time.Second)
		if n := c.Show(0); n.State != "DECOMMISSIONED" || n.Maintenance != "DOWN" {
			t.Errorf("booted while it is worked on: got %v", n)
		}
		c.VerifyEverywhere(1, 2)
		c.TakeMachine(true, 0)
		c.WaitState(0, "ACTIVE")

		c.TakeMachine(false, 1)
		c.WaitState(1, "DECOMMISSIONED")
		if m, _ := c.Manifest(1); m.GetLost().GetBlocks() != 0 || int(m.GetMoved().GetBlocks()) <= brought {
			t.Errorf("the second: got %v", m)
		}
		c.Kill(1)
		c.VerifyEverywhere(0, 2)
	})
}
