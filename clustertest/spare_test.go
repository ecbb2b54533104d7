package clustertest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// spared has node 1 take all blocks that node 0, which is advised to go, copies ahead, and write as many itself.
func spared(c *clustertest.Cluster) (theirs, own []*clustertest.Block) {
	c.Deactivate(false, 2)
	c.Deactivate(false, 3)
	c.Sleep(5 * time.Second) // all have heard
	theirs = copiedAhead(c)
	own = fill(c, 1)
	c.Deactivate(true, 2)
	c.Deactivate(true, 3)
	c.Sleep(oneWave)
	return theirs, own
}

// oneWave is how long a block counts for less because it has only just landed.
const oneWave = 2*time.Minute + time.Second

// shortNotice is time for node 1's own blocks, and for some of those of node 0.
const shortNotice = time.Minute

// The holder of copies for a node that is still there gets a notice, with time for half of what it has. It sends its own blocks, and its
// manifest says where the others are.
func TestWhatItsHomeHasTooGoesLast(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4, BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		theirs, own := spared(c)
		c.Notice(1, shortNotice)
		c.WaitDrained(1)
		sum, entries := c.Manifest(1)
		left := 0
		for _, b := range theirs {
			if e := entries[b.ID]; e.GetOutcome() == "skipped" && strings.Contains(e.GetReason(), c.Name(0)) {
				left++
			}
		}
		if left == 0 || sum.GetLost().GetBlocks() > 0 {
			t.Errorf("%d of the other's blocks stay behind, and %d are lost: want some, and none", left, sum.GetLost().GetBlocks())
		}
		for _, b := range own {
			if e := entries[b.ID]; e.GetOutcome() != "moved" {
				t.Errorf("%s: got %v, want its own moved", b.ID, e)
			}
		}
		c.Kill(1)
		c.VerifyEverywhere(0, 2, 3)
	})
}

// Node 0 is gone. The copies of its blocks are the only ones, and count like node 1's own blocks.
func TestWhatItsHomeHasNoMoreIsLikeAllElse(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4, BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		theirs, _ := spared(c)
		c.Kill(0)
		c.WaitState(0, "LOST")
		c.Notice(1, shortNotice)
		c.WaitDrained(1)
		_, entries := c.Manifest(1)
		outcomes := map[string]int{}
		for _, b := range theirs {
			outcomes[entries[b.ID].GetOutcome()]++
		}
		if outcomes["moved"] == 0 || outcomes["skipped"] > 0 {
			t.Errorf("got %v, want some moved and none skipped", outcomes)
		}
	})
}

// Node 0 gets a notice after the holder that skipped its blocks is done, but still there: node 0 sends them itself.
func TestHomeGoesAfterWhoeverSkippedItsBlocks(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4, BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		spared(c)
		c.Notice(1, shortNotice)
		c.WaitDrained(1)
		c.Sleep(6 * time.Second)
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		c.Kill(1)
		c.Sleep(30 * time.Second)
		c.Kill(0)
		c.VerifyEverywhere(2, 3)
	})
}
