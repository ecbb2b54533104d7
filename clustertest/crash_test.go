package clustertest_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/preemption"
)

// obstruct puts a directory where a file is written, which stops root too.
func obstruct(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// The agent is killed in the middle of a drain and away for longer than its lease. It goes on where it was: the same incident, the same
// deadline, and no block sent again for which a peer gave a receipt. Its manifest says that the drain began before that.
func TestKilledAgentResumesItsDrain(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 120*time.Second)
		began := time.Now()
		half(t, c, 0)
		before := c.Show(0)
		movedBlocks, movedBytes := c.Moved(0)
		c.Kill(0)
		sent := c.Sent(0, 1) + c.Sent(0, 2)
		for range 35 {
			if state := c.State(0); state != "DECOMMISSIONING" {
				t.Fatalf("while its agent is away it is %s", state)
			}
			c.Sleep(time.Second)
		}
		c.Restart(0)
		for c.State(0) != "DECOMMISSIONED" {
			n := c.Show(0)
			if n.State != "DECOMMISSIONING" || n.Deadline.AsTime().Sub(before.Deadline.AsTime()).Abs() > time.Second || n.Status.Notice.Incident != before.Status.Notice.Incident {
				t.Fatalf("after the restart: got %v, before it was %v", n, before)
			}
			if m, _ := c.Moved(0); m < movedBlocks {
				t.Fatalf("after the restart %d blocks are told as moved, before it were %d", m, movedBlocks)
			}
			c.Sleep(500 * time.Millisecond)
		}
		if most := (fillBytes-movedBytes)*102/100 + 50_000; c.Sent(0, 1)+c.Sent(0, 2)-sent > most {
			t.Errorf("sent %d bytes after the restart, want at most %d for the %d that had no receipt", c.Sent(0, 1)+c.Sent(0, 2)-sent, most, fillBytes-movedBytes)
		}
		entries := accounted(t, c, 0, blocks, 0)
		if len(entries) != len(blocks) {
			t.Errorf("got %d entries, want %d", len(entries), len(blocks))
		}
		if m, _ := c.Manifest(0); m.StartedAt.AsTime().Sub(began) > 5*time.Second {
			t.Errorf("the manifest says that the drain of %s began at %s, after the restart", began, m.StartedAt.AsTime())
		}
		history(t, c, 0, registered, announced, decommissioned)
		c.VerifyEverywhere(1, 2)

		// The drain is over: another start sends nothing.
		sent = c.Sent(0, 1) + c.Sent(0, 2)
		c.Kill(0)
		c.Restart(0)
		c.Sleep(10 * time.Second)
		if again := c.Sent(0, 1) + c.Sent(0, 2) - sent; again > 1000 { // the alerts that close TLS connections
			t.Errorf("sent %d bytes after the drain", again)
		}
		if state := c.State(0); state != "DECOMMISSIONED" {
			t.Errorf("after another restart it is %s", state)
		}
		history(t, c, 0, registered, announced, decommissioned)
	})
}

// Without a deadline the time that the agent was away does not count as time of its drain.
func TestKilledAgentHasTimeAgain(t *testing.T) {
	brief := func(_ int, cfg *agent.Config) { cfg.Drain.Timeout = time.Minute }
	bubble(t, clustertest.Config{BytesPerSecond: slow, Agent: brief}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.DecommissionSelf(0, preemption.SourceSignal, 0, "SIGPWR")
		half(t, c, 0)
		c.Kill(0)
		c.Sleep(5 * time.Minute)
		c.Restart(0)
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
	})
}

// SIGTERM in the middle of a drain is a restart, too.
func TestStoppedAgentResumesItsDrain(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 120*time.Second)
		half(t, c, 0)
		c.Stop(0)
		c.Sleep(3 * time.Second)
		if state := c.State(0); state != "DECOMMISSIONING" {
			t.Errorf("while its agent is stopped it is %s", state)
		}
		c.Restart(0)
		c.WaitDrained(0)
		accounted(t, c, 0, blocks, 0)
		history(t, c, 0, registered, announced, decommissioned)
		c.VerifyEverywhere(1, 2)
	})
}

// A receiver dies in the middle of a drain. Blocks for which it gave no receipt go elsewhere; the others it serves again, whole, when it is
// back.
func TestKilledReceiver(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 120*time.Second)
		half(t, c, 0)
		c.Kill(1)
		c.WaitDrained(0)
		entries := accounted(t, c, 0, blocks, 0)
		var there, away int
		for _, b := range blocks {
			if entries[b.ID].Peer == c.Name(2) {
				c.Verify(2, b)
				there++
			} else {
				away++
			}
		}
		if there == 0 || away == 0 || there < away {
			t.Errorf("%d blocks at the peer that lives, %d at the one that died: want some at both, and the greater part at the living", there, away)
		}
		c.Restart(1)
		c.WaitState(1, "ACTIVE")
		c.Sleep(3 * time.Second)
		c.Kill(0)
		c.VerifyEverywhere(1, 2)
	})
}

// SIGTERM of an agent that is not leaving is no decommission: the node comes back as it was.
func TestRestartIsNoDecommission(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		c.Stop(0)
		if state := c.State(0); state != "SHUTDOWN" {
			t.Errorf("after SIGTERM it is %s, want SHUTDOWN", state)
		}
		c.Sleep(time.Minute)
		c.Restart(0)
		c.WaitState(0, "ACTIVE")
		history(t, c, 0, registered, shutdown, returned)
		if blocks, _ := c.Moved(0); blocks != 0 {
			t.Errorf("%d blocks were moved", blocks)
		}
	})
}
