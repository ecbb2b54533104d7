package coordinator

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
)

// HDFS-16303: a hundred dead nodes that were leaving held up everybody else.
func TestDeadLeaversHoldUpNobody(t *testing.T) {
	inTown(t, func(v *town) {
		var dead []string
		conn := v.agent("x")
		for i := range 200 {
			name := fmt.Sprintf("dead-%03d", i)
			dead = append(dead, name)
			if _, err := v.agent(name).MembershipClient.Register(v.Context(), &api.RegisterRequest{Node: name, Incarnation: "i", PeerAddress: name + ":7412",
				Status: &api.Status{Workloads: []*api.Workload{workload("w", "RUNNING", 1, "app-1")}}}); err != nil {
				v.Fatal(err)
			}
		}
		conn.status.Workloads = []*api.Workload{workload("w", "DONE", 0, "app-1")}
		conn.register()
		timeouts := map[string]*durationpb.Duration{}
		for i, name := range dead {
			if i%2 == 0 {
				timeouts[name] = durationpb.New(-1) // without limit
			}
		}
		r := &api.DecommissionRequest{Nodes: append(dead, "x"), Timeout: durationpb.New(time.Minute), Timeouts: timeouts}
		if _, err := v.operator().Decommission(v.Context(), r); err != nil {
			v.Fatal(err)
		}
		conn.live(5)
		conn.status.Drain = &api.DrainProgress{Phase: "drained"}
		conn.beat()
		conn.goodbye("inc1")
		v.is("x", Decommissioned)
		v.is(dead[1], Decommissioning)
		time.Sleep(time.Minute) // they never beat again
		reply, err := v.operator().ListNodes(v.Context(), &api.ListNodesRequest{})
		if err != nil {
			v.Fatal(err)
		}
		for i, n := range reply.Nodes[:len(dead)] {
			if want := []State{Lost, Decommissioned}[i%2]; n.State != string(want) {
				v.Fatalf("node %s: got %s, want %s", n.Name, n.State, want)
			}
		}
	})
}

func TestRestartThatTakesTooLong(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		if _, err := a.ReportUnavailable(v.Context(), &api.ReportUnavailableRequest{Node: "a", Incarnation: a.incarnation}); err != nil {
			v.Fatal(err)
		}
		time.Sleep(v.cfg.RestartTimeout - time.Second)
		v.is("a", Shutdown)
		v.restart() // a new process waits a lease before it believes that it heard everybody
		time.Sleep(v.cfg.Lease - time.Second)
		v.is("a", Shutdown)
		time.Sleep(2 * time.Second)
		v.is("a", Lost)
		a.beat()
		v.is("a", Active)
	})
}

func TestWhoIsGoneStaysOnTheListForAWhile(t *testing.T) {
	inTown(t, func(v *town) {
		v.cfg.ForgetAfter = time.Minute
		v.restart()
		a, b := v.agent("a"), v.agent("b")
		a.register()
		b.register()
		v.order(0, "a", "b")
		if wish := b.live(59).Directive; wish.GetRemaining() == nil || wish.Remaining.AsDuration() > 0 {
			v.Errorf("got directive %v for a node that was given no time, want one with none left", wish)
		}
		v.is("a", Decommissioned)
		b.live(40)
		if _, err := v.operator().GetNode(v.Context(), &api.GetNodeRequest{Node: "a"}); err == nil {
			v.Error("node a is kept for longer than forget_after")
		}
		v.is("b", Decommissioned) // it beats, and would come back as one that nobody had sent away
	})
}
