package clustertest_test

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// A node without a notice has an index of what it would carry. Blocks written between its last look and the notice are carried all the same.
func TestNodeKnowsItsStoresBeforeTheNotice(t *testing.T) {
	bubble(t, clustertest.Config{}, func(t *testing.T, c *clustertest.Cluster) {
		early := []*clustertest.Block{c.Write(0, "cache", "one", 1000), c.Write(0, "cache", "two", 2000)}
		c.Until("it has looked", time.Minute, func() bool { return c.Status(0).Index.GetBlocks() == 2 })
		if x := c.Status(0).Index; x.Bytes != 3000 || x.Age.AsDuration() > time.Minute {
			t.Errorf("got %v", x)
		}
		late := c.Write(0, "cache", "three", 3000)
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		accounted(t, c, 0, append(early, late), 0)
		c.Kill(0)
		c.Verify(1)
	})
}
