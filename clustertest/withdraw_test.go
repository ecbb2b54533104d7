package clustertest_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// The cloud withdraws its notice in the middle of a drain: the node serves and takes blocks again, and drains again at a second notice.
func TestNoticeIsWithdrawnMidDrain(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 2, BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 120*time.Second)
		half(t, c, 0)
		c.Withdraw(0)
		c.Sleep(5 * time.Second)
		if n := c.Show(0); n.State != "ACTIVE" || !n.Schedulable || n.Deadline != nil || n.Status.Notice != nil {
			t.Fatalf("got %v, want it in service", n)
		}
		sent := c.Sent(0, 1)
		takesBlocks(t, c, 1, 0)
		if again := c.Sent(0, 1) - sent; again > 100_000 {
			t.Errorf("%d bytes were sent after the notice was withdrawn", again)
		}
		c.Restart(1) // takesBlocks took the machine
		c.WaitState(1, "ACTIVE")
		c.Sleep(5 * time.Second)

		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		_, entries := c.Manifest(0)
		for _, b := range blocks {
			if entries[b.ID].GetOutcome() != "moved" {
				t.Errorf("the second drain says of %s: %v", b.ID, entries[b.ID])
			}
		}
		c.Kill(0)
		c.Verify(1)
	})
}

// takesBlocks has one node preempted, with the other as the only one to take its blocks.
func takesBlocks(t *testing.T, c *clustertest.Cluster, from, to int) {
	t.Helper()
	b := c.Write(from, "cache", "one/more", 1000)
	c.Notice(from, 60*time.Second)
	c.WaitDrained(from)
	if _, entries := c.Manifest(from); entries[b.ID].GetPeer() != c.Name(to) {
		t.Errorf("%s went as %v, want it at %s", b.ID, entries[b.ID], c.Name(to))
	}
	c.Kill(from)
	c.Verify(to, b)
	c.Withdraw(from)
}

func TestNoticeIsWithdrawnAfterTheDrain(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		c.Withdraw(0)
		c.WaitState(0, "ACTIVE")
		history(t, c, 0, registered, announced, decommissioned, recommissioned)
		c.Sleep(3 * time.Second)
		if !slices.Contains(c.Peers(1), c.Name(0)) {
			t.Errorf("it is in service, and not among the peers %v of another", c.Peers(1))
		}
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		history(t, c, 0, registered, announced, decommissioned, recommissioned, announced, decommissioned)
		c.VerifyEverywhere(1, 2)
	})
}

// The notice is taken back while no agent is there to hear it.
func TestNoticeIsWithdrawnWhileTheAgentIsAway(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Notice(0, 120*time.Second)
		half(t, c, 0)
		c.Kill(0)
		c.Withdraw(0)
		c.Sleep(5 * time.Second)
		c.Restart(0)
		if took := c.WaitState(0, "ACTIVE"); took > 10*time.Second {
			t.Errorf("in service %s after the restart, want a few seconds", took)
		}
		history(t, c, 0, registered, announced, recommissioned)
	})
}

// A metadata service in trouble takes nothing back.
func TestTroubledCloudWithdrawsNothing(t *testing.T) {
	for _, status := range []int{401, 403, 500, 503} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
				blocks := fill(c, 0)
				c.Notice(0, 120*time.Second)
				half(t, c, 0)
				c.Cloud(0).Fail(status)
				c.WaitDrained(0)
				accounted(t, c, 0, blocks, 0)
				history(t, c, 0, registered, announced, decommissioned)
			})
		})
	}
}

// The coordinator is not told that the notice was withdrawn. It finds out by itself, even if the node is still under advice, for which no
// node leaves.
func TestNoticeIsWithdrawnUnheard(t *testing.T) {
	for name, drained := range map[string]bool{"mid-drain": false, "drained": true} {
		for _, advice := range []string{"", "rebalance"} {
			t.Run(strings.TrimSpace(name+" "+advice), func(t *testing.T) {
				bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
					fill(c, 0)
					if advice != "" {
						c.Rebalance(0)
					}
					c.Notice(0, 120*time.Second)
					half(t, c, 0)
					if drained {
						c.WaitDrained(0)
					}
					c.KillCoordinator()
					c.Withdraw(0)
					if advice != "" {
						c.Rebalance(0)
					}
					c.Sleep(15 * time.Second)
					c.RestartCoordinator()
					c.Sleep(20 * time.Second)
					if n := c.Show(0); n.State != "ACTIVE" || n.Schedulable != (advice == "") || n.Status.Notice.GetKind() != advice {
						t.Errorf("got %v, want it in service, and under %q", n, advice)
					}
				})
			})
		}
	}
}

// The machine outlives the cloud's deadline by ten minutes: it is taken back into service.
func TestMachineOutlivesItsDeadline(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 2}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		c.Sleep(11 * time.Minute)
		if state := c.State(0); state != "DECOMMISSIONED" {
			t.Errorf("11 minutes later it is %s", state)
		}
		c.Sleep(2 * time.Minute)
		if n := c.Show(0); n.State != "ACTIVE" || !n.Schedulable {
			t.Errorf("13 minutes later got %v, want it in service", n)
		}
		c.Sleep(time.Minute)
		if n := c.Show(0); n.State != "ACTIVE" {
			t.Errorf("the notice that still stands, in the past, made it %s again", n.State)
		}
	})
}

// A coordinator that accepts calls but answers none delays no notice: the agent acts on the next one as soon as on the first.
func TestNoticeAfterAWithdrawalWaitsForNobody(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		c.Partition(0, clustertest.Coordinator)
		c.Withdraw(0)
		c.Until("the node stays", 5*time.Second, func() bool { return c.Status(0).Status.Notice == nil })
		c.Notice(0, 120*time.Second)
		if took := c.Until("the node leaves", 10*time.Second, func() bool { return c.Status(0).Status.Notice != nil }); took > 1200*time.Millisecond {
			t.Errorf("the second notice was acted on after %s, want within a poll", took)
		}
		c.Heal()
	})
}
