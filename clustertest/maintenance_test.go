package clustertest_test

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// Two machines of three have appointments, one after the other. Each node leaves in time, with all that it has, also with what the
// one before had brought it; a machine that is booted while it is worked on is not let in; and both come back.
func TestNodesLeaveForTheirMachinesMaintenance(t *testing.T) {
	bubble(t, clustertest.Config{Coordinators: 3}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		fill(c, 1)
		now := time.Now()
		c.ScheduleMaintenance(now.Add(15*time.Minute), 0)
		c.ScheduleMaintenance(now.Add(80*time.Minute), 1) // so it is a peer for the first
		c.Sleep(4 * time.Minute)
		if s := c.State(0); s != "ACTIVE" || c.Show(0).Maintenance != "DRAINING" || c.Show(0).Schedulable {
			t.Errorf("11 minutes before: got %v", c.Show(0))
		}
		c.KillCoordinator(0)
		c.Sleep(2 * time.Minute)
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
			t.Error("nothing went to the node whose appointment is an hour away")
		}
		c.RestartCoordinator(0)

		c.TakeMachine(false, 0)
		c.Stop(0)
		c.Sleep(time.Minute)
		c.Restart(0)
		c.Sleep(time.Minute)
		if n := c.Show(0); n.State != "DECOMMISSIONED" || n.Maintenance != "DOWN" {
			t.Errorf("booted while it is worked on: got %v", n)
		}
		c.VerifyEverywhere(1, 2)
		c.TakeMachine(true, 0)
		c.WaitState(0, "ACTIVE")

		c.Sleep(time.Until(now.Add(71 * time.Minute)))
		c.WaitState(1, "DECOMMISSIONED")
		if m, _ := c.Manifest(1); m.GetLost().GetBlocks() != 0 || m.GetMoved().GetBlocks() == 0 {
			t.Errorf("the second: got %v", m)
		}
		c.TakeMachine(false, 1)
		c.Kill(1)
		c.VerifyEverywhere(0, 2)
	})
}
