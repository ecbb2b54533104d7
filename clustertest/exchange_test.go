package clustertest_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// exchanged has nodes 0 and 1 copy all of their blocks ahead to each other: both are advised to go, and the third node is away.
func exchanged(c *clustertest.Cluster) (all []*clustertest.Block) {
	const each = 8
	c.Partition(2)
	c.WaitState(2, "LOST")
	for i := range 2 {
		for n := range each {
			all = append(all, c.Write(i, "cache", fmt.Sprintf("%s/part-%d", c.Name(i), n), fillSize))
		}
		c.Rebalance(i)
	}
	c.Until("each has the other's", 5*time.Minute, func() bool {
		a, _ := c.Moved(0)
		b, _ := c.Moved(1)
		return a == each && b == each
	})
	return all
}

// Two nodes that hold each other's blocks leave within seconds of each other. A third node that is there in time gets all of them, even if
// one of the two goes without having sent anything.
func TestTwoThatHaveEachOthersBlocksGo(t *testing.T) {
	for name, story := range map[string]func(c *clustertest.Cluster){
		"a third is there": func(c *clustertest.Cluster) {
			c.Heal()
			c.WaitState(2, "ACTIVE")
			c.Notice(0, 2*time.Minute)
			c.Sleep(7 * time.Second)
			c.Notice(1, 2*time.Minute)
			c.Sleep(110 * time.Second)
			c.Kill(0)
			c.Kill(1)
		},
		"a third is back in the middle": func(c *clustertest.Cluster) {
			c.Notice(0, 2*time.Minute)
			c.Sleep(7 * time.Second)
			c.Notice(1, 2*time.Minute)
			c.Sleep(40 * time.Second)
			c.Heal()
			c.Sleep(70 * time.Second)
			c.Kill(0)
			c.Kill(1)
		},
		"the second is gone by then": func(c *clustertest.Cluster) {
			c.Notice(0, 2*time.Minute)
			c.Sleep(7 * time.Second)
			c.Notice(1, 30*time.Second)
			c.Sleep(30 * time.Second)
			c.Kill(1)
			c.Sleep(20 * time.Second)
			c.Heal()
			c.Sleep(55 * time.Second)
			c.Kill(0)
		},
		"the first is gone by then": func(c *clustertest.Cluster) {
			c.Notice(0, 30*time.Second)
			c.Sleep(7 * time.Second)
			c.Notice(1, 2*time.Minute)
			c.Sleep(30 * time.Second)
			c.Kill(0)
			c.Sleep(20 * time.Second)
			c.Heal()
			c.Sleep(55 * time.Second)
			c.Kill(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
				all := exchanged(c)
				story(c)
				c.Verify(2, all...)
			})
		})
	}
}

// Without a third node the manifest of the last to go names all blocks as lost, and readers are told so.
func TestTwoThatHaveEachOthersBlocksGoAlone(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		all := exchanged(c)
		c.Notice(0, 2*time.Minute)
		c.Sleep(7 * time.Second)
		c.Notice(1, 2*time.Minute)
		c.Sleep(113 * time.Second)
		c.Kill(0)
		c.Sleep(7 * time.Second)
		if _, entries := c.Manifest(1); len(entries) < len(all) {
			t.Errorf("the last account has %d entries, want all %d blocks", len(entries), len(all))
		} else {
			for _, b := range all {
				if e := entries[b.ID]; e.GetOutcome() != "lost" || e.GetReason() == "" {
					t.Errorf("%s: got %v, want it named as lost", b.ID, e)
				}
			}
		}
		c.Kill(1)
		c.Heal()
		c.WaitState(2, "ACTIVE")
		c.Sleep(time.Minute)
		for _, b := range all {
			if code, body := c.Read(2, b.ID); code != http.StatusGone {
				t.Errorf("%s: got %d %s, want 410", b.ID, code, body)
			}
		}
	})
}
