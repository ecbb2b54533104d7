package clustertest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
)

// A host that is powered off waits for the node to be empty, and no longer.
func TestPowerOffWaitsForTheDrain(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Sleep(time.Second)
		if !c.Inhibits(0) {
			t.Fatal("the agent holds no lock")
		}
		lock, stop := c.ShutDown(0, systemd.HowPowerOff)
		if lock > 2*time.Second || stop > 2*time.Second {
			t.Errorf("the host was held up for %s and %s, want as long as the drain took", lock, stop)
		}
		accounted(t, c, 0, blocks, 0)
		c.Verify(1)
	})
}

// logind's delay is shorter than the drain. The agent goes on while systemd waits for it to stop: by the order of the units it stops before
// the network does, so its peers are still reachable.
func TestPowerOffGoesOnAfterTheLock(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Sleep(time.Second)
		lock, stop := c.ShutDown(0, systemd.HowPowerOff)
		if lock < 5*time.Second || stop < 20*time.Second {
			t.Errorf("the host was held up for %s and %s, want logind's 5 s, and the rest of 45 s", lock, stop)
		}
		accounted(t, c, 0, blocks, 0)
		c.Verify(1)
	})
}

// A reboot keeps the disks: the agent does not hold it up, and carries nothing.
func TestRebootIsNotHeldUp(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Sleep(time.Second)
		lock, stop := c.ShutDown(0, systemd.HowReboot)
		if lock > 100*time.Millisecond || stop > 100*time.Millisecond {
			t.Errorf("the host was held up for %s and %s", lock, stop)
		}
		if sent := c.Sent(0, 1) + c.Sent(0, 2); sent > 0 {
			t.Errorf("%d bytes were sent", sent)
		}
		c.Reboot(0)
		c.Sleep(10 * time.Second)
		if n := c.Show(0); n.State != "ACTIVE" || !n.Schedulable {
			t.Errorf("got %v, want it in service", n)
		}
	})
}

// Nor is a shutdown that the policy ignores.
func TestShutdownThatIsIgnoredIsNotHeldUp(t *testing.T) {
	ignored := clustertest.Config{Agent: func(_ int, cfg *agent.Config) {
		cfg.Policy = preemption.Policy{preemption.KindShutdown: preemption.StanceIgnore}
	}}
	bubble(t, ignored, func(t *testing.T, c *clustertest.Cluster) {
		c.Sleep(time.Second)
		if lock, _ := c.ShutDown(0, systemd.HowPowerOff); lock > 100*time.Millisecond {
			t.Errorf("the host was held up for %s", lock)
		}
	})
}

// Nor is the reboot of a node that is advised to go, and copies blocks ahead.
func TestRebootAmidAdviceIsNotHeldUp(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		c.Rebalance(0)
		c.Sleep(10 * time.Second)
		if lock, _ := c.ShutDown(0, systemd.HowReboot); lock > 100*time.Millisecond {
			t.Errorf("the host was held up for %s", lock)
		}
	})
}

// A shutdown that is called off takes the node back, and the next one is held up like the first.
func TestShutdownIsCalledOff(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Sleep(time.Second)
		c.PrepareShutdown(0)
		c.Sleep(3 * time.Second)
		if n := c.Show(0); n.State != "DECOMMISSIONING" || n.Status.Notice.GetKind() != "shutdown" {
			t.Errorf("got %v, want it leaving", n)
		}
		c.CallOff(0)
		c.Sleep(3 * time.Second)
		if n := c.Show(0); n.State != "ACTIVE" || !n.Schedulable {
			t.Errorf("got %v, want it in service", n)
		}
		if !c.Inhibits(0) {
			t.Error("the lock was not taken again")
		}
	})
}

// An operator who restarts the agent, or an upgrade, says nothing about the node.
func TestStopIsNoNotice(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Stop(0)
		if sent := c.Sent(0, 1) + c.Sent(0, 2); sent > 0 {
			t.Errorf("%d bytes were sent", sent)
		}
		c.Restart(0)
		c.Sleep(5 * time.Second)
		if n := c.Show(0); n.State != "ACTIVE" || !n.Schedulable {
			t.Errorf("got %v, want it in service", n)
		}
	})
}

// A host that is powered off while its drained node carries blocks written since the drain waits for that, too.
func TestPowerOffWaitsForWhatIsCarriedAfterTheDrain(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.DecommissionSelf(0, preemption.SourceManual, 0, "no hurry")
		c.WaitDrained(0)
		for i := range 15 {
			blocks = append(blocks, c.Write(0, "cache", fmt.Sprintf("late-%d", i), fillSize))
		}
		c.Until("some of what was written since is carried", 30*time.Second, func() bool { n, _ := c.Moved(0); return n > fillBlocks })
		c.ShutDown(0, systemd.HowPowerOff)
		accounted(t, c, 0, blocks, 0)
		c.Verify(1)
	})
}

// When a host is powered off long after its node was drained, the node carries the blocks written since its last look, and holds the
// shutdown up for no longer than that. If nothing was written it does not hold it up.
func TestPowerOffLooksForWhatWasWrittenSinceTheDrain(t *testing.T) {
	for name, late := range map[string]bool{"something": true, "nothing": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, calm(clustertest.Config{}), func(t *testing.T, c *clustertest.Cluster) {
				blocks := fill(c, 0)
				c.DecommissionSelf(0, preemption.SourceManual, 0, "no hurry")
				c.WaitDrained(0)
				c.Sleep(11 * time.Minute) // it looks again after 10 minutes, and then after 20
				if late {
					blocks = append(blocks, c.Write(0, "cache", "late", fillSize))
				}
				lock, stop := c.ShutDown(0, systemd.HowPowerOff)
				if lock > 2*time.Second || stop > 2*time.Second || !late && lock > 100*time.Millisecond {
					t.Errorf("the host was held up for %s and %s", lock, stop)
				}
				accounted(t, c, 0, blocks, 0)
				c.Verify(1)
			})
		})
	}
}

// A shutdown that comes again after it was called off is another one: the node looks once more.
func TestPowerOffAfterOneThatWasCalledOff(t *testing.T) {
	bubble(t, calm(clustertest.Config{}), func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.DecommissionSelf(0, preemption.SourceManual, 0, "no hurry")
		c.WaitDrained(0)
		c.Sleep(11 * time.Minute) // the next look is 20 minutes after the drain
		c.PrepareShutdown(0)
		c.Sleep(3 * time.Second)
		c.CallOff(0)
		c.Sleep(3 * time.Minute)
		blocks = append(blocks, c.Write(0, "cache", "late", fillSize))
		if lock, stop := c.ShutDown(0, systemd.HowPowerOff); lock > 2*time.Second || stop > 2*time.Second {
			t.Errorf("the host was held up for %s and %s", lock, stop)
		}
		accounted(t, c, 0, blocks, 0)
		c.Verify(1)
	})
}

// What was written since the drain lies on a disk that does not answer as the host is powered off: that is not taken for nothing. The node
// asks again until the disk answers, and carries it.
func TestPowerOffWaitsForADiskThatMayHaveSomethingNew(t *testing.T) {
	bubble(t, calm(clustertest.Config{}), func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.DecommissionSelf(0, preemption.SourceManual, 0, "no hurry")
		c.WaitDrained(0)
		c.Sleep(20 * time.Minute)
		blocks = append(blocks, c.Write(0, "cache", "late", fillSize))
		c.SetDisk(0, "cache", disks.IOHang)
		time.AfterFunc(20*time.Second, func() { c.SetDisk(0, "cache", disks.Healthy) })
		_, stop := c.ShutDown(0, systemd.HowPowerOff)
		if stop > 20*time.Second {
			t.Errorf("the agent held the host up for %s", stop)
		}
		accounted(t, c, 0, blocks, 0)
		c.Verify(1)
	})
}
