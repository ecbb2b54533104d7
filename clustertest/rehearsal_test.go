package clustertest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/preemption/ec2fake"
)

// A real notice during a rehearsal has all of its own time, even if the rehearsal's time is up already.
func TestNoticeAmidARehearsal(t *testing.T) {
	for name, after := range map[string]time.Duration{"while it drains": 10 * time.Second, "when it is drained": 28 * time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
				blocks := fill(c, 0)
				c.Sleep(3 * time.Second)
				c.Partition(0, c.Name(1), c.Name(2))
				c.Simulate(0, preemption.KindTerminate, 30*time.Second, false)
				c.Sleep(after)
				c.Notice(0, 2*time.Minute)
				c.Sleep(40 * time.Second)
				if n := c.Show(0); n.State != "DECOMMISSIONING" {
					t.Errorf("amid the drain in earnest the coordinator says %s", n.State)
				}
				c.Heal()
				c.Sleep(30 * time.Second)
				accounted(t, c, 0, blocks, 0)
				if m, _ := c.Manifest(0); m.GetSource() != preemption.SourceEC2 || m.GetDeadline().AsTime().Sub(m.GetNoticedAt().AsTime()) < 2*time.Minute {
					t.Errorf("got the account of %v, want the cloud's notice and its deadline", m)
				}
			})
		})
	}
}

// A real notice at the very end of a rehearsal, while the blocks for which that had no time are being named, has all of its time.
func TestNoticeWhileARehearsalNamesWhatItLost(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		for n := range 2000 { // they take a while to name
			blocks = append(blocks, c.Write(0, "cache", fmt.Sprintf("small/%d", n), 1000))
		}
		c.Simulate(0, preemption.KindTerminate, 20*time.Second, false)
		time.Sleep(15 * time.Second) // the tail begins then, as no workload is waited for
		c.DecommissionSelf(0, preemption.SourceManual, 5*time.Minute, "in earnest")
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
		if m, _ := c.Manifest(0); m.GetSource() != preemption.SourceManual {
			t.Errorf("got the account of %v, want that of the notice", m)
		}
	})
}

// After a real notice the agent crashes before it could tell the coordinator that the drain known there was a rehearsal's: the restarted
// agent tells it.
func TestCrashAfterANoticeAmidARehearsal(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Simulate(0, preemption.KindTerminate, 2*time.Minute, false)
		c.WaitDrained(0)
		c.Partition(0, clustertest.Coordinator)
		c.Write(0, "cache", "written-since", 20*fillSize)
		c.Notice(0, 2*time.Minute)
		c.Sleep(5 * time.Second)
		c.Kill(0)
		c.Heal()
		c.Restart(0)
		c.Sleep(5 * time.Second)
		if n := c.Show(0); n.State != "DECOMMISSIONING" || n.Deadline == nil {
			t.Errorf("amid the drain in earnest the coordinator says %s until %v", n.State, n.Deadline)
		}
		c.WaitDrained(0)
		if m, _ := c.Manifest(0); m.GetSource() != preemption.SourceEC2 || m.GetMoved().GetBlocks() != int64(len(blocks))+1 {
			t.Errorf("got the account of %v, want the cloud's notice, and what was written since", m)
		}
		history(t, c, 0, registered, announced, decommissioned, recommissioned, announced, decommissioned)
	})
}

// The coordinator is away when the rehearsal's drain ends, and a real notice comes: the rehearsal's manifest, not yet told, is of no use
// any more.
func TestNoticeBeforeARehearsalIsTold(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Simulate(0, preemption.KindTerminate, 2*time.Minute, false)
		c.Sleep(20 * time.Second)
		c.KillCoordinator()
		c.Until("the rehearsal is drained", time.Minute, func() bool { return c.Status(0).Manifest != nil })
		blocks = append(blocks, c.Write(0, "cache", "written-since", 20*fillSize))
		c.Notice(0, 2*time.Minute)
		c.Sleep(10 * time.Second)
		c.RestartCoordinator()
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
		if m, _ := c.Manifest(0); m.GetSource() != preemption.SourceEC2 {
			t.Errorf("got the account of %v, want the notice's", m)
		}
	})
}

// The cloud's advice during a rehearsal does not make that real: no workload is stopped, and the drain does not begin again.
func TestAdviceAmidARehearsal(t *testing.T) {
	bubble(t, withEngine(stops), func(t *testing.T, c *clustertest.Cluster) {
		unit := c.Unit(0, engine)
		fill(c, 0)
		c.Simulate(0, preemption.KindTerminate, 2*time.Minute, false)
		c.Sleep(10 * time.Second)
		c.Rebalance(0)
		c.Sleep(105 * time.Second)
		if _, stops, _ := unit.Ended(); stops > 0 {
			t.Error("a rehearsal stopped the engine")
		}
		if m, _ := c.Manifest(0); m.GetSource() != preemption.SourceRehearsal {
			t.Errorf("got the account of %v, want the rehearsal's", m)
		}
		history(t, c, 0, registered, announced, "ExecutorDecommissioned", decommissioned)
	})
}

// A rehearsal ends at its deadline, even if the cloud gave a less grave notice meanwhile; and that notice stands.
func TestAdviceOutlivesARehearsal(t *testing.T) {
	for name, s := range map[string]struct {
		kind preemption.Kind
		said func(c *clustertest.Cluster)
	}{
		"advice": {preemption.KindRebalance, func(c *clustertest.Cluster) { c.Rebalance(0) }},
		"appointment": {preemption.KindMaintenance, func(c *clustertest.Cluster) {
			at := ec2fake.EventTime(time.Now().Add(48 * time.Hour))
			c.Cloud(0).Schedule(ec2fake.Event{Code: "system-maintenance", EventID: "instance-event-1", State: "active", NotBefore: at})
		}},
		"appointment for which the node leaves in the end": {preemption.KindRetirement, func(c *clustertest.Cluster) {
			at := ec2fake.EventTime(time.Now().Add(48 * time.Hour))
			c.Cloud(0).Schedule(ec2fake.Event{Code: "instance-retirement", EventID: "instance-event-1", State: "active", NotBefore: at})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
				fill(c, 0)
				c.Simulate(0, preemption.KindTerminate, 2*time.Minute, false)
				c.Sleep(10 * time.Second)
				s.said(c)
				c.Sleep(2 * time.Minute)
				if n := c.Show(0); n.State != "ACTIVE" || n.Schedulable || n.Status.Notice.GetKind() != string(s.kind) {
					t.Errorf("after the rehearsal: got %v, want it in service, and under notice of %s", n, s.kind)
				}
				c.Withdraw(0)
				c.Sleep(3 * time.Minute)
				if n := c.Show(0); !n.Schedulable {
					t.Errorf("after the withdrawal: got %v, want it without a notice", n)
				}
			})
		})
	}
}

// A real notice after a rehearsal's drain has the engine stopped in time, and its last blocks carried.
func TestNoticeAfterARehearsalStopsTheEngine(t *testing.T) {
	bubble(t, withEngine(stops), func(t *testing.T, c *clustertest.Cluster) {
		unit := c.Unit(0, engine)
		blocks := fill(c, 0)
		c.Simulate(0, preemption.KindTerminate, time.Minute, false)
		c.Until("the rehearsal is drained", 59*time.Second, func() bool { return c.Status(0).Manifest != nil })
		c.Notice(0, 2*time.Minute)
		c.Sleep(80 * time.Second)
		blocks = append(blocks, c.Write(0, "cache", "written-last", fillSize))
		c.Until("the engine has ended", 30*time.Second, func() bool { ended, _, _ := unit.Ended(); return ended })
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
	})
}

// A real notice comes while a rehearsal's drain makes another pass, because a holder is gone: there is only one drain at a time.
func TestNoticeWhileARehearsalCarriesAgain(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Simulate(0, preemption.KindTerminate, 10*time.Minute, false)
		c.WaitDrained(0)
		before := c.Sent(0, 2)
		c.Kill(1)
		c.Until("what it took is carried again", 2*time.Minute, func() bool { return c.Sent(0, 2) > before+fillSize })
		c.Partition(0, c.Name(2))
		c.Sleep(3 * time.Second)
		c.Notice(0, 3*time.Minute)
		c.Sleep(5 * time.Second)
		c.Heal()
		c.Sleep(100 * time.Second)
		accounted(t, c, 0, blocks, 0)
		if m, _ := c.Manifest(0); m.GetSource() != preemption.SourceEC2 {
			t.Errorf("got the account of %v, want the notice's", m)
		}
		c.VerifyEverywhere(2)
	})
}
