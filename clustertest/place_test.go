package clustertest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// A metadata service that comes up after the agent then tells the node's zone and pool, and an order that was given while the node could not
// be reached stands all the same.
func TestPlaceIsLearnedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Config{Agents: 2})
		c.Cloud(0).Fail(500)
		c.Kill(0)
		began := time.Now()
		c.Restart(0)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the start waited %v for the cloud", took)
		}
		c.Sleep(10 * time.Second)
		if n := c.Show(0); n.GetZone() != "" || n.GetPool() != "" || n.GetState() != "ACTIVE" {
			t.Errorf("the cloud says nothing, and it is %s in zone %q, pool %q", n.GetState(), n.GetZone(), n.GetPool())
		}
		c.Cloud(0).Fail(0)
		c.Until("it is known where it stands", time.Minute+10*time.Second, func() bool {
			return c.Show(0).GetZone() == "us-east-1a" && c.Show(0).GetPool() == "r5.4xlarge-spot"
		})

		c.Cloud(0).Fail(500)
		c.Kill(0)
		c.Restart(0)
		c.Sleep(10 * time.Second)
		c.Partition(0, clustertest.Coordinator)
		c.Decommission(0, 10*time.Second, "it is old")
		c.WaitState(0, "DECOMMISSIONED")
		c.Cloud(0).Fail(0)
		c.Sleep(2 * time.Minute)
		c.Heal()
		c.Until("it is known where it stands", time.Minute, func() bool {
			if state := c.State(0); state != "DECOMMISSIONED" {
				t.Fatalf("it is %s again, and nobody has taken the order back", state)
			}
			return c.Show(0).GetZone() == "us-east-1a"
		})
		c.Sleep(time.Minute)
		if state := c.State(0); state != "DECOMMISSIONED" {
			t.Errorf("it is %s again, and nobody has taken the order back", state)
		}
	})
}
