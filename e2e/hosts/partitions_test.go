package hosts_test

import (
	"testing"
	"time"
)

// A drain of 8 MB takes some sixteen seconds with slowly: it is under way while the network is cut.
const slowly = "drain: {max_bytes_per_second: 512KiB}"

// leave orders host-a to leave, and waits until its drain is under way.
func (f *town) leave() (a *node, deadline moment) {
	f.t.Helper()
	a = f.nodes[0]
	a.fill(16, 8<<20)
	deadline = f.verb("decommission", a.host, "--timeout", "2m", "--reason", "the story's").exits(0).gives(2 * time.Minute)
	a.underWay(2)
	return a, deadline
}

// left fails the story unless the node has left in time with all of its blocks, and no node was lost meanwhile.
func (f *town) left(a *node, deadline moment) {
	f.t.Helper()
	a.drained()
	if late := time.Since(deadline.last); late > 0 {
		f.t.Errorf("the drain of %s ended %s after its deadline", a.host, late)
	}
	f.until(a.is("DECOMMISSIONED"))
	f.sameInstant("the manifest of "+a.host, a.allMoved().Incident.Deadline, deadline)
	f.nobodyLost()
	events := f.events()
	if n := count(events, "NodeDecommissioned", a.host); n != 1 {
		f.t.Errorf("%s: got %d ends of the decommission, want 1", a.host, n)
	}
	a.kill() // a booted host stays: its blocks may be read from itself
	a.readBack()
}

// The leader is cut from the other coordinators only, while agents and operators reach all of them; or from everybody. The
// others go on under another leader. What is asked of the one that is cut off it does not decide, neither then nor when it
// is back.
func TestLeaderCutOff(t *testing.T) {
	for name, part := range map[string]func(f *town, leader *daemon) (heal func()){
		"from the other coordinators": func(f *town, leader *daemon) func() {
			return cut([]*machine{leader.on}, f.others(leader))
		},
		"from everybody": func(_ *town, leader *daemon) func() {
			leader.on.unplug()
			return leader.on.plug
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newTown(t, 3, slowly)
			d := f.decide()
			a, deadline := f.leave()
			old := f.leader()
			heal := part(f, old)

			began := time.Now()
			d.goesOn()
			if s := old.on.run(f.env(old.on.ip+":7411"), "decommission", "host-b", "--timeout", "77m"); s.code != 1 {
				t.Errorf("the leader that is cut off: got exit code %d, want 1: it may decide nothing\n%s%s", s.code, s.stdout, s.stderr)
			}
			now := f.leader()
			if now == old {
				t.Fatalf("%s is cut off and leads still", old.on.name)
			}
			time.Sleep(time.Until(began.Add(lease + 2*time.Second))) // longer than a lease: a node that only the old leader hears would be LOST by now
			heal()

			f.left(a, deadline)
			f.until(func() error { return f.follows(old) })
			if n := count(f.events(), "NodeDecommissioning", "host-b"); n != 0 {
				t.Error("what the leader that was cut off was asked, and refused, was decided after all")
			}
			d.check()
		})
	}
}

// An agent that is cut from all coordinators hears of its end from its own machine. It leaves in time all the same, to the
// peers that it last heard of, and the coordinators hear of it afterwards.
func TestAgentLeavesWithoutCoordinators(t *testing.T) {
	f := newTown(t, 3, slowly)
	f.settled()
	a := f.nodes[0]
	a.fill(6, 3<<20)
	heal := cut([]*machine{a.on}, f.others(nil))
	deadline := a.verb("decommission", "--self", "--timeout", "60s").exits(0).gives(time.Minute)
	a.drained()
	heal()
	f.left(a, deadline)
}

// Between an agent and the coordinators, packets pass in one direction only. What either side decided stands when both
// hear each other again, with its deadline.
func TestOneWay(t *testing.T) {
	for name, part := range map[string]func(agent *machine, coordinators []*machine) (heal func()){
		"agent is not heard": func(agent *machine, coordinators []*machine) func() {
			for _, c := range coordinators {
				c.deafTo(agent)
			}
			return func() {
				for _, c := range coordinators {
					c.hears(agent)
				}
			}
		},
		"agent hears nothing": func(agent *machine, coordinators []*machine) func() {
			agent.deafTo(coordinators...)
			return func() { agent.hears(coordinators...) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newTown(t, 3)
			f.settled()
			a, b := f.nodes[0], f.nodes[1]
			a.fill(16, 8<<20)
			b.fill(16, 8<<20)
			heal := part(a.on, f.others(nil))
			healB := part(b.on, f.others(nil))
			ofA := f.verb("decommission", a.host, "--timeout", "2m").exits(0).gives(2 * time.Minute) // host-a cannot hear it, or cannot answer
			ofB := b.verb("decommission", "--self", "--timeout", "2m").exits(0).gives(2 * time.Minute)
			b.drained()
			f.sameInstant(a.host, a.seen().Deadline, ofA)
			heal()
			healB()
			f.left(b, ofB)
			f.left(a, ofA)
		})
	}
}

// All agents are cut from all coordinators for less than a lease. The drain goes on, and nothing else happens.
func TestAgentsCutBriefly(t *testing.T) {
	f := newTown(t, 4, slowly)
	f.settled()
	a, deadline := f.leave()
	heal := cut(f.agents(), f.others(nil))
	time.Sleep(lease / 2)
	f.sameInstant(a.host, a.seen().Deadline, deadline)
	heal()
	f.left(a, deadline)
}

// All agents are cut from all coordinators for longer than a lease. The network is at fault, not the fleet: no node is
// declared LOST, and one that hears of its end meanwhile leaves all the same.
func TestAgentsCutForLong(t *testing.T) {
	f := newTown(t, 4)
	f.settled()
	a := f.nodes[0]
	a.fill(16, 8<<20)
	heal := cut(f.agents(), f.others(nil))
	began := time.Now()
	time.Sleep(lease / 2)
	deadline := a.verb("decommission", "--self", "--timeout", "2m").exits(0).gives(2 * time.Minute)
	a.drained()
	time.Sleep(time.Until(began.Add(2 * lease)))
	f.nobodyLost()
	heal()
	f.left(a, deadline)
	for _, n := range f.nodes[1:] {
		f.until(n.is("ACTIVE"))
	}
}

// The wires of the leader and of two agents come and go, eight times in twelve seconds, amid a drain.
func TestFlappingLinks(t *testing.T) {
	f := newTown(t, 3, slowly)
	d := f.decide()
	a, deadline := f.leave()
	flapping := []*machine{f.leader().on, a.on, f.nodes[1].on}
	for i := range 8 {
		for _, m := range flapping {
			m.unplug()
		}
		time.Sleep(500 * time.Millisecond)
		for _, m := range flapping {
			m.plug()
		}
		time.Sleep(time.Second)
		if i == 3 {
			f.until(a.is("DECOMMISSIONING"))
			f.sameInstant(a.host, a.seen().Deadline, deadline)
		}
	}
	f.leader()
	f.left(a, deadline)
	d.check()
}
