package clustertest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/coordinator"
)

// three is a cluster whose leader may go.
var three = clustertest.Config{Coordinators: 3, BytesPerSecond: slow}

// survives checks what must hold whatever happened to the leaders: every block is moved or named as lost, no event is told twice, and no
// node is LOST.
func survives(t *testing.T, c *clustertest.Cluster, blocks []*clustertest.Block, began ...string) {
	t.Helper()
	c.WaitDrained(0)
	accounted(t, c, 0, blocks, 0)
	if began == nil {
		began = []string{announced}
	}
	history(t, c, 0, slices.Concat([]string{registered}, began, []string{decommissioned})...)
	for i := 1; i < 3; i++ {
		history(t, c, i, registered)
	}
	c.VerifyEverywhere(1, 2)
}

// The leader is killed at each step of a drain. The deadline stays what it was, to the second.
func TestLeaderIsKilled(t *testing.T) {
	for _, s := range []struct {
		name  string
		when  func(t *testing.T, c *clustertest.Cluster)
		began []string // events; nil: it is the notice's drain
	}{
		{"while its node registers", func(t *testing.T, c *clustertest.Cluster) {
			c.Kill(0)
			leader := c.Leader()
			c.Restart(0)
			c.KillCoordinator(leader)
			c.Notice(0, 120*time.Second)
		}, nil},
		{"with the order, before its node hears of it", func(t *testing.T, c *clustertest.Cluster) {
			leader := c.Leader()
			c.Partition(0, clustertest.CoordinatorName(leader))
			c.Decommission(0, 120*time.Second, "the story's")
			c.KillCoordinator(leader)
			c.Heal()
		}, []string{ordered, announced}},
		{"as soon as its node has heard of the order", func(t *testing.T, c *clustertest.Cluster) {
			leader := c.Leader()
			c.Decommission(0, 120*time.Second, "the story's")
			c.Until("the node knows", 10*time.Second, func() bool { return c.Status(0).GetStatus().GetNotice() != nil })
			c.KillCoordinator(leader)
		}, []string{ordered, announced}},
		{"with the first block that lands", func(t *testing.T, c *clustertest.Cluster) {
			leader := c.Leader()
			c.Notice(0, 120*time.Second)
			c.Until("a block is moved", time.Minute, func() bool { n, _ := c.Moved(0); return n >= 1 })
			c.KillCoordinator(leader)
		}, nil},
		{"with the goodbye on its way", func(t *testing.T, c *clustertest.Cluster) {
			leader := c.Leader()
			c.Notice(0, 120*time.Second)
			c.Until("all blocks but one are moved", 2*time.Minute, func() bool { n, _ := c.Moved(0); return n >= fillBlocks-1 })
			c.Partition(0, clustertest.CoordinatorName(leader)) // messages from here on wait in the link
			c.Sleep(4 * time.Second)
			c.KillCoordinator(leader)
			c.Heal()
		}, nil},
		{"before the notice", func(t *testing.T, c *clustertest.Cluster) {
			c.KillCoordinator(c.Leader())
			c.Notice(0, 120*time.Second)
		}, nil},
		{"with the notice", func(t *testing.T, c *clustertest.Cluster) {
			leader := c.Leader()
			c.Notice(0, 120*time.Second)
			c.Until("the node knows", 10*time.Second, func() bool { return c.Status(0).GetStatus().GetNotice() != nil })
			c.KillCoordinator(leader)
		}, nil},
		{"in the middle", func(t *testing.T, c *clustertest.Cluster) {
			c.Notice(0, 120*time.Second)
			half(t, c, 0)
			c.KillCoordinator(c.Leader())
		}, nil},
		{"before the goodbye", func(t *testing.T, c *clustertest.Cluster) {
			c.Notice(0, 120*time.Second)
			c.Until("all blocks are moved", 2*time.Minute, func() bool { n, _ := c.Moved(0); return n >= fillBlocks-1 })
			c.KillCoordinator(c.Leader())
		}, nil},
		{"after the goodbye", func(t *testing.T, c *clustertest.Cluster) {
			c.Notice(0, 120*time.Second)
			c.WaitDrained(0)
			c.KillCoordinator(c.Leader())
		}, nil},
		{"and comes back, each in turn", func(t *testing.T, c *clustertest.Cluster) {
			c.Notice(0, 120*time.Second)
			for range 3 {
				leader := c.Leader()
				c.KillCoordinator(leader)
				c.Leader(leader)
				c.RestartCoordinator(leader)
				c.Sleep(3 * time.Second)
			}
		}, nil},
		{"and stops as it should, each in turn", func(t *testing.T, c *clustertest.Cluster) {
			c.Notice(0, 120*time.Second)
			for range 3 {
				leader := c.Leader()
				c.StopCoordinator(leader)
				c.Leader(leader)
				c.RestartCoordinator(leader)
				c.Sleep(3 * time.Second)
			}
		}, nil},
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
				survives(t, c, blocks, s.began...)
			})
		})
	}
}

// onTheirMachines is a cluster of three coordinators, each on the machine of a node.
var onTheirMachines = clustertest.Config{Coordinators: 3, BytesPerSecond: slow, Coordinator: func(cfg *coordinator.Config) {
	for i := range 3 {
		if cfg.Name == clustertest.CoordinatorName(i) {
			cfg.Node = fmt.Sprintf("host-%c", 'a'+i)
		}
	}
}}

// leaving returns the coordinators that the leader shows as leaving.
func leaving(c *clustertest.Cluster) (names []string) {
	for _, m := range c.CoordinatorStatus(c.Leader()).GetMembers() {
		if m.Leaving {
			names = append(names, m.Name)
		}
	}
	return names
}

// A leader whose machine is under notice hands the lead over before the machine goes. No coordinator whose machine goes takes the lead
// while there is another. A withdrawn notice leaves no trace.
func TestLeaderWhoseMachineGoes(t *testing.T) {
	bubble(t, onTheirMachines, func(t *testing.T, c *clustertest.Cluster) {
		first := c.Leader()
		c.Notice(first, 120*time.Second)
		if took := c.Until("another one leads", 10*time.Second, func() bool { return c.Leader() != first }); took > 5*time.Second {
			t.Errorf("leadership was handed over %s after the notice", took)
		}
		second := c.Leader()
		if got, want := leaving(c), []string{clustertest.CoordinatorName(first)}; !slices.Equal(got, want) {
			t.Errorf("got %v shown as leaving, want %v", got, want)
		}
		c.Decommission(second, time.Hour, "disks are to be changed")
		c.Until("the last one leads", 10*time.Second, func() bool { l := c.Leader(); return l != first && l != second })
		third := c.Leader()
		c.KillCoordinator(third)
		c.Leader(third) // one of those that leave: no other is there
		c.RestartCoordinator(third)
		c.Until("the one that stays leads", 20*time.Second, func() bool { return c.Leader() == third })
		c.Decommission(third, time.Hour, "")
		c.Sleep(15 * time.Second)
		if now := c.Leader(); now != third {
			t.Errorf("got %d as the leader when everybody leaves, want %d still", now, third)
		}
	})
}

// A notice that is withdrawn leaves nothing behind: the coordinator may lead again.
func TestLeaderWhoseMachineStaysAfterAll(t *testing.T) {
	bubble(t, onTheirMachines, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		fill(c, 1)
		fill(c, 2)
		first := c.Leader()
		c.Notice(first, 120*time.Second)
		c.Until("another one leads", 10*time.Second, func() bool { return c.Leader() != first })
		c.Withdraw(first)
		c.WaitState(first, "ACTIVE")
		c.Until("nobody leaves", time.Minute, func() bool { return len(leaving(c)) == 0 })
		c.HandOver(first)
		c.Sleep(10 * time.Second)
		if now := c.Leader(); now != first {
			t.Errorf("got %d as the leader, want %d, to which it was handed", now, first)
		}
	})
}

// How long no decision can be made: hardly at all when the lead is handed over; when the leader is killed, until the others notice.
func TestDecisionsWaitForTheNextLeader(t *testing.T) {
	bubble(t, three, func(t *testing.T, c *clustertest.Cluster) {
		next := func(what string, most time.Duration, goes func(leader int)) (was int) {
			t.Helper()
			was = c.Leader()
			began := time.Now()
			goes(was)
			c.Decommission(0, time.Hour, what)
			if took := time.Since(began); took > most {
				t.Errorf("%s: got %s until the next decision, want %s at most", what, took, most)
			}
			if c.Leader() == was {
				t.Errorf("%s: %d still leads", what, was)
			}
			return was
		}
		for range 3 {
			next("handed over", 200*time.Millisecond, func(leader int) { c.HandOver((leader + 1) % 3) })
			c.Sleep(5 * time.Second)
			c.RestartCoordinator(next("killed", 5*time.Second, func(leader int) { c.KillCoordinator(leader) }))
			c.Sleep(5 * time.Second)
		}
	})
}

// An order outlives the leader that gave it, with its remaining time.
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

// A leader that is cut off from the other coordinators, but not from nodes, stops answering them before a new leader decides anything.
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

// No node is LOST when all coordinators were away for longer than a lease, and agents drain without them.
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

// A coordinator that missed the goodbye of a node, and leads a moment later, gets the manifest from one that has it.
func TestNextLeaderHasTheManifest(t *testing.T) {
	bubble(t, three, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		next := (c.Leader() + 1) % 3
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		c.Sleep(5 * time.Second)
		c.ForgetManifests(next)
		c.HandOver(next)
		if summary, entries := c.Manifest(0); summary.GetMoved().GetBlocks() != int64(len(blocks)) || len(entries) != len(blocks) {
			t.Errorf("got a manifest of %d moved and %d entries, want %d", summary.GetMoved().GetBlocks(), len(entries), len(blocks))
		}
	})
}
