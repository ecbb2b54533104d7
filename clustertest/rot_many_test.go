package clustertest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// A disk of the peer that took the blocks copied ahead goes bad. The source has removed many of them, and is asked for those in vain for as
// long as it copies ahead. The other broken blocks are carried again all the same, before the node goes.
func TestRotBehindWhatIsGoneIsCarriedAgain(t *testing.T) {
	bubble(t, calm(clustertest.Config{Agents: 2}), func(t *testing.T, c *clustertest.Cluster) {
		const gone, there, size = 70, 5, 20_000
		var blocks []*clustertest.Block
		for i := range gone + there {
			blocks = append(blocks, c.Write(0, "cache", fmt.Sprint("b", i), size))
		}
		c.Rebalance(0)
		c.Until("all is copied ahead", 5*time.Minute, func() bool { n, _ := c.Moved(0); return n == gone+there })
		broke := func(some ...*clustertest.Block) {
			for _, b := range some {
				rots(t, c, b, 1)
				c.Read(1, b.ID) // the read finds the block broken
			}
			c.Until("they are told of", time.Minute, func() bool {
				return !slices.ContainsFunc(some, func(b *clustertest.Block) bool { return c.Locate(b.ID).State == "held" })
			})
		}
		c.Partition(0, c.Name(1)) // else it would have the peer forget the deleted blocks
		for _, b := range blocks[:gone] {
			if err := os.Remove(filepath.Join(c.Dir(0), "cache", filepath.Base(b.ID))); err != nil {
				t.Fatal(err)
			}
		}
		broke(blocks[:gone]...)
		c.Heal()
		c.Sleep(2 * time.Minute)
		broke(blocks[gone:]...)
		c.Sleep(3 * time.Minute)
		c.Kill(0)
		c.WaitState(0, "LOST")
		c.Verify(1, blocks[gone:]...)
	})
}
