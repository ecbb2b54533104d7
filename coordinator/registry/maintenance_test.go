package registry

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// schedule gives machines an appointment of an hour from some second of the story on.
func (s *story) schedule(second float64, names ...string) error {
	hour := time.Hour
	w := Outage{Start: t0.Add(time.Duration(second * float64(time.Second))).UnixNano(), Duration: &hour}
	for _, n := range names {
		w.Machines = append(w.Machines, Scheduled{Hostname: n})
	}
	c := Command{Do: DoSchedule, After: 10 * time.Minute}
	if len(names) > 0 {
		c.Windows = []Outage{w}
	}
	return s.do(c)
}

func (s *story) machines(do Verb, names ...string) error {
	c := Command{Do: do, Order: &Order{Timeout: time.Hour}, Unsaid: true}
	for _, n := range names {
		c.Machines = append(c.Machines, Scheduled{Hostname: n})
	}
	return s.do(c)
}

func (s *story) modes(want string) {
	s.t.Helper()
	var got []string
	for m := range s.Schedule.all() {
		got = append(got, m.String()+" "+Appointment{&m, nil}.Mode())
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
			refused(s, s.machines(DoMachinesDown, "a"), ErrNotScheduled)
			refused(s, s.schedule(0, "a", "b", "A."), ErrSchedule)
			refused(s, s.schedule(0, "a", "b"), nil)
			s.modes("a DRAINING, b DRAINING")
			refused(s, s.machines(DoMachinesUp, "a"), ErrNotDown)
			refused(s, s.machines(DoMachinesDown, "a", "c"), ErrNotScheduled)
			s.modes("a DRAINING, b DRAINING")
			refused(s, s.machines(DoMachinesDown, "A"), nil) // hosts' names know no capitals
			refused(s, s.machines(DoMachinesDown, "a"), ErrNotDraining)
			refused(s, s.schedule(60), ErrSchedule) // a is down
			refused(s, s.schedule(60, "a", "c"), nil)
			s.modes("a DOWN, c DRAINING")
			refused(s, s.machines(DoMachinesUp, "a", "c"), ErrNotDown)
			refused(s, s.machines(DoMachinesUp, "a"), nil)
			s.modes("c DRAINING")
			s.tells("MaintenanceScheduled MachineDown MaintenanceScheduled MachineUp")
			refused(s, s.schedule(60, "c"), nil) // the same again is no news
			s.tells("")
			refused(s, s.schedule(0), nil)
			s.modes("")
		},
		"windows are added": func(s *story) {
			refused(s, s.schedule(0, "a"), nil)
			more := Command{Do: DoSchedule, Add: true, Windows: []Outage{{Start: 5, Machines: []Scheduled{{Hostname: "b"}}}}}
			refused(s, s.do(more), nil)
			refused(s, s.do(more), ErrSchedule)
			s.modes("a DRAINING, b DRAINING")
			refused(s, s.machines(DoMachinesDown, "b"), nil)
			refused(s, s.machines(DoMachinesUp, "b"), nil) // its window goes with it
			if len(s.Schedule.Windows) != 1 {
				s.t.Errorf("got %d windows, want 1", len(s.Schedule.Windows))
			}
		},
		"down and up": func(s *story) {
			s.register("a", "i1")
			refused(s, s.schedule(3600, "a"), nil)
			s.is("a", Active, 0)
			refused(s, s.at(10).machines(DoMachinesDown, "a"), nil)
			s.is("a", Decommissioning, 3610)
			if err := s.do(Command{Do: DoRecommission, Nodes: []string{"a"}}); !errors.Is(err, ErrDown) {
				s.t.Errorf("recommissioned: got %v", err)
			}
			s.goodbye("a", "inc1", 0)
			s.is("a", Decommissioned, 0)
			err := s.do(Command{Do: DoRegister, Nodes: []string{"a"}, Facts: &Facts{Incarnation: "i1", PeerAddress: "a:7412"}})
			refused(s, err, ErrDown) // it was booted, and nobody said that it may be back
			refused(s, s.machines(DoMachinesUp, "a"), nil)
			s.is("a", Decommissioned, 0)
			s.register("a", "i1")
			s.is("a", Active, 0)
			s.tells("NodeRegistered MaintenanceScheduled MachineDown NodeDecommissioning NodeDecommissioned MachineUp NodeRecommissioned NodeReturned")
		},
		"up again before it had left": func(s *story) {
			s.register("a", "i1")
			refused(s, s.schedule(0, "a"), nil)
			refused(s, s.machines(DoMachinesDown, "a"), nil)
			refused(s, s.machines(DoMachinesUp, "a"), nil)
			s.is("a", Active, 0)
		},
		"an operator's order is the operator's": func(s *story) {
			s.register("a", "i1")
			s.order(time.Minute, "a")
			refused(s, s.schedule(0, "a"), nil)
			refused(s, s.machines(DoMachinesDown, "a"), nil)
			s.is("a", Decommissioning, 60) // and its time as well
			refused(s, s.machines(DoMachinesUp, "a"), nil)
			s.is("a", Decommissioning, 60)
		},
		"an operator's word on one that leaves already makes the order the operator's": func(s *story) {
			begins := func(names ...string) {
				refused(s, s.schedule(300, names...), nil)
				s.must(Command{Do: DoDecommission, Nodes: names, Order: &Order{Timeout: 5 * time.Minute, By: ByMaintenance}})
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
			s.must(Command{Do: DoDecommission, Nodes: []string{"own"}, Order: &Order{Timeout: time.Minute}, Unsaid: true, Timeouts: map[string]time.Duration{"own": 10 * time.Minute}})
			s.tells("DecommissionChanged DecommissionChanged DecommissionChanged NodeDeactivated DecommissionChanged DecommissionChanged")
			s.must(Command{Do: DoDecommission, Nodes: []string{"again"}, Order: &Order{Timeout: time.Hour}, Unsaid: true})       // who only looks again
			s.must(Command{Do: DoDecommission, Nodes: []string{"again", "ended"}, Order: &Order{Timeout: 0}, LeavingOnly: true}) // refresh-nodes --client, at its hour
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
			s.plain(DoRecommission, "for good")
			s.is("for good", Active, 0)
		},
		"an operator's word on one that is away for maintenance": func(s *story) {
			s.register("a", "i1")
			s.plain(DoLose, "a")
			refused(s, s.schedule(0, "a"), nil)
			refused(s, s.machines(DoMachinesDown, "a"), nil)
			s.order(time.Hour, "a")
			refused(s, s.machines(DoMachinesUp, "a"), nil)
			s.at(9).register("a", "i1")
			s.is("a", Decommissioning, 3609)
		},
		"a machine that is away, and one that comes new": func(s *story) {
			s.register("a", "i1")
			s.plain(DoLose, "a")
			refused(s, s.schedule(0, "a", "new"), nil)
			refused(s, s.machines(DoMachinesDown, "a", "new"), nil)
			err := s.do(Command{Do: DoRegister, Nodes: []string{"new"}, Facts: &Facts{Incarnation: "i1", PeerAddress: "new:7412"}})
			refused(s, err, ErrDown)
			s.at(9).register("a", "i1") // it has what it had, and an hour to carry it
			s.is("a", Decommissioning, 3609)
		},
		"who is reactivated while its machine is DOWN leaves on": func(s *story) {
			for _, n := range []string{"a", "away", "late"} {
				s.register(n, "i-"+n)
			}
			s.plain(DoLose, "away")
			for _, n := range []string{"a", "away", "late"} {
				s.drain(n, time.Hour, n == "a")
			}
			refused(s, s.schedule(0, "a", "away", "late"), nil)
			refused(s, s.machines(DoMachinesDown, "a", "away", "late"), nil)
			s.must(Command{Do: DoDecommission, Nodes: []string{"late"}, Order: &Order{}, LeavingOnly: true}) // it carries on, as it can
			s.told = nil
			s.plain(DoReactivate, "a", "away", "late")
			s.tells("NodeReactivated DecommissionChanged NodeReactivated DecommissionChanged NodeReactivated DecommissionChanged")
			s.is("a", Decommissioning, 3600)
			s.is("late", Decommissioned, 0)
			if s.Nodes["late"].Wish() == nil {
				s.t.Error("a node whose machine is DOWN is told to break off what it carries")
			}
			s.at(9).register("away", "i-away") // with what it has
			s.is("away", Decommissioning, 3609)
			s.goodbye("a", "inc1", 0)
			refused(s, s.machines(DoMachinesUp, "a", "away", "late"), nil)
			s.is("away", Active, 0)
			for _, n := range []string{"a", "late"} { // a was to be GONE, and that was taken back
				s.register(n, "i-"+n)
				s.is(n, Active, 0)
			}
		},
		"up again while the host files exclude it": func(s *story) {
			s.register("a", "i1")
			refused(s, s.schedule(0, "a"), nil)
			refused(s, s.machines(DoMachinesDown, "a"), nil)
			s.refresh(lists(nil, "a"), true, time.Hour)
			refused(s, s.machines(DoMachinesUp, "a"), nil)
			s.is("a", Decommissioning, 3600)
			s.refresh(lists(nil), true, time.Hour)
			s.is("a", Active, 0)
			s.tells("NodeRegistered MaintenanceScheduled MachineDown NodeDecommissioning HostsRefreshed MachineUp DecommissionChanged HostsRefreshed NodeRecommissioned")
		},
		"taken out of the host files while its machine is DOWN": func(s *story) {
			s.register("a", "i1")
			s.refresh(lists(nil, "a"), true, time.Hour)
			refused(s, s.schedule(0, "a"), nil)
			refused(s, s.machines(DoMachinesDown, "a"), nil)
			s.refresh(lists(nil), true, time.Hour)
			s.is("a", Decommissioning, 3600)
			if d := s.Nodes["a"].Decommission; d.Order.Reason != ErrDown.Error() {
				s.t.Errorf("it leaves because %q", d.Order.Reason)
			}
			refused(s, s.machines(DoMachinesUp, "a"), nil)
			s.is("a", Active, 0)
		},
		"others go down and up": func(s *story) {
			for _, n := range []string{"a", "b"} {
				s.register(n, "i-"+n)
			}
			refused(s, s.schedule(300, "a", "b"), nil)
			s.must(Command{Do: DoDecommission, Nodes: []string{"a", "b"}, Order: &Order{Timeout: 5 * time.Minute, By: ByMaintenance}})
			refused(s, s.machines(DoMachinesDown, "a"), nil)
			s.is("a", Decommissioning, 300)
			s.is("b", Decommissioning, 300)
			refused(s, s.machines(DoMachinesUp, "a"), nil)
			s.is("a", Active, 0)
			s.is("b", Decommissioning, 300)
		},
		"up again, and scheduled once more under another spelling": func(s *story) {
			hour := time.Hour
			s.register("a", "i1", func(c *Command) { c.Facts.PeerAddress = "10.0.0.1:7412" })
			next := func(second time.Duration) {
				now := Outage{Start: t0.UnixNano(), Duration: &hour, Machines: []Scheduled{{Hostname: "a"}}}
				later := Outage{Start: t0.Add(second * time.Second).UnixNano(), Duration: &hour, Machines: []Scheduled{{Hostname: "a", IP: "10.0.0.1"}}}
				s.must(Command{Do: DoSchedule, After: 10 * time.Minute, Windows: []Outage{later, now}})
				refused(s, s.machines(DoMachinesDown, "a"), nil)
				s.must(Command{Do: DoMachinesUp, After: 10 * time.Minute, Machines: []Scheduled{{Hostname: "a"}}})
			}
			next(36000)
			s.is("a", Active, 0)
			next(540) // so soon that it need not come back
			s.is("a", Decommissioning, 3600)
		},
		"an appointment that is put off": func(s *story) {
			s.register("a", "i1")
			refused(s, s.schedule(300, "a"), nil)
			s.must(Command{Do: DoDecommission, Nodes: []string{"a"}, Order: &Order{Timeout: 5 * time.Minute, By: ByMaintenance}})
			refused(s, s.schedule(500, "a"), nil) // as near
			s.is("a", Decommissioning, 300)
			refused(s, s.schedule(5000, "a"), nil)
			s.is("a", Active, 0)
			refused(s, s.schedule(400, "a"), nil) // and near again
			near, lead := s.Schedule.Of("a", "a:7412", s.now), 10*time.Minute
			if s.Nodes["a"].Kept(near, lead) {
				s.t.Error("what the schedule took back passes for an operator's word")
			}
			s.must(Command{Do: DoDecommission, Nodes: []string{"a"}, Order: &Order{Timeout: 5 * time.Minute, By: ByMaintenance}})
			s.plain(DoRecommission, "a")
			if !s.Nodes["a"].Kept(near, lead) {
				s.t.Error("it would leave again after an operator kept it")
			}
			s.must(Command{Do: DoDecommission, Nodes: []string{"a"}, Order: &Order{Timeout: 5 * time.Minute, By: ByMaintenance}})
			refused(s, s.schedule(0), nil)
			s.is("a", Active, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			tell(s)
			if err := checkMachine(s.Registry); err != nil {
				t.Error(err)
			}
			again, err := Thaw([]byte(written(t, s.Freeze())))
			if err != nil || !again.Schedule.equal(s.Schedule) {
				t.Errorf("read back: %v (%v)", again.Schedule, err)
			}
		})
	}
}

// A machine of the schedule matches a node by host name and IP address.
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
		{"host-a", "10.0.0.1", "host-a", "host-a:7412", true}, // a node whose peer address is a host name does not tell its IP address
		{"", "10.0.0.1", "host-a", "host-a:7412", false},
	} {
		s := &Schedule{Windows: []Outage{{Machines: []Scheduled{{Hostname: "z"}, {Hostname: c.hostname, IP: c.ip}}}}}
		if got := s.Of(c.name, c.address, t0).Mode() == ModeDraining; got != c.want {
			t.Errorf("%q %q is %s at %s: got %t", c.hostname, c.ip, c.name, c.address, got)
		}
	}
}

// Of a machine's appointments the one that is DOWN counts, else the next that is not over.
func TestAppointmentThatCounts(t *testing.T) {
	at := func(hour time.Duration, name, ip string) Outage {
		return Outage{Start: t0.Add(hour * time.Hour).UnixNano(), Duration: new(time.Hour), Machines: []Scheduled{{Hostname: name, IP: ip}}}
	}
	s := &Schedule{Windows: []Outage{at(9, "a", ""), at(-3, "a", "10.0.0.1"), at(2, "", "10.0.0.1"), at(-5, "", "10.0.0.1")}}
	for hour, want := range map[time.Duration]int64{0: 2, 4: 9, 11: -5} {
		if got := s.Of("a", "10.0.0.1:7412", t0.Add(hour*time.Hour)); got.Of.Start != t0.Add(time.Duration(want)*time.Hour).UnixNano() {
			t.Errorf("after %d hours: got the one of %s, want that of %d hours", hour, got.Of.From(), want)
		}
	}
	s.Windows[1].Machines[0].Down = true
	if got := s.Of("a", "10.0.0.1:7412", t0); got.Mode() != ModeDown {
		t.Errorf("got %s", got.Mode())
	}
}

// A node that was given no time, or too little, may have carried all of its blocks: its manifest says so when it comes.
func TestAllIsSavedOnceTheAccountSaysSo(t *testing.T) {
	s := newStory(t)
	says := func(want string) {
		t.Helper()
		if got := Answer(s.Nodes["a"]); got != want {
			t.Errorf("second %s: got %s, want %s", s.now.Sub(t0), got, want)
		}
	}
	s.register("a", "i1")
	says("UNKNOWN")
	s.at(1).order(0, "a")
	s.ended("a", Forced)
	says("DECLINE")
	s.at(2).goodbye("a", "inc1", 1)
	says("DECLINE")
	s.at(3).goodbye("a", "inc1", 0)
	says("ACCEPT")
	s.at(4).plain(DoRecommission, "a")
	says("UNKNOWN")
	s.at(5).plain(DoLose, "a")
	s.order(time.Hour, "a")
	s.order(0, "a")
	says("DECLINE") // the account is of another time
	s.at(6).register("b", "i2")
	s.order(time.Minute, "b")
	s.at(66).plain(DoTimeout, "b")
	s.at(67).goodbye("b", "inc2", 0)
	if got := Answer(s.Nodes["b"]); got != "ACCEPT" {
		t.Errorf("with its time up: got %s", got)
	}
}
