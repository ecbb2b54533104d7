package coordinator

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// news returns the events since the last call, with their reasons.
func (v *town) news(after *api.Place) string {
	v.Helper()
	stream, err := v.operator().Events(v.Context(), &api.EventsRequest{AfterTerm: after.Term, After: after.Index, AfterSoft: after.Soft})
	if err != nil {
		v.Fatal(err)
	}
	var told []string
	for e, err := stream.Recv(); err == nil; e, err = stream.Recv() {
		*after = api.PlaceOf(e)
		words := e.Type + " " + e.Node
		if e.Type == evUnschedulable {
			words += " " + e.Data["reason"]
		}
		told = append(told, strings.TrimSpace(words))
	}
	return strings.Join(told, "; ")
}

func (a *agent) under(stance string) {
	a.status.Notice = nil
	if stance != "" {
		a.status.Notice = &api.Notice{Incident: "inc-" + stance, Kind: "rebalance", Source: "ec2", Stance: stance}
	}
}

func (v *town) scheduled(second time.Duration, names ...string) {
	v.Helper()
	r := &api.ScheduleMaintenanceRequest{}
	for _, n := range names {
		w := &api.MaintenanceWindow{Machines: []*api.Machine{{Hostname: n}}, StartNanoseconds: time.Now().Add(second * time.Second).UnixNano()}
		r.Windows = append(r.Windows, w)
	}
	if _, err := v.operator().ScheduleMaintenance(v.Context(), r); err != nil {
		v.Fatal(err)
	}
}

// A follower of the events, which asks for a node when an event says that it is schedulable, knows of each node at any time whether it is.
func TestWorkIsTakenAndGivenBack(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		a.beat()
		b.beat()
		var place api.Place
		v.news(&place)
		told := func(what, want string, schedulable bool) {
			v.Helper()
			b.beat()
			if got := v.news(&place); got != want {
				v.Errorf("%s: told %q, want %q", what, got, want)
			}
			if got := v.seen("a").Schedulable; got != schedulable {
				v.Errorf("%s: schedulable is %t", what, got)
			}
		}
		plain := func(undo bool) {
			v.Helper()
			if _, err := v.operator().Deactivate(v.Context(), &api.DeactivateRequest{Nodes: []string{"a"}, Undo: undo}); err != nil {
				v.Fatal(err)
			}
		}

		a.under("watch")
		a.live(2)
		told("advice", "NodeUnschedulable a notice", false)
		a.under("pre-copy")
		a.live(2)
		told("more of it", "", false)
		v.scheduled(36000, "a", "b")
		told("an appointment as well", "MaintenanceScheduled; NodeUnschedulable b maintenance", false)
		a.under("")
		a.live(2)
		told("the advice came to nothing", "", false)
		v.scheduled(0)
		told("the appointment as well", "MaintenanceScheduled; NodeSchedulable a; NodeSchedulable b", true)

		a.under("ignore")
		a.live(2)
		told("what is no matter", "", true)
		a.under("watch")
		a.live(1)
		a.under("drain")
		a.live(2)
		told("advice, and then the notice", "NodeUnschedulable a notice; WorkerDecommission a", false)
		a.under("")
		a.live(3)
		told("taken back", "NodeRecommissioned a", true)

		plain(false)
		a.under("watch")
		a.live(1)
		told("deactivated, and advice", "NodeDeactivated a", false)
		plain(true)
		told("reactivated under advice", "NodeReactivated a", false)
		a.under("")
		a.live(1)
		told("and the advice is over", "NodeSchedulable a", true)

		v.scheduled(36000, "a")
		if _, err := v.operator().ChangeMachines(v.Context(), &api.ChangeMachinesRequest{Machines: []*api.Machine{{Hostname: "a"}}}); err != nil {
			v.Fatal(err)
		}
		told("down", "MaintenanceScheduled; NodeUnschedulable a maintenance; MachineDown; NodeDecommissioning a", false)
		if _, err := v.operator().ChangeMachines(v.Context(), &api.ChangeMachinesRequest{Machines: []*api.Machine{{Hostname: "a"}}, Up: true}); err != nil {
			v.Fatal(err)
		}
		told("up", "MachineUp; NodeRecommissioned a", true)
	})
}

// Maintenance in the host files ends by the clock, without a decision in the log.
func TestWorkIsGivenBackWhenMaintenanceEnds(t *testing.T) {
	inGuardedTown(t, func(v *town, in, out string) {
		b := v.agent("b")
		b.beat()
		var place api.Place
		v.news(&place)
		put(v.T, out, `[{"hostName": "b", "adminState": "IN_MAINTENANCE", "maintenanceExpireTimeInMS": `+strconv.FormatInt(time.Now().Add(10*time.Second).UnixMilli(), 10)+`}]`)
		v.refresh(60)
		if got := v.news(&place); got != "HostsRefreshed; NodeUnschedulable b maintenance" || v.seen("b").Schedulable {
			v.Errorf("told %q", got)
		}
		b.live(12)
		if got := v.news(&place); got != "NodeSchedulable b" || !v.seen("b").Schedulable {
			v.Errorf("at its end: told %q", got)
		}
	})
}

// A new leader tells no events about the nodes' state, except for nodes under notice: it shows each as schedulable until it has heard its
// heartbeat.
func TestNewLeaderTellsOfNoticesOnly(t *testing.T) {
	inTown(t, func(v *town) {
		a, b, c := v.agent("a"), v.agent("b"), v.agent("c")
		for _, n := range []*agent{a, b, c} {
			n.beat()
		}
		a.under("watch")
		a.beat()
		v.scheduled(36000, "b")
		var place api.Place
		v.news(&place)
		v.restart()
		for range 3 {
			for _, n := range []*agent{a, b, c} {
				n.live(1)
			}
		}
		if got := v.news(&place); got != "NodeUnschedulable a notice" {
			v.Errorf("told %q", got)
		}
		a.under("")
		a.live(1)
		v.scheduled(0)
		if got := v.news(&place); got != "NodeSchedulable a; MaintenanceScheduled; NodeSchedulable b" {
			v.Errorf("told %q", got)
		}
	})
}

// The events of a change of a whole fleet push the oldest among them out of the hub: a follower that has not read that far is told to list
// the nodes again. What a new leader hears first leaves room in the hub for other events.
func TestWorkOfAWholeFleet(t *testing.T) {
	inTown(t, func(v *town) {
		v.stop()
		f := opened(v.T, v.cfg)
		w := registry.Outage{Start: time.Now().Add(10 * time.Hour).UnixNano()}
		var all []registry.Node
		for i := range 10_000 {
			n := registry.Node{Name: fmt.Sprintf("n%05d", i), State: registry.Active}
			f.ledger.fsm.machine.Nodes[n.Name] = n
			w.Machines, all = append(w.Machines, registry.Scheduled{Hostname: n.Name}), append(all, n)
		}
		if err := f.takeOver(v.Context(), 0); err != nil {
			v.Fatal(err)
		}
		under := func(stance string) (told int) {
			was := f.ledger.fsm.hub.soft
			for _, n := range all {
				f.bars.heedNotice(n, &api.Status{Notice: &api.Notice{Stance: stance}})
			}
			return int(f.ledger.fsm.hub.soft - was)
		}
		if got := under("watch"); got != mostFirst {
			v.Errorf("%d nodes are told of as they are heard first, want %d", got, mostFirst)
		}
		if got := under("ignore"); got != len(all) {
			v.Errorf("%d nodes are told of as they may have work again, want all", got)
		}
		read := reader{replica: f.ledger.fsm}
		read.more()
		read.at, read.number = f.ledger.fsm.hub.events[len(f.ledger.fsm.hub.events)-1].Place(), 0
		if _, err := f.do(registry.Command{Do: registry.DoSchedule, Windows: []registry.Outage{w}}); err != nil {
			v.Fatal(err)
		}
		if h := f.ledger.fsm.hub; len(h.events) != hubKept || h.soft != uint64(len(all)) {
			v.Errorf("got %d events in the hub, the last number %d", len(h.events), h.soft)
		}
		if events, _ := read.more(); len(events) == 0 || events[0].Type != evGap {
			v.Errorf("who has not read all of it is told %v", events)
		}
	})
}

// When an appointment is over its node is schedulable again, and followers are told so as it ends; the same holds for the next appointment,
// and for another machine that comes under the name meanwhile.
func TestWorkIsGivenBackWhenAnAppointmentIsOver(t *testing.T) {
	inTown(t, func(v *town) {
		a := v.agent("a")
		a.beat()
		var place api.Place
		v.news(&place)
		told := func(what, want string, schedulable bool) {
			v.Helper()
			if got := v.news(&place); got != want {
				v.Errorf("%s: got %q, want %q", what, got, want)
			}
			if n := v.seen("a"); n.Schedulable != schedulable {
				v.Errorf("%s: schedulable is %t, want %t", what, n.Schedulable, schedulable)
			}
		}
		appoint := func() {
			v.Helper()
			w := &api.MaintenanceWindow{Machines: []*api.Machine{{Hostname: "a"}}, StartNanoseconds: time.Now().Add(time.Minute).UnixNano(), DurationNanoseconds: new(int64(time.Minute))}
			if _, err := v.operator().ScheduleMaintenance(v.Context(), &api.ScheduleMaintenanceRequest{Windows: []*api.MaintenanceWindow{w}, Add: true}); err != nil {
				v.Fatal(err)
			}
		}
		v.cfg.MaintenanceLead = 0 // it does not leave by itself
		v.restart()
		a.beat()
		v.news(&place)
		for range 2 {
			appoint()
			told("with an appointment", "MaintenanceScheduled; NodeUnschedulable a maintenance", false)
			a.live(119)
			told("at its end", "", false)
			a.live(2)
			told("once it is over", "NodeSchedulable a", true)
		}
		a.incarnation = "another machine"
		a.beat()
		told("another machine", "NodeReplaced a; NodeRegistered a", true)
		appoint()
		told("with its first", "MaintenanceScheduled; NodeUnschedulable a maintenance", false)
	})
}
