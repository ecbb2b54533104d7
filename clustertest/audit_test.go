package clustertest_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/clustertest"
)

// Each new leader has the audit records: after a leader was killed later, after one was killed during the request, and after one handed
// the lead over on request.
func TestAuditOutlivesTheLeader(t *testing.T) {
	bubble(t, three, func(t *testing.T, c *clustertest.Cluster) {
		c.Decommission(0, time.Hour, "first")
		first := c.Leader()
		c.KillCoordinator(first)
		c.Recommission(0)
		c.RestartCoordinator(first)
		c.Sleep(3 * time.Second)

		var asked sync.WaitGroup
		asked.Go(func() { c.Decommission(1, time.Hour, "while it dies") })
		c.KillCoordinator(c.Leader())
		asked.Wait()
		c.Transfer("its turn")
		c.Sleep(3 * time.Second)

		var got []string
		for i, r := range c.Audit() {
			got = append(got, r.Asked+" "+r.Reason+" "+r.Outcome)
			if r.Index != uint64(i+1) || r.Who == "" {
				t.Errorf("got record %v, want number %d", r, i+1)
			}
		}
		want := []string{"decommission first done", "recommission  done", "decommission while it dies done", "raft transfer its turn done"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
