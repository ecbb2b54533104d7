package clustertest_test

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// An operator's order reaches the node with its next heartbeat.
func TestOperatorDecommissions(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Decommission(0, 100*time.Second, "disks are to be changed")
		half(t, c, 0)
		n := c.Show(0)
		if n.State != "DECOMMISSIONING" || n.Status.Notice.GetKind() != "decommission" || n.Reason != "disks are to be changed" {
			t.Errorf("got %v", n)
		}
		if left := n.Status.Notice.GetRemaining().AsDuration(); (left - n.Remaining.AsDuration()).Abs() > 2*time.Second {
			t.Errorf("the node thinks that %s remain, the coordinator says %s", left, n.Remaining.AsDuration())
		}
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
		history(t, c, 0, registered, ordered, announced, decommissioned)
		c.Sleep(time.Minute)
		if state := c.State(0); state != "DECOMMISSIONED" {
			t.Errorf("a minute later it is %s: the order stands until it is taken back", state)
		}
		c.Recommission(0)
		c.Sleep(5 * time.Second)
		if n := c.Show(0); n.State != "ACTIVE" || !n.Schedulable {
			t.Errorf("got %v, want it in service", n)
		}
		c.VerifyEverywhere(1, 2)
	})
}

func TestOperatorRecommissionsMidDrain(t *testing.T) {
	for _, s := range []struct {
		name string
		when func(c *clustertest.Cluster) // calls Recommission
	}{
		{"plainly", func(c *clustertest.Cluster) {
			c.Recommission(0)
		}},
		{"after a restart of the agent", func(c *clustertest.Cluster) {
			c.Kill(0)
			c.Restart(0)
			c.Sleep(3 * time.Second)
			c.Recommission(0)
		}},
		{"while the agent restarts", func(c *clustertest.Cluster) {
			c.Kill(0)
			c.Recommission(0)
			c.Sleep(3 * time.Second)
			c.Restart(0)
		}},
		{"after a restart of the coordinator", func(c *clustertest.Cluster) {
			c.KillCoordinator()
			c.RestartCoordinator()
			c.Recommission(0)
		}},
		{"while the agent is stopped", func(c *clustertest.Cluster) {
			c.Stop(0)
			c.Recommission(0)
			c.Restart(0)
		}},
	} {
		t.Run(s.name, func(t *testing.T) {
			bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
				fill(c, 0)
				c.Decommission(0, 100*time.Second, "")
				half(t, c, 0)
				s.when(c)
				c.Sleep(7 * time.Second)
				if n := c.Show(0); n.State != "ACTIVE" || !n.Schedulable || n.Status.Notice != nil {
					t.Errorf("got %v, want it in service", n)
				}
				sent := c.Sent(0, 1) + c.Sent(0, 2)
				c.Sleep(10 * time.Second)
				if more := c.Sent(0, 1) + c.Sent(0, 2) - sent; more > 0 {
					t.Errorf("%d bytes were sent after the order was taken back", more)
				}
				history(t, c, 0, registered, ordered, announced, recommissioned)
			})
		})
	}
}

// An operator's order and the cloud's notice stand side by side. Each is taken back by itself, and the node stays when both are.
func TestOrderBesideNotice(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Decommission(0, 600*time.Second, "")
		c.Sleep(5 * time.Second)
		c.Notice(0, 120*time.Second)
		c.Sleep(3 * time.Second)
		if n := c.Show(0); n.State != "DECOMMISSIONING" || (n.Remaining.AsDuration()-117*time.Second).Abs() > 2*time.Second {
			t.Errorf("got %v, want the notice's deadline, which is the earlier", n)
		}
		c.Recommission(0)
		c.Sleep(5 * time.Second)
		if n := c.Show(0); n.State != "DECOMMISSIONING" || n.Status.Notice.GetKind() != "terminate" {
			t.Errorf("the order is taken back, not the notice: got %v", n)
		}
		c.Withdraw(0)
		c.Sleep(5 * time.Second)
		if n := c.Show(0); n.State != "ACTIVE" || !n.Schedulable {
			t.Errorf("got %v, want it in service", n)
		}

		c.Notice(0, 120*time.Second)
		c.Sleep(3 * time.Second)
		c.Decommission(0, 600*time.Second, "")
		c.Sleep(3 * time.Second)
		c.Withdraw(0)
		c.Sleep(5 * time.Second)
		if n := c.Show(0); n.State != "DECOMMISSIONING" || n.Remaining.AsDuration() < 500*time.Second {
			t.Errorf("the notice is taken back, not the order: got %v", n)
		}
		c.WaitDrained(0)
		c.VerifyEverywhere(1, 2)
	})
}

// Blocks that a drain lost for want of time are carried when there is time again: the notice is taken back that left so little, and the
// order beside it stands; or the cloud's reclaim came to nothing, and another one follows.
func TestLostForWantOfTimeThatThereIsAgain(t *testing.T) {
	for name, s := range map[string]struct {
		ordered bool
		later   func(c *clustertest.Cluster)
	}{
		"the order stands": {true, func(c *clustertest.Cluster) { c.Withdraw(0) }},
		"another reclaim":  {false, func(c *clustertest.Cluster) { c.Sleep(3 * time.Minute); c.Notice(0, 2*time.Minute) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
				blocks := fill(c, 0)
				if s.ordered {
					c.Decommission(0, 10*time.Minute, "")
				}
				c.Notice(0, 20*time.Second)
				c.WaitDrained(0)
				if summary, _ := c.Manifest(0); summary.GetLost().GetBlocks() == 0 {
					t.Fatalf("got %v, want a drain that was cut short", summary)
				}
				s.later(c)
				c.Sleep(90 * time.Second)
				accounted(t, c, 0, blocks, 0)
			})
		})
	}
}

// A node that was ordered away while it was silent leaves when it is back.
func TestOrderWaitsForTheNode(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Partition(0, clustertest.Coordinator)
		c.Sleep(5 * time.Second)
		c.Decommission(0, 100*time.Second, "")
		c.Sleep(20 * time.Second)
		c.Heal()
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
	})
}

// An operator gives the node more time, and less.
func TestOperatorChangesTheLimit(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Decommission(0, 20*time.Second, "")
		c.Sleep(5 * time.Second)
		c.Decommission(0, 200*time.Second, "")
		c.Sleep(25 * time.Second)
		if n := c.Show(0); n.State != "DECOMMISSIONING" || (n.Remaining.AsDuration()-170*time.Second).Abs() > 2*time.Second {
			t.Fatalf("30 s after an order that now has 200 s: got %v", n)
		}
		c.Decommission(0, 38*time.Second, "")
		if took := c.WaitDrained(0); took > 6*time.Second {
			t.Errorf("drained %s later, want 3 s: 5 s before the limit", took)
		}
		if summary, _ := c.Manifest(0); summary.GetLost().GetBlocks() == 0 || summary.GetMoved().GetBlocks() == 0 {
			t.Errorf("got %v, want the account of a drain that was cut short", summary)
		}
	})
}

// An order whose time limit is lifted waits for the node's workload, even if the agent was away when the limit was lifted.
func TestOperatorLiftsTheLimit(t *testing.T) {
	for name, away := range map[string]bool{"heard": false, "while the agent is away": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, withEngine(stops), func(t *testing.T, c *clustertest.Cluster) {
				unit := c.Unit(0, engine)
				fill(c, 0)
				c.Decommission(0, 2*time.Minute, "")
				c.Sleep(20 * time.Second)
				if away {
					c.Kill(0)
				}
				c.Decommission(0, -time.Second, "")
				if away {
					c.Sleep(3 * time.Second)
					c.Restart(0)
				}
				c.Sleep(3 * time.Minute)
				if n := c.Show(0); n.State != "DECOMMISSIONING" || n.SubState != "WAIT_WORKLOAD" || n.Deadline != nil {
					t.Errorf("got %v, want it to wait without a limit", n)
				}
				if ended, stops, _ := unit.Ended(); ended || stops > 0 {
					t.Error("the engine was stopped by the limit that was lifted")
				}
				unit.End()
				c.WaitDrained(0)
			})
		})
	}
}
