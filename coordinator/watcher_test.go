package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// HDFS-16303: a hundred dead nodes that were leaving held up all others.
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
		v.is("x", registry.Decommissioned)
		v.is(dead[1], registry.Decommissioning)
		time.Sleep(time.Minute) // they never beat again
		reply, err := v.operator().ListNodes(v.Context(), &api.ListNodesRequest{})
		if err != nil {
			v.Fatal(err)
		}
		for i, n := range reply.Nodes[:len(dead)] {
			if want := []registry.State{registry.Lost, registry.Decommissioned}[i%2]; n.State != string(want) {
				v.Fatalf("node %s: got %s, want %s", n.Name, n.State, want)
			}
		}
	})
}

// A node whose drain ended in time while no coordinator was there tells the next one, which accepts that; a dead node's decommission ends a
// lease later.
func TestDeadlineWhileTheCoordinatorIsAway(t *testing.T) {
	inTown(t, func(v *town) {
		a, dead := v.agent("a"), v.agent("dead")
		a.register()
		dead.register()
		v.order(time.Minute, "a", "dead")
		v.stop()
		time.Sleep(2 * time.Minute)
		v.start()
		time.Sleep(v.cfg.Lease - time.Second)
		v.is("dead", registry.Decommissioning)
		a.goodbye("inc1")
		time.Sleep(2 * time.Second)
		v.is("dead", registry.Decommissioned)
		stream, err := v.operator().Events(v.Context(), &api.EventsRequest{Types: []string{registry.EventDecommissioned}})
		if err != nil {
			v.Fatal(err)
		}
		var ended []string
		for e, err := stream.Recv(); err == nil; e, err = stream.Recv() {
			ended = append(ended, e.Node+" "+e.Data["outcome"])
		}
		if got := strings.Join(ended, ", "); got != "a drained, dead timeout" {
			t.Errorf("got %s", got)
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
		v.is("a", registry.Shutdown)
		v.restart() // a new process waits a lease before it believes that it heard everybody
		time.Sleep(v.cfg.Lease - time.Second)
		v.is("a", registry.Shutdown)
		time.Sleep(2 * time.Second)
		v.is("a", registry.Lost)
		a.beat()
		v.is("a", registry.Active)
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
		v.is("a", registry.Decommissioned)
		b.live(40)
		if _, err := v.operator().GetNode(v.Context(), &api.GetNodeRequest{Node: "a"}); err == nil {
			v.Error("node a is kept for longer than forget_after")
		}
		v.is("b", registry.Decommissioned) // it beats, and would come back as one that nobody had sent away
	})
}

// A node drained in time while it reached no coordinator, and delivers its manifest long after the deadline: it was no TIMEOUT.
func TestAccountOfADrainInTimeComesLate(t *testing.T) {
	for name, c := range map[string]struct {
		anew     bool          // the coordinator's disk was lost
		finished time.Duration // after it began
		want     string
	}{
		"in time":                  {finished: 30 * time.Second, want: "DECOMMISSIONED"},
		"late":                     {finished: 3 * time.Minute, want: "TIMEOUT"},
		"in time, told to another": {anew: true, finished: 30 * time.Second, want: "DECOMMISSIONED"},
	} {
		t.Run(name, func(t *testing.T) {
			inTown(t, func(v *town) {
				a := v.agent("a")
				a.register()
				began := time.Now()
				a.notice("inc-a", 2*time.Minute)
				a.announce()
				v.stop()
				time.Sleep(5 * time.Minute)
				if c.anew {
					v.cfg.DataDir = t.TempDir()
				}
				v.start()
				time.Sleep(2 * v.cfg.Lease)
				if !c.anew {
					v.is("a", registry.Decommissioned)
					if got := v.seen("a").SubState; got != timeIsUp {
						t.Errorf("nothing was heard of it: got %s", got)
					}
				}
				a.status.Notice.Remaining = durationpb.New(time.Until(began.Add(2 * time.Minute)))
				a.status.Drain, a.status.Accounted = &api.DrainProgress{Phase: "drained"}, "inc-a"
				for range 3 {
					a.beat()
					time.Sleep(time.Second)
				}
				a.finished = began.Add(c.finished)
				a.goodbye("inc-a")
				if got := v.seen("a").SubState; got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
				if c.anew {
					stream, err := v.operator().Events(v.Context(), &api.EventsRequest{Types: []string{registry.EventDecommissioned}})
					if err != nil {
						t.Fatal(err)
					}
					for e, err := stream.Recv(); err == nil; e, err = stream.Recv() {
						if e.Data["outcome"] != string(registry.Drained) {
							t.Errorf("it ended as %v, by the clock of a coordinator that had heard of it a moment ago", e.Data)
						}
					}
				}
				v.restart()
				if got := v.seen("a").SubState; got != c.want {
					t.Errorf("after a restart: got %s, want %s", got, c.want)
				}
			})
		})
	}
}
