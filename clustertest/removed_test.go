package clustertest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/clustertest"
)

// A coordinator that did not run when it was removed says so when it starts, and does not disturb the others, which tell it.
func TestCoordinatorRemovedWhileItWasAway(t *testing.T) {
	bubble(t, clustertest.Config{Coordinators: 3, Agents: 1}, func(t *testing.T, c *clustertest.Cluster) {
		leader := c.Leader()
		away, other := (leader+1)%3, (leader+2)%3
		c.StopCoordinator(away)
		all := c.CoordinatorStatus(leader).GetMembers()
		r := &api.ChangeMembersRequest{Remove: []string{all[away].Name, all[other].Name}}
		if _, err := c.Operator(leader).ChangeMembers(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		c.Sleep(time.Minute) // raft tries once more to tell it
		c.RestartCoordinator(away)
		term := c.CoordinatorStatus(leader).GetTerm()
		asked := c.Operator(away)
		c.Until("it says that it was removed", 30*time.Second, func() bool {
			_, err := asked.ListNodes(t.Context(), &api.ListNodesRequest{})
			return err != nil && strings.Contains(err.Error(), "was removed")
		})
		c.Sleep(30 * time.Second)
		if s := c.CoordinatorStatus(leader); s.GetTerm() != term || !s.GetLeader() {
			t.Errorf("got term %d, leads %t: want %d, and the lead undisturbed", s.GetTerm(), s.GetLeader(), term)
		}
	})
}
