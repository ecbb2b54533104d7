package clustertest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
)

// A drain takes some seconds of the two minutes, and in the rest engines go on writing: new files, and new bytes under names that have moved.
func TestWhatIsWrittenAfterTheDrainIsCarried(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		rewrite(t, c, blocks[:9])
		for i := range 8 {
			c.Write(0, "cache", fmt.Sprintf("late-%d", i), 20_000)
			c.Sleep(12 * time.Second)
		}
		c.Sleep(9 * time.Second) // 105 s and some after the notice
		if summary, _ := c.Manifest(0); summary.GetMoved().GetBlocks() < fillBlocks+8 || summary.GetLost().GetBlocks() > 0 {
			t.Errorf("got %d moved and %d lost, want all that was written", summary.GetMoved().GetBlocks(), summary.GetLost().GetBlocks())
		}
		c.Kill(0)
		c.VerifyEverywhere(1, 2, 3)
	})
}

// A drained node without a deadline carries what was written since. In the middle of that the cloud gives it a minute: the blocks for which
// there is no time are named as lost within that minute.
func TestNoticeAmidWhatIsCarriedAfterTheDrain(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.DecommissionSelf(0, preemption.SourceManual, 0, "no hurry")
		c.WaitDrained(0)
		for i := range 200 {
			blocks = append(blocks, c.Write(0, "cache", fmt.Sprintf("late-%d", i), fillSize))
		}
		c.Until("some of what was written since is carried", 30*time.Second, func() bool { n, _ := c.Moved(0); return n > fillBlocks })
		c.Notice(0, time.Minute)
		c.Sleep(time.Minute)
		summary, _ := c.Manifest(0)
		if summary.GetMoved().GetBlocks() <= fillBlocks || summary.GetLost().GetBlocks() == 0 {
			t.Fatalf("at the deadline got %v, want some of what was written since moved, and the rest named as lost", summary)
		}
		accounted(t, c, 0, blocks, summary.GetLost().GetBlocks())
		if summary.GetSource() != preemption.SourceEC2 {
			t.Errorf("got the account of %v, want the cloud's notice", summary)
		}
	})
}

// An order's time is over, and the empty node is still there: what is written then is carried all the same, what a holder takes along is
// carried again, and a host that is powered off waits for what is newest.
func TestWhatIsWrittenAfterTheTimeOfAnOrder(t *testing.T) {
	bubble(t, calm(clustertest.Config{Agents: 4}), func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Decommission(0, 2*time.Minute, "")
		c.WaitDrained(0)
		c.Sleep(5 * time.Minute)
		blocks = append(blocks, c.Write(0, "cache", "late", fillSize))
		c.Sleep(11 * time.Minute)
		accounted(t, c, 0, blocks, 0)
		_, others := killHolder(c)
		c.Sleep(3 * time.Minute)
		accounted(t, c, 0, blocks, 0)
		blocks = append(blocks, c.Write(0, "cache", "later", fillSize))
		c.ShutDown(0, systemd.HowPowerOff)
		accounted(t, c, 0, blocks, 0)
		c.VerifyEverywhere(others[0], others[1])
	})
}

// The agent is killed while it carries what was written after the time of an order: it goes on when it is back.
func TestKilledAmidWhatIsWrittenAfterTheTimeOfAnOrder(t *testing.T) {
	bubble(t, calm(clustertest.Config{BytesPerSecond: slow}), func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Decommission(0, 2*time.Minute, "")
		c.WaitDrained(0)
		c.Sleep(3 * time.Minute)
		for n := range 15 {
			blocks = append(blocks, c.Write(0, "cache", fmt.Sprintf("late-%d", n), fillSize))
		}
		c.Until("some of what was written since is carried", 10*time.Minute, func() bool { n, _ := c.Moved(0); return n > fillBlocks+3 })
		c.Kill(0)
		c.Restart(0)
		c.Sleep(time.Minute)
		accounted(t, c, 0, blocks, 0)
	})
}

// The time of an order is up while the agent is away: when it is back it has no plan, and loses all that is left. That is carried, too.
func TestKilledBeforeTheTimeOfAnOrderIsUp(t *testing.T) {
	bubble(t, calm(clustertest.Config{BytesPerSecond: slow}), func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Decommission(0, 20*time.Second, "")
		c.Until("some of it is carried", 20*time.Second, func() bool { n, _ := c.Moved(0); return n > 3 })
		c.Kill(0)
		c.Sleep(20 * time.Second)
		c.Restart(0)
		c.WaitDrained(0)
		if summary, _ := c.Manifest(0); summary.GetLost().GetBlocks() == 0 {
			t.Fatalf("got %v, want a drain that was cut short", summary)
		}
		c.Sleep(3 * time.Minute)
		accounted(t, c, 0, blocks, 0)
	})
}

// What a drain lost as the time of an order was up is carried once there is room for it, and somebody to have it, while the machine is still
// there: after a while, or when it is powered off.
func TestLostWithinTheTimeOfAnOrder(t *testing.T) {
	for name, s := range map[string]struct {
		cfg clustertest.Config
		end func(c *clustertest.Cluster)
	}{
		"the link was slow": {clustertest.Config{BytesPerSecond: slow}, func(c *clustertest.Cluster) { c.Sleep(3 * time.Minute) }},
		"and its agent is killed": {clustertest.Config{BytesPerSecond: slow}, func(c *clustertest.Cluster) {
			before, _ := c.Moved(0)
			c.Until("some of what was lost is carried", time.Minute, func() bool { n, _ := c.Moved(0); return n > before+3 })
			c.Kill(0)
			c.Restart(0)
			c.Sleep(3 * time.Minute)
		}},
		"nobody had room":          {clustertest.Config{}, func(c *clustertest.Cluster) { c.Sleep(11 * time.Minute) }},
		"there is room at the end": {clustertest.Config{}, func(c *clustertest.Cluster) { c.ShutDown(0, systemd.HowPowerOff) }},
	} {
		t.Run(name, func(t *testing.T) {
			room := config.Bytes(fillBlocks * fillSize / 4)
			if s.cfg.BytesPerSecond == 0 {
				s.cfg.Agent = func(_ int, cfg *agent.Config) { cfg.Receive.MaxBytes = room }
			}
			bubble(t, calm(s.cfg), func(t *testing.T, c *clustertest.Cluster) {
				blocks := fill(c, 0)
				c.Decommission(0, 20*time.Second, "")
				c.WaitDrained(0)
				summary, _ := c.Manifest(0)
				if summary.GetLost().GetBlocks() == 0 {
					t.Fatalf("got %v, want a drain that was cut short", summary)
				}
				if s.cfg.Agent != nil {
					c.Sleep(20 * time.Minute)
					accounted(t, c, 0, blocks, summary.GetLost().GetBlocks())
					room *= 100
					for _, i := range []int{1, 2} {
						c.Stop(i)
						c.Restart(i)
					}
					c.Sleep(10 * time.Second)
				}
				s.end(c)
				accounted(t, c, 0, blocks, 0)
			})
		})
	}
}

// While a node carries what its drain has lost, the coordinator keeps the manifest that names it, also when the agent starts anew meanwhile:
// the machine may go before all of it is carried.
func TestManifestStandsWhileWhatWasLostIsCarried(t *testing.T) {
	bubble(t, calm(clustertest.Config{BytesPerSecond: slow}), func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Decommission(0, 20*time.Second, "")
		c.WaitDrained(0)
		summary, _ := c.Manifest(0)
		before, _ := c.Moved(0)
		c.Until("some of what was lost is carried", time.Minute, func() bool { n, _ := c.Moved(0); return n > before+3 })
		c.Kill(0)
		c.Restart(0)
		c.Sleep(time.Second / 2) // it goes on after a second
		accounted(t, c, 0, blocks, summary.GetLost().GetBlocks())
	})
}

// A cloud's deadline has passed, and the machine is still there: nothing is sent that was lost by then.
func TestNothingIsSentAfterACloudsDeadline(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 20*time.Second)
		c.WaitDrained(0)
		summary, _ := c.Manifest(0)
		c.Sleep(5 * time.Minute)
		accounted(t, c, 0, blocks, summary.GetLost().GetBlocks())
	})
}

// A disk hangs for longer than a drain waits for it, and is well again while there is time: what was lost there is carried after all.
func TestLostOnADiskThatAnswersAgain(t *testing.T) {
	var said lines
	bubble(t, clustertest.Config{BytesPerSecond: slow, Log: &said}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 2*time.Minute)
		c.Until("some blocks have left", 30*time.Second, func() bool { n, _ := c.Moved(0); return n > 3 })
		c.SetDisk(0, "cache", disks.IOHang)
		c.WaitDrained(0)
		if summary, _ := c.Manifest(0); summary.GetLost().GetBlocks() == 0 {
			t.Fatalf("got %v, want blocks that are lost with their disk", summary)
		}
		c.Sleep(16 * time.Second) // the next look would be in 20 s
		c.SetDisk(0, "cache", disks.Healthy)
		c.Until("what lies there leaves", 15*time.Second, func() bool { n, _ := c.Moved(0); return n > 10 })
		c.Sleep(40 * time.Second)
		accounted(t, c, 0, blocks, 0)
		if got := said.take("another pass of the drain"); len(got) == 0 || !strings.Contains(got[0], " lost=0 ") {
			t.Errorf("got %q, want that nothing is lost any more", got)
		}
	})
}
