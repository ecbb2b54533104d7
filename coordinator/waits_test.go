package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

func workload(name, state string, processes int64, apps ...string) *api.Workload {
	return &api.Workload{Name: name, Type: "unit", State: state, Processes: processes, Apps: apps, Awaited: true}
}

// heldUp checks a node's sub-state and what it waits for, in words.
func (v *town) heldUp(name, subState, waitsFor string) {
	v.Helper()
	n := v.seen(name)
	if got := strings.Join(n.WaitsFor, "; "); n.SubState != subState || got != waitsFor {
		v.Errorf("node %s: got %s for %q, want %s for %q", name, n.SubState, got, subState, waitsFor)
	}
}

// YARN's own sequence (TestDecommissioningNodesWatcher): 3, 2, 1 containers, none, and the app ends.
func TestSequenceOfYARN(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		a.status.Workloads = []*api.Workload{workload("nm", "RUNNING", 3, "app-1")}
		b.status.Workloads = []*api.Workload{workload("nm", "RUNNING", 1, "app-1", "app-2")}
		a.register()
		b.register()
		v.heldUp("a", "NONE", "")
		v.order(time.Hour, "a")
		for left := int64(3); left > 0; left-- {
			a.status.Workloads[0].Processes = left
			wish := a.live(1).Directive
			b.beat()
			v.heldUp("a", "WAIT_WORKLOAD", strings.Replace(fmt.Sprintf("workload nm (%d processes); app app-1 (runs on b)", left), "(1 processes)", "(1 process)", 1))
			if got := strings.Join(wish.GetApps(), " "); got != "app-1" {
				v.Errorf("got apps %q in the directive, want app-1: app-2 never ran there", got)
			}
		}
		a.status.Workloads[0].State, a.status.Workloads[0].Processes = "DONE", 0
		a.beat()
		v.heldUp("a", "WAIT_APP", "app app-1 (runs on b)")
		b.status.Workloads[0].Apps = []string{"app-2"}
		b.beat()
		if wish := a.beat().Directive; len(wish.GetApps()) > 0 {
			v.Errorf("got apps %v after the app ended", wish.Apps)
		}
		v.heldUp("a", "MIGRATING", "")
		a.status.Drain = &api.DrainProgress{Phase: "drained"}
		a.beat()
		v.heldUp("a", "READY", "")
		a.goodbye("inc1")
		v.heldUp("a", "DECOMMISSIONED", "")
	})
}

// How fast a drain was when its node was last heard, or had time, says nothing of when it will be done.
func TestDrainThatStallsHasNoRate(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		a.status.Drain = &api.DrainProgress{Phase: "sending", BytesTotal: 100, BytesMoved: 1, BytesPerSecond: 7}
		rate := func(want int64) {
			v.Helper()
			if d := v.seen("a").GetStatus().GetDrain(); d.GetBytesPerSecond() != want || d.GetBytesMoved() != 1 {
				v.Errorf("got %v, want a rate of %d", d, want)
			}
		}
		v.order(time.Minute, "a")
		a.live(1)
		rate(7)
		time.Sleep(20 * time.Second)
		rate(0)
		a.live(45)
		v.heldUp("a", "TIMEOUT", "")
		rate(0)
	})
}

func TestWhatIsWaitedFor(t *testing.T) {
	byOrder := &registry.Decommission{Order: &registry.Order{At: t0, Timeout: time.Minute}}
	leaver := registry.Node{Name: "a", State: registry.Decommissioning, Decommission: byOrder}
	there := []appElsewhere{{app: "x", on: "b", more: 2}, {app: "y"}}
	with := func(all ...*api.Workload) pulse { return pulse{heard: true, status: &api.Status{Workloads: all}} }
	unawaited := workload("cron", "RUNNING", 1)
	unawaited.Awaited = false
	for _, c := range []struct {
		name      string
		node      registry.Node
		pulse     pulse
		elsewhere []appElsewhere
		seconds   int
		want      string
	}{
		{"active", registry.Node{State: registry.Active}, with(workload("w", "RUNNING", 1)), nil, 0, "NONE"},
		{"lost", registry.Node{State: registry.Lost}, pulse{}, nil, 0, "NONE"},
		{"not heard", leaver, pulse{}, nil, 0, "MIGRATING a heartbeat"},
		{"silent", leaver, pulse{heard: true, suspected: t0}, nil, 0, "MIGRATING a heartbeat"},
		{"told", leaver, with(workload("w", "TOLD", 2)), nil, 0, "WAIT_WORKLOAD workload w (2 processes)"},
		{"stopping", leaver, with(workload("w", "STOPPING", 0)), nil, 0, "WAIT_WORKLOAD workload w"},
		{"not known is not done", leaver, with(workload("w", "UNKNOWN", 0)), nil, 0, "WAIT_WORKLOAD workload w (not known whether it runs)"},
		{"killed", leaver, with(workload("w", "KILLED", 0)), nil, 0, "MIGRATING"},
		{"nobody waits for it", leaver, with(unawaited), nil, 0, "MIGRATING"},
		{"apps", leaver, with(workload("w", "DONE", 0)), there, 0, "WAIT_APP app x (runs on b and 2 more); app y (not every node was heard yet)"},
		{"one done, one not", leaver, with(workload("v", "DONE", 0), workload("w", "RUNNING", 1)), nil, 0, "WAIT_WORKLOAD workload w (1 process)"},
		{"its time is up", leaver, with(workload("w", "RUNNING", 1)), nil, 60, "TIMEOUT workload w (1 process)"},
		{"a disk", leaver, pulse{heard: true, status: &api.Status{Drain: &api.DrainProgress{Phase: "sending", Awaits: []string{"/mnt/d1"}}}}, nil, 0, "MIGRATING disk /mnt/d1 (does not answer)"},
		{"ready in time, or not", leaver, pulse{heard: true, status: &api.Status{Drain: &api.DrainProgress{Phase: "drained"}}}, nil, 60, "READY"},
		{"ended by the clock", registry.Node{State: registry.Decommissioned, Decommission: &registry.Decommission{Outcome: registry.TimedOut}}, with(workload("w", "RUNNING", 1)), nil, 0, "TIMEOUT"},
		{"done", registry.Node{State: registry.Decommissioned, Decommission: &registry.Decommission{Outcome: registry.Drained}}, pulse{}, nil, 0, "DECOMMISSIONED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub, words := waits(c.node, c.pulse, c.elsewhere, t0.Add(time.Duration(c.seconds)*time.Second))
			if got := strings.TrimSpace(sub + " " + strings.Join(words, "; ")); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestNoticeWaitsForNoApp(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		a.status.Workloads = []*api.Workload{workload("w", "RUNNING", 1, "app-1")}
		b.status.Workloads = []*api.Workload{workload("w", "RUNNING", 1, "app-1")}
		a.register()
		b.register()
		v.order(time.Hour, "a")
		a.status.Workloads[0].State = "DONE"
		b.beat()
		if wish := a.beat().Directive; len(wish.GetApps()) != 1 {
			v.Errorf("got directive %v, want one that names app-1", wish)
		}
		a.notice("inc1", time.Minute)
		a.beat()
		v.heldUp("a", "MIGRATING", "")
		if wish := a.beat().Directive; wish == nil || len(wish.Apps) > 0 {
			v.Errorf("got directive %v, want the order without apps", wish)
		}
	})
}

// An app that runs on a silent node is not waited for: a dead node must not hold others up for longer than its lease.
func TestAppOnADeadNodeIsNotWaitedFor(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		b.status.Workloads = []*api.Workload{workload("w", "RUNNING", 1, "app-1")}
		a.status.Workloads = []*api.Workload{workload("w", "DONE", 0)}
		a.register()
		b.register()
		a.status.Workloads = []*api.Workload{workload("w", "RUNNING", 1, "app-1")}
		a.beat()
		a.status.Workloads = []*api.Workload{workload("w", "DONE", 0)}
		v.order(time.Hour, "a", "b") // b has a deadline, so it does not become LOST
		a.beat()
		v.heldUp("a", "WAIT_APP", "app app-1 (runs on b)")
		a.live(int(v.cfg.Lease/time.Second) + 1)
		v.is("b", registry.Decommissioning)
		v.heldUp("a", "MIGRATING", "")
	})
}

// A new leader has not heard which nodes run an app: that is not known to be none.
func TestAppsAfterTakeOver(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		a.status.Workloads = []*api.Workload{workload("w", "RUNNING", 1, "app-1")}
		b.status.Workloads = []*api.Workload{workload("w", "RUNNING", 1, "app-1")}
		a.register()
		b.register()
		v.order(time.Hour, "a")
		v.restart()
		if wish := a.beat().Directive; len(wish.GetApps()) != 1 {
			v.Errorf("got directive %v before b was heard, want one that names app-1", wish)
		}
		v.heldUp("a", "WAIT_WORKLOAD", "workload w (1 process); app app-1 (not every node was heard yet)")
		b.status.Workloads[0].State = "DONE"
		b.beat()
		if wish := a.beat().Directive; len(wish.GetApps()) != 0 {
			v.Errorf("got apps %v once b was heard, want none", wish.Apps)
		}
	})
}

// A leader that did not know a node's executors when the node began to leave tells of them when it learns them.
func TestExecutorsAreToldOfLate(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.status.Workloads = []*api.Workload{workload("w", "RUNNING", 1)}
		a.register()
		v.restart()
		v.order(time.Hour, "a")
		a.live(3)
		if got, want := v.toldOf(), "NodeRegistered a; NodeDecommissioning a; ExecutorDecommissioned a w"; got != want {
			v.Errorf("got %s, want %s", got, want)
		}
	})
}

// The index agrees with the plainest one there is.
func TestAppsAgreeWithModel(t *testing.T) {
	a := newApps()
	runs, ran := map[string]map[string]bool{}, map[string]map[string]bool{}
	live := func(n string) bool { return n != "n3" }
	seed := uint64(1)
	next := func(n uint64) int { // xorshift
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		return int(seed % n)
	}
	for step := range 3000 {
		node := fmt.Sprint("n", next(5))
		if runs[node] == nil {
			runs[node], ran[node] = map[string]bool{}, map[string]bool{}
		}
		switch next(8) {
		case 0:
			a.quit(node)
			clear(runs[node])
		case 1:
			a.forget(node)
			clear(runs[node])
			clear(ran[node])
		default:
			clear(runs[node])
			var names []string
			for range next(4) {
				app := fmt.Sprint("app", next(6))
				names = append(names, app)
				runs[node][app], ran[node][app] = true, true
			}
			a.hear(node, &api.Status{Workloads: []*api.Workload{workload("w", "RUNNING", 1, names...), workload("v", "DONE", 0, "app9")}})
		}
		for me := range ran {
			var want []string
			for i := range 6 {
				app := fmt.Sprint("app", i)
				elsewhere := false
				for n := range runs {
					elsewhere = elsewhere || n != me && live(n) && runs[n][app]
				}
				if ran[me][app] && elsewhere {
					want = append(want, app)
				}
			}
			var got []string
			for _, e := range a.elsewhere(me, true, live) {
				got = append(got, e.app)
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Fatalf("step %d, node %s: got %v, want %v", step, me, got, want)
			}
		}
	}
}

func TestAppsAreBounded(t *testing.T) {
	a := newApps()
	for i := range 3 * mostApps {
		a.hear("a", &api.Status{Workloads: []*api.Workload{workload("w", "RUNNING", 1, "long-lived", fmt.Sprintf("app-%06d", i))}})
	}
	h := a.hosts["a"]
	if len(h.ran) != mostApps || len(a.runsOn) != 2 {
		t.Errorf("got %d apps kept and %d running, want %d and 2", len(h.ran), len(a.runsOn), mostApps)
	}
	for _, app := range []string{"long-lived", fmt.Sprintf("app-%06d", 3*mostApps-1), fmt.Sprintf("app-%06d", 2*mostApps+2)} {
		if _, kept := h.ran[app]; !kept {
			t.Errorf("app %s was dropped: it was named later than others", app)
		}
	}
}

func TestExecutorsComeFromTheNewestStatus(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		a.status.Workloads = []*api.Workload{workload("spark", "RUNNING", 2), workload("cron", "RUNNING", 1), workload("old", "DONE", 0)}
		a.status.Workloads[0].Executors = []*api.Executor{{App: "app-1", Id: "7"}, {App: "app-1", Id: "8"}}
		a.register()
		b.register()
		v.order(time.Hour, "a", "b")
		want := "NodeRegistered a; NodeRegistered b; NodeDecommissioning a; ExecutorDecommissioned a spark app-1 7; " +
			"ExecutorDecommissioned a spark app-1 8; ExecutorDecommissioned a cron; NodeDecommissioning b"
		if got := v.toldOf(); got != want {
			v.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// The executors on a machine that goes DOWN are told in the same decision, whether its node has time to leave or not.
func TestExecutorsOfMachinesThatGoDown(t *testing.T) {
	for timeout, left := range map[time.Duration]string{time.Hour: registry.EventDecommissioning, 0: registry.EventDecommissioned} {
		inTown(t, func(v *town) {
			a := v.agent("a")
			a.status.Workloads = []*api.Workload{workload("spark", "RUNNING", 1)}
			a.status.Workloads[0].Executors = []*api.Executor{{App: "app-1", Id: "7"}}
			a.register()
			machines := []*api.Machine{{Hostname: "a"}}
			plan := []*api.MaintenanceWindow{{Machines: machines, StartNanoseconds: time.Now().Add(24 * time.Hour).UnixNano()}}
			if _, err := v.operator().ScheduleMaintenance(v.Context(), &api.ScheduleMaintenanceRequest{Windows: plan}); err != nil {
				v.Fatal(err)
			}
			if _, err := v.operator().ChangeMachines(v.Context(), &api.ChangeMachinesRequest{Machines: machines, Timeout: durationpb.New(timeout)}); err != nil {
				v.Fatal(err)
			}
			want := "NodeRegistered a; MaintenanceScheduled; NodeUnschedulable a; MachineDown; " + left + " a; ExecutorDecommissioned a spark app-1 7"
			if got := v.toldOf(); got != want {
				v.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// toldOf is every event, with the executor that it is about.
func (v *town) toldOf() string {
	v.Helper()
	stream, err := v.operator().Events(v.Context(), &api.EventsRequest{})
	if err != nil {
		v.Fatal(err)
	}
	var told []string
	for {
		e, err := stream.Recv()
		if err != nil {
			return strings.Join(told, "; ")
		}
		words := strings.Fields(strings.Join([]string{e.Type, e.Node, e.Data["workload"], e.Data["app"], e.Data["executor"]}, " "))
		told = append(told, strings.Join(words, " "))
	}
}

func TestDecommissionIsRefusedWhole(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.register()
		for words, r := range map[string]*api.DecommissionRequest{
			"node a is named twice":       {Nodes: []string{"a", "a"}},
			"not among the nodes":         {Nodes: []string{"a"}, Timeouts: map[string]*durationpb.Duration{"b": durationpb.New(1)}},
			"timeout of a of":             {Nodes: []string{"a"}, Timeouts: map[string]*durationpb.Duration{"a": durationpb.New(1 << 62)}},
			"no node is named":            {},
			"node \"\\x1b\": must be pri": {Nodes: []string{"\x1b"}},
		} {
			_, err := v.operator().Decommission(v.Context(), r)
			v.refused(err, codes.InvalidArgument, words)
		}
		v.is("a", registry.Active)
	})
}

// All nodes of one call are out of all lists of peers before any of them hears that it leaves.
func TestNodesThatLeaveTogetherAreNobodysTarget(t *testing.T) {
	inTown(t, func(v *town) {
		var all []*agent
		for _, name := range []string{"a", "b", "c", "d"} {
			all = append(all, v.agent(name))
			all[len(all)-1].register()
		}
		for _, a := range all {
			a.beat()
		}
		time.Sleep(rosterPace)
		v.order(time.Hour, "a", "b", "c")
		time.Sleep(rosterPace)
		for _, a := range all[:3] {
			reply := a.beat()
			if len(reply.Peers) != 1 || reply.Peers[0].Node != "d" || reply.Directive == nil {
				v.Errorf("node %s: got peers %v with directive %v, want d alone", a.name, reply.Peers, reply.Directive)
			}
		}
	})
}

func TestTimeoutsOfSingleNodes(t *testing.T) {
	inTown(t, func(v *town) {
		v.cfg.DecommissionTimeout = 20 * time.Minute
		v.restart()
		for _, name := range []string{"a", "b", "c", "d"} {
			v.agent(name).register()
		}
		r := &api.DecommissionRequest{Nodes: []string{"a", "b", "c", "d"}, Timeouts: map[string]*durationpb.Duration{
			"b": durationpb.New(time.Minute), "c": durationpb.New(-7 * time.Second), "d": durationpb.New(0)}}
		reply, err := v.operator().Decommission(v.Context(), r)
		if err != nil {
			v.Fatal(err)
		}
		var got []string
		for _, n := range reply.Nodes {
			left := "-"
			if n.Remaining != nil {
				left = n.Remaining.AsDuration().String()
			}
			got = append(got, n.Name+" "+n.State+" "+left)
		}
		want := "a DECOMMISSIONING 20m0s; b DECOMMISSIONING 1m0s; c DECOMMISSIONING -; d DECOMMISSIONED -"
		if got := strings.Join(got, "; "); got != want {
			v.Errorf("got  %s\nwant %s", got, want)
		}
	})
}
