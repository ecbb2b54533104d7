package clustertest_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// A host comes up without one of its disks, drains the others, and restarts with all disks: the blocks on that disk are carried then, since
// there is time. If there is nothing new on it, the node does not say goodbye again.
func TestDiskIsBackOnceDrained(t *testing.T) {
	for name, there := range map[string]bool{"the disk is back": false, "it was there": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
				blocks := fill(c, 0)
				disk := filepath.Join(c.Dir(0), "cache")
				move := func(from, to string) {
					if there {
						return
					}
					if err := os.Rename(from, to); err != nil {
						t.Fatal(err)
					}
				}
				c.Kill(0)
				move(disk, disk+"-aside")
				c.Restart(0)
				c.Sleep(5 * time.Second)
				c.Decommission(0, time.Hour, "test")
				c.WaitDrained(0)
				c.Sleep(10 * time.Second)
				before := len(c.Events(0))
				c.Kill(0)
				if !there {
					if err := os.RemoveAll(disk); err != nil {
						t.Fatal(err)
					}
				}
				move(disk+"-aside", disk)
				c.Restart(0)
				c.Sleep(2 * time.Minute)
				if told := len(c.Events(0)) - before; there && told > 0 {
					t.Errorf("%d events are of nothing new", told)
				}
				accounted(t, c, 0, blocks, 0)
				c.Kill(0)
				c.Verify(1)
			})
		})
	}
}
