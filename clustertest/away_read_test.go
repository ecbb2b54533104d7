package clustertest_test

import (
	"fmt"
	"net/http"
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

// While no coordinator answers, the nodes that were last heard of are asked: a block that one of them has is read, and of no other is it
// said that it was never known.
func TestReadsWhileNoCoordinatorAnswers(t *testing.T) {
	for _, coordinators := range []int{1, 3} {
		t.Run(fmt.Sprint(coordinators), func(t *testing.T) {
			bubble(t, clustertest.Config{Coordinators: coordinators, Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
				blocks := fill(c, 0)
				c.Notice(0, 120*time.Second)
				c.WaitDrained(0)
				own := c.Write(1, "cache", "own", fillSize)
				c.Kill(0)
				for i := range coordinators {
					c.KillCoordinator(i)
				}
				c.Kill(2)
				c.Restart(2) // its peers are those of its disk
				c.Sleep(time.Minute)
				began := time.Now()
				c.Verify(3, append(blocks, own)...)
				if reads, took := len(blocks)+1, time.Since(began); took > time.Duration(reads)*2*time.Second {
					t.Errorf("%d reads took %s", reads, took)
				}
				c.Verify(2, own)
				at := fmt.Sprintf(`{"id":%q,"node":%q}`+"\n", own.ID, c.Name(1))
				if code, said := c.Ask(3, http.MethodPost, "", own.ID+"\ncache/-/never"); code != 200 || string(said) != at {
					t.Errorf("who has it: got %d %s, want %s", code, said, at)
				}
				if code, body := c.Read(3, "cache/-/never"); code != 503 {
					t.Errorf("a block that none of them has: got %d %s, want 503", code, body)
				}
			})
		})
	}
}
