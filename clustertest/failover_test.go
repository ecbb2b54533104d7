package clustertest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// three is a cluster whose leader may go.
var three = clustertest.Config{Coordinators: 3, BytesPerSecond: slow}

// survives checks what may be relied on whatever happened to the leaders: every block is moved or named, nothing is told
// twice, nobody was lost.
func survives(t *testing.T, c *clustertest.Cluster, blocks []*clustertest.Block) {
	t.Helper()
	c.WaitDrained(0)
	accounted(t, c, 0, blocks, 0)
	history(t, c, 0, registered, announced, decommissioned)
	for i := 1; i < 3; i++ {
		history(t, c, i, registered)
	}
	c.VerifyEverywhere(1, 2)
}

// The leader is killed at each step of a drain. The deadline stays what it was, to the second.
func TestLeaderIsKilled(t *testing.T) {
	for _, s := range []struct {
		name string
		when func(t *testing.T, c *clustertest.Cluster)
	}{
		{"before the notice", func(t *testing.T, c *clustertest.Cluster) {
			c.KillCoordinator(c.Leader())
			c.Notice(0, 120*time.Second)
		}},
		{"with the notice", func(t *testing.T, c *clustertest.Cluster) {
			leader := c.Leader()
			c.Notice(0, 120*time.Second)
			c.Until("the node knows", 10*time.Second, func() bool { return c.Status(0).GetStatus().GetNotice() != nil })
			c.KillCoordinator(leader)
		}},
		{"in the middle", func(t *testing.T, c *clustertest.Cluster) {
			c.Notice(0, 120*time.Second)
			half(t, c, 0)
			c.KillCoordinator(c.Leader())
		}},
		{"before the goodbye", func(t *testing.T, c *clustertest.Cluster) {
			c.Notice(0, 120*time.Second)
			c.Until("all blocks are moved", 2*time.Minute, func() bool { n, _ := c.Moved(0); return n >= fillBlocks-1 })
			c.KillCoordinator(c.Leader())
		}},
		{"after the goodbye", func(t *testing.T, c *clustertest.Cluster) {
			c.Notice(0, 120*time.Second)
			c.WaitDrained(0)
			c.KillCoordinator(c.Leader())
		}},
		{"and comes back, each in turn", func(t *testing.T, c *clustertest.Cluster) {
			c.Notice(0, 120*time.Second)
			for range 3 {
				leader := c.Leader()
				c.KillCoordinator(leader)
				c.Leader(leader)
				c.RestartCoordinator(leader)
				c.Sleep(3 * time.Second)
			}
		}},
		{"and stops as it should, each in turn", func(t *testing.T, c *clustertest.Cluster) {
			c.Notice(0, 120*time.Second)
			for range 3 {
				leader := c.Leader()
				c.StopCoordinator(leader)
				c.Leader(leader)
				c.RestartCoordinator(leader)
				c.Sleep(3 * time.Second)
			}
		}},
	} {
		t.Run(s.name, func(t *testing.T) {
			bubble(t, three, func(t *testing.T, c *clustertest.Cluster) {
				blocks := fill(c, 0)
				deadline := time.Now().Add(120 * time.Second)
				s.when(t, c)
				c.Until("the drain is known", 30*time.Second, func() bool { return c.State(0) != "ACTIVE" })
				if n := c.Show(0); n.State == "DECOMMISSIONING" && n.Deadline.AsTime().Sub(deadline).Abs() > time.Second {
					t.Errorf("got deadline %s, want %s", n.Deadline.AsTime(), deadline)
				}
				survives(t, c, blocks)
			})
		})
	}
}

// An order outlives the one who gave it, with its remaining time.
func TestOrderOutlivesTheLeader(t *testing.T) {
	bubble(t, three, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Decommission(0, 100*time.Second, "disks are to be changed")
		given := time.Now()
		c.KillCoordinator(c.Leader())
		n := c.Show(0)
		if want := given.Add(100 * time.Second); n.State != "DECOMMISSIONING" || n.Deadline.AsTime().Sub(want).Abs() > time.Second {
			t.Errorf("got %s until %s, want it leaving until %s", n.State, n.Deadline.AsTime(), want)
		}
		half(t, c, 0)
		c.Recommission(0)
		c.WaitState(0, "ACTIVE")
		history(t, c, 0, registered, ordered, announced, recommissioned)
	})
}

// A leader that is cut off from the others, and not from its nodes, stops answering them before another one decides.
func TestLeaderIsCutOff(t *testing.T) {
	t.Run("from the others", func(t *testing.T) { cutOff(t, false) })
	t.Run("from everybody", func(t *testing.T) { cutOff(t, true) })
}

func cutOff(t *testing.T, all bool) {
	bubble(t, three, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		old := c.Leader()
		c.CutCoordinator(old, all)
		leader := c.Leader(old)
		c.Notice(0, 120*time.Second)
		half(t, c, 0)
		if s := c.CoordinatorStatus(old); s.GetLeader() || c.Answers(old) {
			t.Errorf("%s leads or answers still, cut off", clustertest.CoordinatorName(old))
		}
		for i := range 3 {
			if state := c.State(i); state == "LOST" {
				t.Errorf("%s is lost", c.Name(i))
			}
		}
		c.Heal()
		c.WaitDrained(0)
		if c.Answers(old) || !c.Answers(leader) {
			t.Errorf("%s answers %t, %s answers %t: want the leader alone to", clustertest.CoordinatorName(old), c.Answers(old), clustertest.CoordinatorName(leader), c.Answers(leader))
		}
		if now := c.Leader(); now != leader {
			t.Errorf("got leader %d after healing, want %d still: who comes back is no reason for an election", now, leader)
		}
		survives(t, c, blocks)
	})
}

// Nobody is lost when the coordinators are away for longer than a lease, and agents drain without them.
func TestAllCoordinatorsAway(t *testing.T) {
	bubble(t, three, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		for i := range 3 {
			c.KillCoordinator(i)
		}
		c.Notice(0, 120*time.Second)
		c.Sleep(80 * time.Second)
		for i := range 3 {
			c.RestartCoordinator(i)
		}
		c.WaitDrained(0)
		if entries := accounted(t, c, 0, blocks, 0); len(entries) == 0 {
			t.Error("got an empty manifest")
		}
		for i := 1; i < 3; i++ {
			history(t, c, i, registered)
		}
	})
}

// Events keep their order and their index over failovers.
func TestEventsOverFailovers(t *testing.T) {
	bubble(t, clustertest.Config{Coordinators: 3}, func(t *testing.T, c *clustertest.Cluster) {
		var was []uint64
		for range 3 {
			c.Decommission(0, time.Hour, "")
			c.Recommission(0)
			var now []uint64
			for _, e := range c.Events(0) {
				now = append(now, e.Index)
			}
			if len(now) <= len(was) || !slices.Equal(now[:len(was)], was) || !slices.IsSorted(now) {
				t.Errorf("got events %v after %v", now, was)
			}
			was = now
			leader := c.Leader()
			c.KillCoordinator(leader)
			c.Leader(leader)
			c.RestartCoordinator(leader)
		}
	})
}
