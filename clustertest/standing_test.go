package clustertest_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/clustertest"
)

// A node that was ordered away without a limit is cut off until it is LOST, and drains meanwhile. Once it is heard again the order still
// stands, whichever comes first: a heartbeat, or the manifest that it has been trying to deliver.
func TestOrderOutlivesSilence(t *testing.T) {
	for i := range 6 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
				fill(c, 0)
				c.Decommission(0, -1, "disks are to be changed")
				half(t, c, 0)
				c.Partition(0, clustertest.Coordinator)
				c.WaitState(0, "LOST")
				c.Sleep(time.Minute + time.Duration(i)*370*time.Millisecond)
				c.Heal()
				c.Sleep(2 * time.Minute)
				if s := c.State(0); s != "DECOMMISSIONED" {
					t.Errorf("it is %s", s)
				}
			})
		})
	}
}

// A node that cannot be heard is sent away at once, and is given a notice by its cloud, which is withdrawn once it is heard.
func TestOrderOutlivesANotice(t *testing.T) {
	bubble(t, clustertest.Config{BytesPerSecond: slow}, func(t *testing.T, c *clustertest.Cluster) {
		fill(c, 0)
		c.Partition(0, clustertest.Coordinator)
		r := &api.DecommissionRequest{Nodes: []string{c.Name(0)}, Timeout: durationpb.New(0)}
		if _, err := c.Operator(0).Decommission(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		c.Notice(0, 2*time.Minute)
		c.Sleep(5 * time.Second)
		c.Heal()
		c.Sleep(20 * time.Second)
		c.Withdraw(0)
		c.Sleep(2 * time.Minute)
		if s := c.State(0); s != "DECOMMISSIONED" {
			t.Errorf("it is %s", s)
		}
	})
}
