package clustertest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// A reader of a block at a node that restarts, as for an upgrade, is asked to wait, and not told that the block was never known.
func TestReadOfANodeThatRestarts(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		b := c.Write(0, "cache", "own", fillSize)
		c.Sleep(5 * time.Second)
		c.Stop(0)
		for range 4 {
			c.Sleep(20 * time.Second)
			if code, body := c.Read(1, b.ID); code != 503 {
				t.Errorf("while it is %s: got %d %s, want 503", c.State(0), code, body)
			}
		}
		c.KillCoordinator()
		c.RestartCoordinator()
		c.Sleep(5 * time.Second)
		if code, body := c.Read(1, b.ID); code != 503 {
			t.Errorf("after a restart of the coordinator, too: got %d %s, want 503", code, body)
		}
		c.Restart(0)
		c.Sleep(5 * time.Second)
		c.Verify(1, b)
		c.Stop(0)
		c.Sleep(11 * time.Minute) // it did not come back (restart_timeout)
		if code, body := c.Read(1, b.ID); code != 404 {
			t.Errorf("when it is %s: got %d %s, want 404", c.State(0), code, body)
		}
	})
}

// A DECOMMISSIONED node that is still there serves the blocks that it has. A leader that has just taken over has not heard it yet, and does
// not take it for gone: no reader is told that a block was never known.
func TestReadOfANodeThatIsDoneDuringAnElection(t *testing.T) {
	bubble(t, clustertest.Config{Coordinators: 3, Agents: 4, BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		kept, _ := outputs(c, 0)
		c.EndApps("", doneApp)
		c.Decommission(0, 0, "")
		c.WaitDrained(0)
		c.Sleep(time.Minute)
		_, entries := c.Manifest(0)
		i := slices.IndexFunc(kept, func(b *clustertest.Block) bool { return entries[b.ID].Outcome == "skipped" })
		if i < 0 {
			t.Fatal("nothing was left behind")
		}
		c.KillCoordinator(c.Leader())
		answers := map[int]int{}
		for n := range 600 {
			code, _ := c.Read(1+n%3, kept[i].ID+".data")
			answers[code]++
			c.Sleep(5 * time.Millisecond)
		}
		if answers[200]+answers[503] != 600 || answers[200] == 0 {
			t.Errorf("got %v, want the block, or to be asked to wait", answers)
		}
	})
}
