package coordinator

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// The leader's clock is set ahead by an hour while nodes leave. Each has as much time as before: by an order, by what its agent is told before
// the leader has noticed, and by a notice, of which it says anew how long it has. An appointment is an hour closer.
func TestClockThatIsSetAheadEndsNoDrain(t *testing.T) {
	f := leading(t)
	now := time.Now()
	f.ledger.steady.last.Store(&reading{now.Round(0).Add(-time.Hour), now}) // until now it was an hour behind
	do := func(c registry.Command) {
		t.Helper()
		if _, err := f.do(c); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ordered", "noticed", "unlimited", "appointed", "excluded"} {
		do(registration(name))
		f.leases.beat(name, &api.Status{}, now)
	}
	do(registry.Command{Do: registry.DoDecommission, Nodes: []string{"ordered"}, Order: &registry.Order{Timeout: time.Minute}})
	do(registry.Command{Do: registry.DoDecommission, Nodes: []string{"unlimited"}, Order: &registry.Order{Timeout: -1}})
	do(registry.Command{Do: registry.DoDecommission, Nodes: []string{"appointed"}, Order: &registry.Order{Timeout: time.Minute, By: registry.ByMaintenance}})
	refresh := registry.Command{Do: registry.DoHosts, Hosts: &hosts.Lists{Exclude: map[string]hosts.Exclusion{"excluded": {}}}, Order: &registry.Order{Timeout: time.Minute}}
	refresh.Hosts.ExcludeFile = "exclude"
	do(refresh)
	do(registry.Command{Do: registry.DoAnnounce, Nodes: []string{"noticed"}, Notice: &registry.Notice{Incident: "inc-1", Kind: "terminate", Source: "ec2", Deadline: f.ledger.steady.now().Add(time.Minute)}})
	left := func(name string, now time.Time) time.Duration {
		n, _ := f.ledger.node(name)
		if !n.Leaving() {
			t.Errorf("%s is %s", name, n.State)
		}
		return n.Decommission.Deadline().Sub(now).Round(10 * time.Second)
	}
	n, _ := f.ledger.node("ordered")
	if got := f.leavers.directive(n, f.ledger.steady.now()).Remaining.AsDuration().Round(10 * time.Second); got != time.Minute {
		t.Errorf("the agent is told that it has %s, want a minute", got)
	}
	for range 2 { // the second time nothing is new
		now = time.Now()
		f.keepTime(now)
		f.reapOnce(now, reapPace)
	}
	if got := left("ordered", now); got != time.Minute {
		t.Errorf("the order has %s left, want a minute", got)
	}
	do(refresh) // an operator looks again
	if got := left("excluded", now); got != time.Minute {
		t.Errorf("the order of the host files has %s left, want a minute", got)
	}
	if got := left("appointed", now); got != time.Minute-time.Hour {
		t.Errorf("the appointment has %s left, want an hour less than a minute", got)
	}
	left("noticed", now)
	if n, _ := f.ledger.node("unlimited"); !n.Leaving() || !n.Decommission.Deadline().IsZero() {
		t.Errorf("got %+v, want no limit", n.Decommission)
	}
}
