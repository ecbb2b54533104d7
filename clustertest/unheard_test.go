package clustertest_test

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// A node that only the coordinator cannot reach is LOST, and still serves the blocks that it alone has: landed ones, and its own.
func TestANodeThatIsLostToTheCoordinatorAloneIsRead(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		b := c.Write(0, "cache", "part", 200_000)
		c.Notice(0, 120*time.Second)
		c.WaitDrained(0)
		holder := 1
		for c.Name(holder) != c.Locate(b.ID).Holders[0].Node {
			holder++
		}
		own := c.Write(holder, "cache", "own", fillSize)
		reader := 1 + holder%3
		c.Kill(0)
		c.Partition(holder, clustertest.Coordinator)
		c.WaitState(holder, "LOST")
		c.Verify(reader, b, own)
		c.Partition(holder) // that the node is silent is what LOST says already
		for _, x := range []struct {
			id   string
			want int
			took time.Duration
		}{{b.ID, 410, 2 * time.Second}, {own.ID, 404, 100 * time.Millisecond}} {
			began := time.Now()
			if code, body := c.Read(reader, x.id); code != x.want || time.Since(began) > x.took {
				t.Errorf("%s once nobody reaches it: got %d %s after %s, want %d in %s", x.id, code, body, time.Since(began), x.want, x.took)
			}
		}
		c.Heal()
		c.Until("it is heard again", time.Minute, func() bool { return c.State(holder) == "ACTIVE" })
		c.Verify(reader, b, own)
	})
}
