package clustertest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/disks"
)

// evacuated has node 0's cache carried off a dying disk, and then changes its blocks there.
func evacuated(t *testing.T, c *clustertest.Cluster) (blocks []*clustertest.Block) {
	for i := range 40 {
		blocks = append(blocks, c.Write(0, "cache", fmt.Sprint("part-", i), 20<<10))
	}
	c.SetDisk(0, "cache", disks.Critical)
	c.Until("all is elsewhere", 30*time.Second, evacuationOf(c, disks.Critical)("done"))
	c.Sleep(10 * time.Second)
	rewrite(t, c, blocks)
	return blocks
}

// Blocks change after they were carried off a dying disk, and their node leaves: nobody reads the old versions.
func TestWhatLeftADyingDiskChanges(t *testing.T) {
	for name, between := range map[string]func(c *clustertest.Cluster){
		"and the node leaves at once":          func(*clustertest.Cluster) {},
		"and the disk turns out well":          func(c *clustertest.Cluster) { c.SetDisk(0, "cache", disks.Healthy) },
		"and the disk is looked through again": func(c *clustertest.Cluster) { c.Sleep(11 * time.Minute) },
		"and the agent starts anew":            func(c *clustertest.Cluster) { c.Kill(0); c.Restart(0) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, clustertest.Config{Agents: 6}, func(t *testing.T, c *clustertest.Cluster) {
				evacuated(t, c)
				between(c)
				c.Sleep(5 * time.Second)
				goes(c, 1, 2, 3, 4, 5)
			})
		})
	}
}

// The disk turns out to be healthy, and the node stays: peers drop the old versions.
func TestWhatLeftADiskThatIsWellAfterAllChanges(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := evacuated(t, c)
		c.SetDisk(0, "cache", disks.Healthy)
		for _, b := range blocks {
			c.Until(b.ID+" is held no more", 5*time.Minute, func() bool { return len(c.Locate(b.ID).GetHolders()) == 0 })
		}
	})
}
