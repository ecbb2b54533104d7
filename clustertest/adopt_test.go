package clustertest_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// orderedTwice orders node 0 away, takes that back, calls between, and orders it away again. It returns how many bytes the node sent for
// the second order.
func orderedTwice(c *clustertest.Cluster, between func()) (again int64) {
	sent := func() int64 { return c.Sent(0, 1) + c.Sent(0, 2) + c.Sent(0, 3) }
	c.Decommission(0, 0, "test")
	c.WaitDrained(0)
	c.Recommission(0)
	c.WaitState(0, "ACTIVE")
	c.Sleep(time.Minute)
	between()
	before := sent()
	c.Decommission(0, 0, "test")
	c.WaitDrained(0)
	return sent() - before
}

// Blocks that peers have from an order that was taken back are not sent again, and count as moved.
func TestOrderedAwayTwice(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		if again := orderedTwice(c, func() {}); again > fillBytes/10 {
			t.Errorf("%d bytes of %d are sent again", again, fillBytes)
		}
		accounted(t, c, 0, blocks, 0)
		c.Kill(0)
		c.VerifyEverywhere(1, 2, 3)
	})
}

// In between the holder of most blocks dies, and some blocks change: these blocks are sent again.
func TestOrderedAwayTwiceWithAHolderGone(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		var live [2]int
		again := orderedTwice(c, func() {
			_, live = killHolder(c)
			rewrite(t, c, blocks[:1])
		})
		if again < fillBytes/4 {
			t.Errorf("%d bytes of %d are sent again, want what one of three peers had at least", again, fillBytes)
		}
		c.Kill(0)
		c.VerifyEverywhere(live[0], live[1])
	})
}

// In between engines delete blocks: the node has them no more when it leaves again, and its manifest does not name them. Peers have the map
// outputs still, for whoever reads them.
func TestOrderedAwayTwiceNamesWhatIsStillThere(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		var here, outputs []*clustertest.Block
		again := orderedTwice(c, func() {
			for i, b := range blocks {
				switch {
				case strings.HasPrefix(b.ID, "spark/"):
					outputs = append(outputs, b)
				case i < 4:
				default:
					here = append(here, b)
					continue
				}
				remove(t, c, b)
			}
		})
		if again > fillBytes/10 {
			t.Errorf("%d bytes of %d are sent again", again, fillBytes)
		}
		accounted(t, c, 0, here, 0)
		c.Kill(0)
		c.Verify(1, append(here, outputs...)...)
	})
}

// remove deletes a block's files on its node.
func remove(t *testing.T, c *clustertest.Cluster, b *clustertest.Block) {
	t.Helper()
	removed := 0
	err := filepath.WalkDir(c.Dir(b.Node), func(p string, d fs.DirEntry, err error) error {
		for id := range b.Members {
			if err == nil && !d.IsDir() && d.Name() == path.Base(id) {
				removed++
				err = os.Remove(p)
			}
		}
		return err
	})
	if err != nil || removed != len(b.Members) {
		t.Fatalf("remove %s: %d files, %v", b.ID, removed, err)
	}
}

// While the coordinator is away nobody tells what peers hold, so the blocks are sent again.
func TestWithdrawnAndNobodyKnowsWhoHasIt(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		c.Withdraw(0)
		c.WaitState(0, "ACTIVE")
		dead, live := most(c, 0)
		c.Kill(dead)
		c.KillCoordinator()
		c.Sleep(10 * time.Second)
		c.Notice(0, 2*time.Minute)
		c.Sleep(30 * time.Second)
		c.RestartCoordinator()
		c.Sleep(time.Minute)
		c.Kill(0)
		c.VerifyEverywhere(live[0], live[1])
	})
}

// The peer that took the node's blocks for the first order has handed them on, and another machine has its name by now: the node does not
// take that for the holder. After the second drain a node that the blocks were handed on to dies.
func TestHeirOfAnAdoptedAccountIsGone(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Deactivate(false, 2)
		c.Deactivate(false, 3)
		c.Sleep(5 * time.Second)
		c.Decommission(0, 0, "test")
		c.WaitDrained(0)
		c.Recommission(0)
		c.Deactivate(true, 2)
		c.Deactivate(true, 3)
		c.Sleep(5 * time.Second)
		c.Notice(1, 2*time.Minute)
		c.WaitDrained(1)
		c.Kill(1)
		c.Withdraw(1)
		backWithNothing(t, c, 1)
		c.Sleep(time.Minute) // the coordinator has heard from all
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		c.Kill(2)
		c.Sleep(75 * time.Second)
		c.Kill(0)
		c.Sleep(5 * time.Second)
		c.VerifyEverywhere(1, 3)
	})
}
