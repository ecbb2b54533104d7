package clustertest_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/clustertest"
)

// Peers keep a node's blocks for the whole time from when the node went, even if another machine has its name a moment later, or the
// coordinators have lost their state and never heard of the node.
func TestWhatWasCarriedIsKeptThoughNobodyKnowsItsNode(t *testing.T) {
	for name, then := range map[string]func(t *testing.T, c *clustertest.Cluster){
		"another machine has its name": func(t *testing.T, c *clustertest.Cluster) { backWithNothing(t, c, 0) },
		"another machine has its name and goes": func(t *testing.T, c *clustertest.Cluster) {
			backWithNothing(t, c, 0)
			c.Sleep(5 * time.Second)
			c.Write(0, "cache", "y", fillSize) // or its disk might not be mounted
			c.Rebalance(0)
		},
		"the coordinator began anew": func(t *testing.T, c *clustertest.Cluster) { anewWithNothing(t, c) },
		"the coordinator began anew, and another machine has its name": func(t *testing.T, c *clustertest.Cluster) {
			anewWithNothing(t, c)
			backWithNothing(t, c, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			short := func(_ int, cfg *agent.Config) { cfg.Receive.Keep = 3 * time.Minute }
			bubble(t, calm(clustertest.Config{Agents: 3, Agent: short}), func(t *testing.T, c *clustertest.Cluster) {
				x := c.Write(0, "cache", "x", fillSize)
				c.Rebalance(0)
				c.Until("it is copied ahead", time.Minute, func() bool { n, _ := c.Moved(0); return n == 1 })
				c.Sleep(200 * time.Second)
				c.Withdraw(0)
				c.Kill(0)
				then(t, c)
				c.Sleep(140 * time.Second)
				if n := atEither(c, []*clustertest.Block{x}); n != 1 {
					t.Error("it is not kept, and its node went a moment ago")
				}
				c.Sleep(2 * time.Minute)
				if n := atEither(c, []*clustertest.Block{x}); n != 0 {
					t.Error("it is kept for longer than it should be")
				}
			})
		})
	}
}

// anewWithNothing has the coordinator come back with an empty disk.
func anewWithNothing(t *testing.T, c *clustertest.Cluster) {
	t.Helper()
	c.KillCoordinator()
	if err := os.RemoveAll(filepath.Join(filepath.Dir(c.Dir(0)), clustertest.Coordinator)); err != nil {
		t.Fatal(err)
	}
	c.RestartCoordinator()
}
