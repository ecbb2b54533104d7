package coordinator

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
)

// schedule is the command that sets machines down for an hour from some second of the story's on.
func (s *story) schedule(second float64, names ...string) error {
	hour := time.Hour
	w := outage{Start: t0.Add(time.Duration(second * float64(time.Second))).UnixNano(), Duration: &hour}
	for _, n := range names {
		w.Machines = append(w.Machines, scheduled{Hostname: n})
	}
	c := command{Do: doSchedule, After: 10 * time.Minute}
	if len(names) > 0 {
		c.Windows = []outage{w}
	}
	return s.do(c)
}

func (s *story) machines(do verb, names ...string) error {
	c := command{Do: do, Order: &order{Timeout: time.Hour}, Unsaid: true}
	for _, n := range names {
		c.Machines = append(c.Machines, scheduled{Hostname: n})
	}
	return s.do(c)
}

func (s *story) modes(want string) {
	s.t.Helper()
	var got []string
	for m := range s.Schedule.all() {
		got = append(got, m.String()+" "+appointment{&m, nil}.mode())
	}
	if strings.Join(got, ", ") != want {
		s.t.Errorf("machines are %q, want %q", got, want)
	}
}

func TestMaintenanceStories(t *testing.T) {
	refused := func(s *story, err, want error) {
		s.t.Helper()
		if !errors.Is(err, want) {
			s.t.Errorf("got %v, want %v", err, want)
		}
	}
	for name, tell := range map[string]func(*story){
		// As in Mesos's UpdateSchedule, BringDownMachines, BringUpMachines and FailToUnscheduleDeactivatedMachines.
		"modes": func(s *story) {
			refused(s, s.machines(doMachinesDown, "a"), errNotScheduled)
			refused(s, s.schedule(0, "a", "b", "A."), errSchedule)
			refused(s, s.schedule(0, "a", "b"), nil)
			s.modes("a DRAINING, b DRAINING")
			refused(s, s.machines(doMachinesUp, "a"), errNotDown)
			refused(s, s.machines(doMachinesDown, "a", "c"), errNotScheduled)
			s.modes("a DRAINING, b DRAINING")
			refused(s, s.machines(doMachinesDown, "A"), nil) // hosts' names know no capitals
			refused(s, s.machines(doMachinesDown, "a"), errNotDraining)
			refused(s, s.schedule(60), errSchedule) // a is down
			refused(s, s.schedule(60, "a", "c"), nil)
			s.modes("a DOWN, c DRAINING")
			refused(s, s.machines(doMachinesUp, "a", "c"), errNotDown)
			refused(s, s.machines(doMachinesUp, "a"), nil)
			s.modes("c DRAINING")
			s.tells("MaintenanceScheduled MachineDown MaintenanceScheduled MachineUp")
			refused(s, s.schedule(60, "c"), nil) // the same again is no news
			s.tells("")
			refused(s, s.schedule(0), nil)
			s.modes("")
		},
		"windows are added": func(s *story) {
			refused(s, s.schedule(0, "a"), nil)
			more := command{Do: doSchedule, Add: true, Windows: []outage{{Start: 5, Machines: []scheduled{{Hostname: "b"}}}}}
			refused(s, s.do(more), nil)
			refused(s, s.do(more), errSchedule)
			s.modes("a DRAINING, b DRAINING")
			refused(s, s.machines(doMachinesDown, "b"), nil)
			refused(s, s.machines(doMachinesUp, "b"), nil) // its window goes with it
			if len(s.Schedule.Windows) != 1 {
				s.t.Errorf("got %d windows, want 1", len(s.Schedule.Windows))
			}
		},
		"down and up": func(s *story) {
			s.register("a", "i1")
			refused(s, s.schedule(3600, "a"), nil)
			s.is("a", Active, 0)
			refused(s, s.at(10).machines(doMachinesDown, "a"), nil)
			s.is("a", Decommissioning, 3610)
			if err := s.do(command{Do: doRecommission, Nodes: []string{"a"}}); !errors.Is(err, errDown) {
				s.t.Errorf("recommissioned: got %v", err)
			}
			s.goodbye("a", "inc1", 0)
			s.is("a", Decommissioned, 0)
			err := s.do(command{Do: doRegister, Nodes: []string{"a"}, Facts: &facts{Incarnation: "i1", PeerAddress: "a:7412"}})
			refused(s, err, errDown) // it was booted, and nobody said that it may be back
			refused(s, s.machines(doMachinesUp, "a"), nil)
			s.is("a", Decommissioned, 0)
			s.register("a", "i1")
			s.is("a", Active, 0)
			s.tells("NodeRegistered MaintenanceScheduled MachineDown NodeDecommissioning NodeDecommissioned MachineUp NodeRecommissioned NodeReturned")
		},
		"up again before it had left": func(s *story) {
			s.register("a", "i1")
			refused(s, s.schedule(0, "a"), nil)
			refused(s, s.machines(doMachinesDown, "a"), nil)
			refused(s, s.machines(doMachinesUp, "a"), nil)
			s.is("a", Active, 0)
		},
		"an operator's order is the operator's": func(s *story) {
			s.register("a", "i1")
			s.order(time.Minute, "a")
			refused(s, s.schedule(0, "a"), nil)
			refused(s, s.machines(doMachinesDown, "a"), nil)
			s.is("a", Decommissioning, 60) // and its time as well
			refused(s, s.machines(doMachinesUp, "a"), nil)
			s.is("a", Decommissioning, 60)
		},
		"an operator's word on one that leaves already makes the order the operator's": func(s *story) {
			begins := func(names ...string) {
				refused(s, s.schedule(300, names...), nil)
				s.must(command{Do: doDecommission, Nodes: names, Order: &order{Timeout: 5 * time.Minute, By: byMaintenance}})
			}
			all := []string{"again", "ended", "for good", "gone", "own", "same"}
			for _, n := range append(all, "host") {
				s.register(n, "i-"+n)
			}
			begins(all...)
			s.refresh(lists(nil, "host", "again"), true, time.Hour)
			s.told = nil
			s.order(time.Hour, "for good", "host")
			s.order(5*time.Minute, "same")
			s.drain("gone", 5*time.Minute, true)
			s.must(command{Do: doDecommission, Nodes: []string{"own"}, Order: &order{Timeout: time.Minute}, Unsaid: true, Timeouts: map[string]time.Duration{"own": 10 * time.Minute}})
			s.tells("DecommissionChanged DecommissionChanged DecommissionChanged NodeDeactivated DecommissionChanged DecommissionChanged")
			s.must(command{Do: doDecommission, Nodes: []string{"again"}, Order: &order{Timeout: time.Hour}, Unsaid: true})       // who only looks again
			s.must(command{Do: doDecommission, Nodes: []string{"again", "ended"}, Order: &order{Timeout: 0}, LeavingOnly: true}) // refresh-nodes --client, at its hour
			s.tells("DecommissionChanged NodeDecommissioned DecommissionChanged NodeDecommissioned")
			refused(s, s.schedule(0), nil)
			s.refresh(lists(nil), true, time.Hour)
			for n, at := range map[string]float64{"for good": 3600, "host": 3600, "same": 300, "gone": 300, "own": 600} {
				s.is(n, Decommissioning, at)
			}
			for _, n := range []string{"again", "ended"} {
				s.register(n, "i-"+n)
				s.is(n, Active, 0)
			}
			s.plain(doRecommission, "for good")
			s.is("for good", Active, 0)
		},
		"an operator's word on one that is away for maintenance": func(s *story) {
			s.register("a", "i1")
			s.plain(doLose, "a")
			refused(s, s.schedule(0, "a"), nil)
			refused(s, s.machines(doMachinesDown, "a"), nil)
			s.order(time.Hour, "a")
			refused(s, s.machines(doMachinesUp, "a"), nil)
			s.at(9).register("a", "i1")
			s.is("a", Decommissioning, 3609)
		},
		"a machine that is away, and one that comes new": func(s *story) {
			s.register("a", "i1")
			s.plain(doLose, "a")
			refused(s, s.schedule(0, "a", "new"), nil)
			refused(s, s.machines(doMachinesDown, "a", "new"), nil)
			err := s.do(command{Do: doRegister, Nodes: []string{"new"}, Facts: &facts{Incarnation: "i1", PeerAddress: "new:7412"}})
			refused(s, err, errDown)
			s.at(9).register("a", "i1") // it has what it had, and an hour to carry it
			s.is("a", Decommissioning, 3609)
		},
		"who is reactivated while its machine is DOWN leaves on": func(s *story) {
			for _, n := range []string{"a", "away", "late"} {
				s.register(n, "i-"+n)
			}
			s.plain(doLose, "away")
			for _, n := range []string{"a", "away", "late"} {
				s.drain(n, time.Hour, n == "a")
			}
			refused(s, s.schedule(0, "a", "away", "late"), nil)
			refused(s, s.machines(doMachinesDown, "a", "away", "late"), nil)
			s.must(command{Do: doDecommission, Nodes: []string{"late"}, Order: &order{}, LeavingOnly: true}) // it carries on, as it can
			s.told = nil
			s.plain(doReactivate, "a", "away", "late")
			s.tells("NodeReactivated DecommissionChanged NodeReactivated DecommissionChanged NodeReactivated DecommissionChanged")
			s.is("a", Decommissioning, 3600)
			s.is("late", Decommissioned, 0)
			if directive(s.Nodes["late"], s.now) == nil {
				s.t.Error("a node whose machine is DOWN is told to break off what it carries")
			}
			s.at(9).register("away", "i-away") // with what it has
			s.is("away", Decommissioning, 3609)
			s.goodbye("a", "inc1", 0)
			refused(s, s.machines(doMachinesUp, "a", "away", "late"), nil)
			s.is("away", Active, 0)
			for _, n := range []string{"a", "late"} { // a was to be GONE, and that was taken back
				s.register(n, "i-"+n)
				s.is(n, Active, 0)
			}
		},
		"up again while the host files exclude it": func(s *story) {
			s.register("a", "i1")
			refused(s, s.schedule(0, "a"), nil)
			refused(s, s.machines(doMachinesDown, "a"), nil)
			s.refresh(lists(nil, "a"), true, time.Hour)
			refused(s, s.machines(doMachinesUp, "a"), nil)
			s.is("a", Decommissioning, 3600)
			s.refresh(lists(nil), true, time.Hour)
			s.is("a", Active, 0)
			s.tells("NodeRegistered MaintenanceScheduled MachineDown NodeDecommissioning HostsRefreshed MachineUp DecommissionChanged HostsRefreshed NodeRecommissioned")
		},
		"taken out of the host files while its machine is DOWN": func(s *story) {
			s.register("a", "i1")
			s.refresh(lists(nil, "a"), true, time.Hour)
			refused(s, s.schedule(0, "a"), nil)
			refused(s, s.machines(doMachinesDown, "a"), nil)
			s.refresh(lists(nil), true, time.Hour)
			s.is("a", Decommissioning, 3600)
			if d := s.Nodes["a"].Decommission; d.Order.Reason != errDown.Error() {
				s.t.Errorf("it leaves because %q", d.Order.Reason)
			}
			refused(s, s.machines(doMachinesUp, "a"), nil)
			s.is("a", Active, 0)
		},
		"others go down and up": func(s *story) {
			for _, n := range []string{"a", "b"} {
				s.register(n, "i-"+n)
			}
			refused(s, s.schedule(300, "a", "b"), nil)
			s.must(command{Do: doDecommission, Nodes: []string{"a", "b"}, Order: &order{Timeout: 5 * time.Minute, By: byMaintenance}})
			refused(s, s.machines(doMachinesDown, "a"), nil)
			s.is("a", Decommissioning, 300)
			s.is("b", Decommissioning, 300)
			refused(s, s.machines(doMachinesUp, "a"), nil)
			s.is("a", Active, 0)
			s.is("b", Decommissioning, 300)
		},
		"up again, and scheduled once more under another spelling": func(s *story) {
			hour := time.Hour
			s.register("a", "i1", func(c *command) { c.Facts.PeerAddress = "10.0.0.1:7412" })
			next := func(second time.Duration) {
				now := outage{Start: t0.UnixNano(), Duration: &hour, Machines: []scheduled{{Hostname: "a"}}}
				later := outage{Start: t0.Add(second * time.Second).UnixNano(), Duration: &hour, Machines: []scheduled{{Hostname: "a", IP: "10.0.0.1"}}}
				s.must(command{Do: doSchedule, After: 10 * time.Minute, Windows: []outage{later, now}})
				refused(s, s.machines(doMachinesDown, "a"), nil)
				s.must(command{Do: doMachinesUp, After: 10 * time.Minute, Machines: []scheduled{{Hostname: "a"}}})
			}
			next(36000)
			s.is("a", Active, 0)
			next(540) // so soon that it need not come back
			s.is("a", Decommissioning, 3600)
		},
		"an appointment that is put off": func(s *story) {
			s.register("a", "i1")
			refused(s, s.schedule(300, "a"), nil)
			s.must(command{Do: doDecommission, Nodes: []string{"a"}, Order: &order{Timeout: 5 * time.Minute, By: byMaintenance}})
			refused(s, s.schedule(500, "a"), nil) // as near
			s.is("a", Decommissioning, 300)
			refused(s, s.schedule(5000, "a"), nil)
			s.is("a", Active, 0)
			refused(s, s.schedule(400, "a"), nil) // and near again
			near, lead := s.Schedule.of("a", "a:7412", s.now), 10*time.Minute
			if s.Nodes["a"].kept(near, lead) {
				s.t.Error("what the schedule took back passes for an operator's word")
			}
			s.must(command{Do: doDecommission, Nodes: []string{"a"}, Order: &order{Timeout: 5 * time.Minute, By: byMaintenance}})
			s.plain(doRecommission, "a")
			if !s.Nodes["a"].kept(near, lead) {
				s.t.Error("it would leave again after an operator kept it")
			}
			s.must(command{Do: doDecommission, Nodes: []string{"a"}, Order: &order{Timeout: 5 * time.Minute, By: byMaintenance}})
			refused(s, s.schedule(0), nil)
			s.is("a", Active, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			tell(s)
			if err := checkMachine(s.machine); err != nil {
				t.Error(err)
			}
			again, err := thaw([]byte(written(t, s.freeze())))
			if err != nil || !again.Schedule.equal(s.Schedule) {
				t.Errorf("read back: %v (%v)", again.Schedule, err)
			}
		})
	}
}

// Which node a machine of the schedule is.
func TestScheduledMachineIsANode(t *testing.T) {
	for _, c := range []struct {
		hostname, ip  string
		name, address string
		want          bool
	}{
		{"host-a", "", "host-a", "10.0.0.1:7412", true},
		{"HOST-A.", "", "host-a", "10.0.0.1:7412", true},
		{"host-a.example.org", "", "a", "host-a.example.org:7412", true},
		{"host-b", "", "host-a", "10.0.0.1:7412", false},
		{"", "10.0.0.1", "host-a", "10.0.0.1:7412", true},
		{"", "fd00::1", "host-a", "[fd00:0::1]:7412", true},
		{"", "10.0.0.2", "host-a", "10.0.0.1:7412", false},
		{"host-a", "10.0.0.1", "host-a", "10.0.0.1:7412", true},
		{"host-a", "10.0.0.2", "host-a", "10.0.0.1:7412", false},
		{"host-b", "10.0.0.1", "host-a", "10.0.0.1:7412", false},
		{"host-a", "10.0.0.1", "host-a", "host-a:7412", true}, // who is dialled by a name tells no address
		{"", "10.0.0.1", "host-a", "host-a:7412", false},
	} {
		s := &schedule{Windows: []outage{{Machines: []scheduled{{Hostname: "z"}, {Hostname: c.hostname, IP: c.ip}}}}}
		if got := s.of(c.name, c.address, t0).mode() == modeDraining; got != c.want {
			t.Errorf("%q %q is %s at %s: got %t", c.hostname, c.ip, c.name, c.address, got)
		}
	}
}

// Of several appointments the one counts that is DOWN, then the next that is not over.
func TestAppointmentThatCounts(t *testing.T) {
	at := func(hour time.Duration, name, ip string) outage {
		return outage{Start: t0.Add(hour * time.Hour).UnixNano(), Duration: new(time.Hour), Machines: []scheduled{{Hostname: name, IP: ip}}}
	}
	s := &schedule{Windows: []outage{at(9, "a", ""), at(-3, "a", "10.0.0.1"), at(2, "", "10.0.0.1"), at(-5, "", "10.0.0.1")}}
	for hour, want := range map[time.Duration]int64{0: 2, 4: 9, 11: -5} {
		if got := s.of("a", "10.0.0.1:7412", t0.Add(hour*time.Hour)); got.of.Start != t0.Add(time.Duration(want)*time.Hour).UnixNano() {
			t.Errorf("after %d hours: got the one of %s, want that of %d hours", hour, got.of.start(), want)
		}
	}
	s.Windows[1].Machines[0].Down = true
	if got := s.of("a", "10.0.0.1:7412", t0); got.mode() != modeDown {
		t.Errorf("got %s", got.mode())
	}
}

// Where one window ends in the moment in which another comes near, nothing is sent to the other's machine all the same.
func TestAppointmentsThatTakeTurns(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		a.beat()
		b.beat()
		at := time.Now().Add(2 * time.Hour).Truncate(time.Hour)
		near := at.Add(50 * time.Minute) // 70 minutes before b's
		w := []*api.MaintenanceWindow{
			{Machines: []*api.Machine{{Hostname: "z"}}, StartNanoseconds: at.UnixNano(), DurationNanoseconds: new(int64(50 * time.Minute))},
			{Machines: []*api.Machine{{Hostname: "b"}}, StartNanoseconds: at.Add(2 * time.Hour).UnixNano()},
		}
		if _, err := v.operator().ScheduleMaintenance(v.Context(), &api.ScheduleMaintenanceRequest{Windows: w}); err != nil {
			v.Fatal(err)
		}
		for time.Now().Before(near.Add(time.Minute)) {
			time.Sleep(10 * time.Second)
			a.beat()
			b.beat()
		}
		a.version = 0
		if got := a.live(1).Peers; len(got) != 0 {
			v.Errorf("69 minutes before b's machine is worked on, blocks are sent to %v", got)
		}
	})
}

// Who gives a node that the host files ordered away a time of its own takes it from them; who only looks again does not.
func TestOperatorTakesANodeFromTheHostFiles(t *testing.T) {
	inTown(t, func(v *town) {
		v.cfg.Hosts.Exclude = filepath.Join(t.TempDir(), "exclude")
		exclude := func(names string) {
			if err := os.WriteFile(v.cfg.Hosts.Exclude, []byte("# nobody\n"+names), 0o600); err != nil {
				v.Fatal(err)
			}
			if _, err := v.operator().RefreshNodes(v.Context(), &api.RefreshNodesRequest{Graceful: true}); err != nil {
				v.Fatal(err)
			}
		}
		if err := os.WriteFile(v.cfg.Hosts.Exclude, []byte("# nobody\n"), 0o600); err != nil {
			v.Fatal(err)
		}
		v.restart()
		a, b := v.agent("a"), v.agent("b")
		a.beat()
		b.beat()
		exclude("a b")
		v.order(time.Hour, "a")
		if _, err := v.operator().Decommission(v.Context(), &api.DecommissionRequest{Nodes: []string{"b"}}); err != nil { // looks again
			v.Fatal(err)
		}
		exclude("")
		v.is("a", Decommissioning)
		v.is("b", Active)
	})
}

// A node that was given no time, or too little, may have carried all that it had all the same: its account says so, when it comes.
func TestAllIsSavedOnceTheAccountSaysSo(t *testing.T) {
	s := newStory(t)
	says := func(want string) {
		t.Helper()
		if got := answer(s.Nodes["a"]); got != want {
			t.Errorf("second %s: got %s, want %s", s.now.Sub(t0), got, want)
		}
	}
	s.register("a", "i1")
	says("UNKNOWN")
	s.at(1).order(0, "a")
	s.ended("a", forced)
	says("DECLINE")
	s.at(2).goodbye("a", "inc1", 1)
	says("DECLINE")
	s.at(3).goodbye("a", "inc1", 0)
	says("ACCEPT")
	s.at(4).plain(doRecommission, "a")
	says("UNKNOWN")
	s.at(5).plain(doLose, "a")
	s.order(time.Hour, "a")
	s.order(0, "a")
	says("DECLINE") // the account is of another time
	s.at(6).register("b", "i2")
	s.order(time.Minute, "b")
	s.at(66).plain(doTimeout, "b")
	s.at(67).goodbye("b", "inc2", 0)
	if got := answer(s.Nodes["b"]); got != "ACCEPT" {
		t.Errorf("with its time up: got %s", got)
	}
}

// mesos posts what an operator's script would, and returns the answer.
func (v *town) mesos(path, body string, as *certs.Name) (int, string) {
	v.Helper()
	return v.send(http.MethodPost, path, as, http.Header{"Content-Type": {"application/json"}}, strings.NewReader(body))
}

// The example of Mesos's documentation, and what its master refuses, word for word as its suite has it.
func TestMaintenancePages(t *testing.T) {
	const (
		one   = `{"machine_ids": [{"hostname": "machine1", "ip": "10.0.0.1"}, {"hostname": "machine2", "ip": "10.0.0.2"}], "unavailability": {"start": {"nanoseconds": 1443830400000000000}, "duration": {"nanoseconds": 3600000000000}}}`
		two   = `{"machine_ids": [{"hostname": "machine3", "ip": "10.0.0.3"}], "unavailability": {"start": {"nanoseconds": "1443834000000000000"}}}`
		plan  = `{"windows": [` + one + `, ` + two + `]}`
		first = `[{"hostname": "machine1", "ip": "10.0.0.1"}]`
	)
	eve := &certs.Name{Role: certs.RoleOperator, Name: "eve"}
	inTown(t, func(v *town) {
		for i, c := range []struct {
			path, body string
			as         *certs.Name
			want       int
			words      string
		}{
			{"/maintenance/schedule", plan, nil, 401, "certificate"},
			{"/maintenance/schedule", plan, &certs.Name{Role: certs.RoleNode, Name: "a"}, 403, "operator's certificate"},
			{"/machine/down", first, eve, 400, "machine machine1 (10.0.0.1): it is not in the maintenance schedule"},
			{"/maintenance/schedule", `{"windows": [{"machine_ids": [], "unavailability": {"start": {"nanoseconds": 0}}}]}`, eve, 400, "windows[0]: has no machines"},
			{"/maintenance/schedule", `{"windows": [` + two + `, ` + two + `]}`, eve, 400, "windows[1].machine_ids[0]: machine machine3 (10.0.0.3) is named twice"},
			{"/maintenance/schedule", strings.Replace(plan, "3600000000000", "-1", 1), eve, 400, "windows[0].unavailability.duration: -1 ns is negative"},
			{"/maintenance/schedule", strings.Replace(plan, `, "unavailability": {"start": {"nanoseconds": "1443834000000000000"}}`, "", 1), eve, 400, "windows[1].unavailability.start.nanoseconds: is missing"},
			{"/maintenance/schedule", strings.Replace(plan, "10.0.0.3", "10.0.0", 1), eve, 400, `windows[1].machine_ids[0].ip: \"10.0.0\" is no IP address`},
			{"/maintenance/schedule", `{"windows": [{"machine_ids": [{}], "unavailability": {"start": {"nanoseconds": 0}}}]}`, eve, 400, "has neither hostname nor ip"},
			{"/maintenance/schedule", `{"windws": []}`, eve, 400, `unknown field \"windws\"`},
			{"/maintenance/schedule", "{\n\"windows\": 5}", eve, 400, "line 2, column 13"},
			{"/maintenance/schedule", "{\n\"windows\": ]", eve, 400, "line 2, column 13"},
			{"/maintenance/schedule", plan + "x", eve, 400, "something follows"},
			{"/maintenance/schedule", strings.Replace(plan, "1443830400000000000", "-5", 1), eve, 200, ""}, // any past is as good
			{"/maintenance/schedule", plan, eve, 200, ""},
			{"/machine/down", `[]`, eve, 400, "no machine is named"},
			{"/machine/down", `[{"hostname": "machine1", "ip": "10.0.0.1"}, {"hostname": "MACHINE1", "ip": "10.0.0.1"}]`, eve, 400, "named twice"},
			{"/machine/down", `[{"hostname": "machine1", "ip": "10.0.0.1"}, {"hostname": "machine9"}]`, eve, 400, "machine machine9: it is not in"},
			{"/machine/up", first, eve, 400, "it is not DOWN"},
			{"/machine/down", first, &certs.Name{Role: certs.RoleApp, Name: "spark"}, 403, "operator's certificate"},
			{"/machine/down", first, eve, 200, ""},
			{"/machine/down", first, eve, 400, "it is DOWN already"},
			{"/maintenance/schedule", `{"windows": []}`, eve, 400, "machine machine1 (10.0.0.1) is DOWN and not in it"},
		} {
			if code, body := v.mesos(c.path, c.body, c.as); code != c.want || !strings.Contains(body, c.words) || code == 200 && body != "" {
				v.Errorf("%d: %s: got %d %s, want %d with %q", i, c.path, code, body, c.want, c.words)
			}
		}
		var asked []string
		for _, r := range v.audit(0, "") {
			asked = append(asked, r.Asked+" "+r.Who+" "+strings.SplitN(r.Outcome, ":", 2)[0])
		}
		if want := []string{
			"maintenance down operator:eve refused", "maintenance schedule operator:eve done", "maintenance schedule operator:eve done", "maintenance down operator:eve refused",
			"maintenance up operator:eve refused", "maintenance down operator:eve done", "maintenance down operator:eve refused", "maintenance schedule operator:eve refused",
		}; !slices.Equal(asked, want) {
			v.Errorf("the audit has %q", asked)
		}
		v.restart()
		node := &certs.Name{Role: certs.RoleNode, Name: "a"}
		const status = `{"draining_machines":[{"id":{"hostname":"machine2","ip":"10.0.0.2"},"statuses":[]},{"id":{"hostname":"machine3","ip":"10.0.0.3"},"statuses":[]}],` +
			`"down_machines":[{"hostname":"machine1","ip":"10.0.0.1"}]}`
		if code, body := v.get("/maintenance/status", node); code != 200 || strings.TrimSpace(body) != status {
			v.Errorf("status: got %d %s", code, body)
		}
		_, body := v.get("/maintenance/schedule", node)
		var got, want any
		if json.Unmarshal([]byte(body), &got) != nil || json.Unmarshal([]byte(strings.Replace(plan, `"1443834000000000000"`, `1443834000000000000`, 1)), &want) != nil || written(t, got) != written(t, want) {
			v.Errorf("schedule: got %s", body)
		}
		if code, body := v.mesos("/machine/up", first, eve); code != 200 {
			v.Errorf("up: got %d %s", code, body)
		}
		if _, body := v.get("/maintenance/schedule", node); strings.Count(body, "machine_ids") != 2 || strings.Contains(body, "machine1") {
			v.Errorf("after up: got %s", body)
		}
	})
}

// Ten minutes before its machine's appointment a node leaves by itself, with the time until then; for an hour before that nothing
// is sent to it. A node that an operator recommissioned is left alone, and one that comes back goes again.
func TestNodeLeavesInTimeForItsAppointment(t *testing.T) {
	inTown(t, func(v *town) {
		a, b := v.agent("a"), v.agent("b")
		peers := func() bool {
			b.version = 0
			return slices.ContainsFunc(b.live(1).Peers, func(p *api.Peer) bool { return p.Node == "a" })
		}
		alive := func(d time.Duration) {
			for range int(d / (10 * time.Second)) {
				time.Sleep(10 * time.Second)
				a.beat()
				b.beat()
			}
		}
		a.beat()
		b.beat()
		alive(20 * time.Second)
		at := time.Now().Add(2 * time.Hour)
		plan := &api.ScheduleMaintenanceRequest{Windows: []*api.MaintenanceWindow{{
			Machines: []*api.Machine{{Hostname: "a"}, {Hostname: "c"}}, StartNanoseconds: at.UnixNano(), DurationNanoseconds: new(int64(time.Hour)),
		}}}
		if _, err := v.operator().ScheduleMaintenance(v.Context(), plan); err != nil {
			v.Fatal(err)
		}
		n := v.seen("a")
		if n.Maintenance != modeDraining || n.Schedulable || n.State != string(Active) || !n.MaintenanceStart.AsTime().Equal(at) || n.MaintenanceDuration.AsDuration() != time.Hour {
			v.Errorf("scheduled: got %v", n)
		}
		if !peers() {
			v.Error("two hours before, it is no peer")
		}
		alive(51 * time.Minute)
		if peers() || v.seen("a").State != string(Active) {
			v.Errorf("69 minutes before, it is a peer, or %s", v.seen("a").State)
		}
		alive(time.Until(at.Add(-10*time.Minute)) + 20*time.Second)
		v.is("a", Decommissioning)
		d := a.beat().Directive
		if left := time.Until(at); d == nil || (d.Remaining.AsDuration()-left).Abs() > time.Second || !strings.Contains(d.Reason, "maintenance begins at") {
			v.Errorf("it is told %v, %s before", d, left)
		}
		if _, err := v.operator().Recommission(v.Context(), &api.RecommissionRequest{Nodes: []string{"a"}}); err != nil {
			v.Fatal(err)
		}
		alive(time.Minute)
		v.is("a", Active)
		v.order(time.Minute, "a")
		a.goodbye("inc-1", &api.ManifestEntry{Id: "spark/-/x", Outcome: "moved", Peer: "b"})
		reply, err := v.operator().GetMaintenance(v.Context(), &api.GetMaintenanceRequest{})
		if err != nil || len(reply.Machines) != 2 || len(reply.Machines[0].Nodes) != 1 || reply.Machines[0].Nodes[0].Answer != "ACCEPT" || len(reply.Machines[1].Nodes) != 0 {
			v.Errorf("got %v (%v), want a's word", reply, err)
		}
		if now := reply.GetNow().AsTime(); !now.Equal(time.Now()) {
			v.Errorf("its clock shows %s, want %s: who asks reckons from it", now, time.Now())
		}
		v.restart()
		if _, err := v.operator().ChangeMachines(v.Context(), &api.ChangeMachinesRequest{Machines: plan.Windows[0].Machines, Timeout: durationpb.New(time.Minute)}); err != nil {
			v.Fatal(err)
		}
		if n := v.seen("a"); n.Maintenance != modeDown || n.State != string(Decommissioned) {
			v.Errorf("down: got %v", n)
		}
		v.refused(v.agent("c").tryRegister(), codes.FailedPrecondition, "its machine is DOWN for maintenance: lifeboat maintenance up")
	})
}
