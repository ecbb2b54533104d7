package clustertest_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/preemption"
)

// The main story: the cloud gives two minutes, and when it takes the machine every block is elsewhere and can be read from any node. The
// leaving node sends heartbeats all the time.
func TestNoticeEmptiesTheNodeInTime(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		began := time.Now()
		c.Notice(0, 120*time.Second)
		drainedAt := time.Duration(0)
		for time.Since(began) < 120*time.Second {
			n := c.Show(0)
			if age := n.LastHeartbeat.AsDuration(); age > 2*time.Second {
				t.Fatalf("after %s, the last heartbeat is %s old", time.Since(began), age)
			}
			if drainedAt == 0 && n.State == "DECOMMISSIONED" {
				drainedAt = time.Since(began)
			}
			if n.State == "DECOMMISSIONING" && (n.Remaining.AsDuration()-(120*time.Second-time.Since(began))).Abs() > 2*time.Second {
				t.Fatalf("after %s, %s remain", time.Since(began), n.Remaining.AsDuration())
			}
			c.Sleep(time.Second)
		}
		if drainedAt < 30*time.Second || drainedAt > 60*time.Second {
			t.Errorf("drained after %s, want about 45 s: the cap was not kept, or time was wasted", drainedAt)
		}
		c.Kill(0) // the cloud takes it

		entries := accounted(t, c, 0, blocks, 0)
		summary, _ := c.Manifest(0)
		if summary.Kind != "terminate" || summary.Source != "ec2" || summary.Deadline.AsTime().Sub(began.Add(120*time.Second)).Abs() > time.Second {
			t.Errorf("got the summary %v", summary)
		}
		history(t, c, 0, registered, announced, decommissioned)
		nobodyLost(t, c)
		if got := peersOf(entries); len(got) != 2 {
			t.Errorf("all blocks went to %s", got)
		}
		for _, b := range blocks { // through the node that does not have it
			through := 1
			if entries[b.ID].Peer == c.Name(1) {
				through = 2
			}
			c.Verify(through, b)
		}
	})
}

// Blocks that cannot be sent before the deadline are named as lost, and the others are sent up to the last second of the time for sending.
func TestShortNoticeNamesWhatItLoses(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 30*time.Second)
		took := c.WaitDrained(0)
		if took < 18*time.Second || took > 25*time.Second {
			t.Errorf("drained after %s, want 20 s: EC2's tail is 10 s", took)
		}
		summary, entries := c.Manifest(0)
		accounted(t, c, 0, blocks, summary.Lost.Blocks)
		if summary.Lost.Blocks < 5 || summary.Moved.Bytes < 10*slow {
			t.Errorf("lost %v, moved %v", summary.Lost, summary.Moved)
		}
		c.Kill(0)
		c.Sleep(30 * time.Second)
		for _, b := range blocks {
			if entries[b.ID].Outcome == "moved" {
				c.Verify(1, b)
				continue
			}
			for id := range b.Members {
				if status, _ := c.Read(1, id); status != 410 {
					t.Errorf("read %s, which is lost: got status %d, want 410", id, status)
				}
			}
		}
	})
}

func TestDecommissionSelf(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		first := c.DecommissionSelf(0, preemption.SourceManual, 90*time.Second, "a script says so")
		again := c.DecommissionSelf(0, preemption.SourceManual, 90*time.Second, "another too")
		if first.ID != again.ID {
			t.Errorf("got incidents %s and %s, want one", first.ID, again.ID)
		}
		sooner := c.DecommissionSelf(0, preemption.SourceManual, 80*time.Second, "a third is in a hurry")
		if left := time.Until(sooner.Deadline()); left > 80*time.Second {
			t.Errorf("the answer to the earlier deadline has %s left: it was not waited for", left)
		}
		half(t, c, 0)
		if n := c.Show(0); n.State != "DECOMMISSIONING" || n.Reason != "a script says so" || n.Status.Notice.Kind != "manual" {
			t.Errorf("got %v", n)
		}
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
		c.VerifyEverywhere(1, 2)
	})
}

// SIGPWR says that the node goes, but not when. The cloud's notice then gives the deadline.
func TestSecondNoticeShortensTheTime(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		incident := c.DecommissionSelf(0, preemption.SourceSignal, 0, "SIGPWR")
		c.Sleep(10 * time.Second)
		if n := c.Show(0); n.State != "DECOMMISSIONING" || n.Deadline != nil {
			t.Errorf("got %v, want no deadline", n)
		}
		c.Notice(0, 20*time.Second)
		c.Sleep(2 * time.Second)
		if n := c.Show(0); n.Remaining.AsDuration() > 18*time.Second || n.Status.Notice.Incident != incident.ID {
			t.Errorf("got %v", n)
		}
		took := c.WaitDrained(0)
		if took < 6*time.Second || took > 13*time.Second {
			t.Errorf("drained %s later, want 8 s: 10 s before the deadline", took)
		}
		summary, _ := c.Manifest(0)
		if summary.Kind != "terminate" || summary.Incident != incident.ID || summary.Lost.Blocks == 0 || summary.Moved.Blocks == 0 {
			t.Errorf("got %v", summary)
		}
		accounted(t, c, 0, blocks, summary.Lost.Blocks)
		history(t, c, 0, registered, announced, deadlineChanged, decommissioned)
	})
}

func TestCancelTakesDecommissionSelfBack(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		if cancelled, still := c.Cancel(0, "nothing was said"); cancelled || still != "" {
			t.Errorf("got %v %q, want nothing to cancel", cancelled, still)
		}
		c.DecommissionSelf(0, preemption.SourceManual, time.Minute, "")
		c.Sleep(5 * time.Second)
		c.Kill(0) // after a restart the agent still knows which source may take the incident back
		c.Restart(0)
		if cancelled, still := c.Cancel(0, "a mistake"); !cancelled || still != "" {
			t.Errorf("got %v %q, want cancelled", cancelled, still)
		}
		c.Sleep(5 * time.Second)
		if n := c.Show(0); n.State != "ACTIVE" || !n.Schedulable {
			t.Errorf("got %v, want it in service", n)
		}
		history(t, c, 0, registered, announced, recommissioned)

		// A node that was advised to go serves on.
		c.Rebalance(0)
		c.Sleep(10 * time.Second)
		c.DecommissionSelf(0, preemption.SourceManual, time.Minute, "")
		c.Sleep(3 * time.Second)
		if cancelled, still := c.Cancel(0, "a mistake"); !cancelled || still != "" {
			t.Errorf("got %v %q, want cancelled, and only advised", cancelled, still)
		}
		if cancelled, still := c.Cancel(0, "nothing was said"); cancelled || still != "" {
			t.Errorf("got %v %q, want nothing to cancel on a node that was only advised", cancelled, still)
		}
		c.Sleep(5 * time.Second)
		if n := c.Show(0); n.State != "ACTIVE" {
			t.Errorf("got %v, want it in service", n)
		}

		// An operator's order stays until an operator takes it back at the coordinator.
		c.Decommission(0, time.Hour, "")
		c.DecommissionSelf(0, preemption.SourceManual, time.Minute, "")
		c.Sleep(3 * time.Second)
		want := "operator says decommission, which lifeboat recommission " + c.Name(0) + " takes back"
		if cancelled, still := c.Cancel(0, "a mistake"); !cancelled || still != want {
			t.Errorf("got %v %q, want cancelled, and %q", cancelled, still, want)
		}
		c.Sleep(5 * time.Second)
		c.Recommission(0)
		c.Sleep(5 * time.Second)

		// The cloud's own word stays.
		c.Notice(0, 2*time.Minute)
		c.DecommissionSelf(0, preemption.SourceManual, time.Minute, "")
		c.Sleep(3 * time.Second)
		if cancelled, still := c.Cancel(0, "a mistake"); !cancelled || still != "ec2 says terminate" {
			t.Errorf("got %v %q, want cancelled, and still leaving", cancelled, still)
		}
		c.WaitDrained(0)
		c.VerifyEverywhere(1, 2)
	})
}

// The journal's disk takes no writes, and the drain goes on all the same. The node says that it has no manifest of single blocks, which is
// no reason to stay.
func TestDrainWithoutManifest(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		incidents := c.Dir(0) + "/data/incidents"
		if err := errors.Join(os.RemoveAll(incidents), os.WriteFile(incidents, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		c.Notice(0, 120*time.Second)
		if took := c.WaitDrained(0); took > 20*time.Second {
			t.Errorf("drained after %s, want a few seconds", took)
		}
		if summary, _ := c.Manifest(0); summary.GetMoved().GetBlocks() != fillBlocks || summary.GetLost().GetBlocks() != 0 {
			t.Errorf("got %v, want all moved", summary)
		}
		c.Kill(0)
		c.VerifyEverywhere(1, 2)
	})
}

func TestDrainWithoutJournal(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		obstruct(t, c.Dir(0)+"/data/incident.json")
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
		c.VerifyEverywhere(1, 2)
		c.Withdraw(0)
		c.WaitState(0, "ACTIVE")
	})
}

// SIGHUP with another drain.timeout counts for the drain that runs.
func TestReloadMovesTheEndOfADrain(t *testing.T) {
	for _, s := range []struct {
		name     string
		was, is  time.Duration
		from, to time.Duration // of the whole drain
	}{
		{"more time", 20 * time.Second, 10 * time.Minute, 40 * time.Second, time.Minute},
		{"less time", 10 * time.Minute, 20 * time.Second, 20 * time.Second, 22 * time.Second},
	} {
		t.Run(s.name, func(t *testing.T) {
			var cfg agent.Config
			keep := func(i int, c *agent.Config) {
				c.Drain.Timeout = s.was
				if i == 0 {
					cfg = *c
				}
			}
			bubble(t, clustertest.Config{BytesPerSecond: slow, Agent: keep}, func(t *testing.T, c *clustertest.Cluster) {
				blocks := fill(c, 0)
				began := time.Now()
				c.DecommissionSelf(0, preemption.SourceManual, 0, "")
				c.Sleep(10 * time.Second)
				cfg.Drain.Timeout = s.is
				if left := c.Agent(0).Reload(cfg); len(left) > 0 {
					t.Errorf("%q need a restart", left)
				}
				c.WaitDrained(0)
				if took := time.Since(began); took < s.from || took > s.to {
					t.Errorf("drained after %s, want %s to %s", took, s.from, s.to)
				}
				summary, _ := c.Manifest(0)
				accounted(t, c, 0, blocks, summary.GetLost().GetBlocks())
			})
		})
	}
}
