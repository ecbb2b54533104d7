package clustertest_test

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/clustertest"
)

// A node's certificate is revoked during its drain: its peers take nothing more from it, not even over streams that are open.
func TestWhoseCertificateIsRevokedCarriesNothingMore(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Notice(0, 120*time.Second)
		half(t, c, 0)
		if _, err := c.Operator(0).Revoke(t.Context(), &api.RevokeRequest{Role: "node", Name: c.Name(0), Reason: "stolen"}); err != nil {
			t.Fatal(err)
		}
		c.Sleep(3 * time.Second) // one heartbeat of each node
		before, _ := c.Moved(0)
		c.Sleep(30 * time.Second)
		if after, _ := c.Moved(0); after != before || after == fillBlocks {
			t.Errorf("%d of %d blocks were moved, and %d half a minute later: want it stopped before its end", before, fillBlocks, after)
		}
	})
}

// A node's certificate is revoked. An agent that restarts while there is no coordinator still refuses that node.
func TestWhoseCertificateIsRevokedIsRefusedAfterARestart(t *testing.T) {
	bubble(t, clustertest.Config{Agents: 2}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		if _, err := c.Operator(0).Revoke(t.Context(), &api.RevokeRequest{Role: "node", Name: c.Name(0), Reason: "stolen"}); err != nil {
			t.Fatal(err)
		}
		c.Sleep(5 * time.Second)
		c.KillCoordinator()
		c.Kill(1)
		c.Restart(1)
		c.Notice(0, 120*time.Second)
		c.Sleep(100 * time.Second)
		if moved, _ := c.Moved(0); moved != 0 {
			t.Errorf("%d blocks of a node that was shut out were taken, want none", moved)
		}
	})
}
