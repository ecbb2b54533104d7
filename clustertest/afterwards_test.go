package clustertest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// A drain takes some seconds of the two minutes, and engines go on writing in the others: new files, and others under names that have moved.
func TestWhatIsWrittenAfterTheDrainIsCarried(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 4}, func(t *testing.T, c *clustertest.Cluster) {
		blocks := fill(c, 0)
		c.Notice(0, 2*time.Minute)
		c.WaitDrained(0)
		rewrite(t, c, blocks[:9])
		for i := range 8 {
			c.Write(0, "cache", fmt.Sprintf("late-%d", i), 20_000)
			c.Sleep(12 * time.Second)
		}
		c.Sleep(9 * time.Second) // 105 s and some after the notice
		if summary, _ := c.Manifest(0); summary.GetMoved().GetBlocks() < fillBlocks+8 || summary.GetLost().GetBlocks() > 0 {
			t.Errorf("got %d moved and %d lost, want all that was written", summary.GetMoved().GetBlocks(), summary.GetLost().GetBlocks())
		}
		c.Kill(0)
		c.VerifyEverywhere(1, 2, 3)
	})
}
