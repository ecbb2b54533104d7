package clustertest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/disks"
)

// A disk may be dying for days, and is scanned every ten minutes: new blocks are carried off, and none that is elsewhere already.
func TestDyingDiskIsCarriedOnce(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		for i := range 20 {
			c.Write(0, "cache", fmt.Sprint("part-", i), 200<<10)
		}
		state := evacuationOf(c, disks.Critical)
		c.SetDisk(0, "cache", disks.Critical)
		c.Until("all is elsewhere", 30*time.Second, state("done"))
		sent := func() int64 { return c.Sent(0, 1) + c.Sent(0, 2) }
		before := sent()
		late := c.Write(0, "cache", "late", 1<<10)
		c.Sleep(9 * time.Minute)
		c.Until("it is looked through again", 3*time.Minute, func() bool { return c.Locate(late.ID).GetState() == "held" })
		c.Sleep(11 * time.Minute) // a look more
		if again := sent() - before; again > 1<<20 {
			t.Errorf("%d bytes were sent of blocks that are elsewhere", again)
		}
		c.VerifyEverywhere(1, 2)
	})
}

// A node with a dying disk leaves, and there is no time to send the evacuated blocks again: none is lost.
func TestWhatLeftADyingDiskIsElsewhereWhenItsNodeLeaves(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 3, BytesPerSecond: 10_000}, func(t *testing.T, c *clustertest.Cluster) {
		for i := range 20 {
			c.Write(0, "cache", fmt.Sprint("part-", i), 200<<10)
		}
		c.SetDisk(0, "cache", disks.Critical)
		c.Until("all is elsewhere", 30*time.Second, evacuationOf(c, disks.Critical)("done"))
		c.Sleep(10 * time.Second)
		goes(c, 1, 2)
		sum, _ := c.Manifest(0)
		if got := sum.GetMoved().GetBlocks(); got != 20 || sum.GetLost().GetBlocks() != 0 {
			t.Errorf("got %d of 20 moved, %d lost", got, sum.GetLost().GetBlocks())
		}
	})
}
