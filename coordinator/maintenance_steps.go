package coordinator

import (
	"fmt"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// byMaintenance marks an order as the maintenance schedule's. It is taken back with the appointment, and no other is.
const byMaintenance = "maintenance"

const (
	evMaintenance = "MaintenanceScheduled"
	evMachineDown = "MachineDown"
	evMachineUp   = "MachineUp"
)

// peersUntil is how long before a machine's appointment nothing lands on it any more, beside the time in which it leaves
// (maintenance_lead): what landed would have to be carried once more. Before that it is a peer as any, for where a whole fleet
// has appointments one after the other there would be none.
const peersUntil = time.Hour

func isIP(host string) bool { _, err := netip.ParseAddr(host); return err == nil }

// maintain does to one node what the schedule, or a word about its machine, makes of it. One whose machine goes DOWN leaves as by
// an order, with the time to carry what it has; one whose appointment is gone, or is later, stays.
func (s *step) maintain() {
	n := &s.node
	was, is := s.wasScheduled.of(s.name, n.PeerAddress, s.cmd.At), s.schedule.of(s.name, n.PeerAddress, s.cmd.At)
	switch {
	case is.mode() == modeDown && was.mode() != modeDown:
		o := *s.cmd.Order
		o.By, o.Reason = byMaintenance, errDown.Error()
		if n.ordered() && s.cmd.Unsaid {
			o.Timeout = n.Decommission.Order.Timeout
		}
		s.ask(o)
	case is.mode() == modeUp && was.mode() != modeUp, (s.cmd.Do == doSchedule || was.mode() == modeDown) && is.mode() == modeDraining && !is.of.within(s.cmd.After, s.cmd.At):
		if d := n.Decommission; d != nil && d.Order != nil && d.Order.By == byMaintenance {
			s.readmit(byMaintenance)
			if d = n.Decommission; d.Outcome == undone && d.Order != nil { // by the schedule, which may have it leave again
				o := *d.Order
				o.By = ""
				s.amend(&o, d.Notice)
			}
		}
	}
}

// judge says why the node may not stay.
func (s *step) judge() hosts.Judgement { return s.judgeAt(s.node.PeerAddress) }

func (s *step) judgeAt(peerAddress string) hosts.Judgement {
	j := s.hosts.Judge(s.name, peerAddress)
	if !j.Excluded() && s.schedule.of(s.name, peerAddress, s.cmd.At).mode() == modeDown {
		return hosts.Judgement{Why: errDown.Error(), Down: true}
	}
	return j
}

// byOf marks the order of one that may not stay.
func byOf(j hosts.Judgement) string {
	if j.Down {
		return byMaintenance
	}
	return byHosts
}

// refusalOf is the error for who wants it to stay.
func refusalOf(j hosts.Judgement) error {
	if j.Down {
		return errDown
	}
	return fmt.Errorf("%w: %s", errExcluded, j.Why)
}

// leaveInTime has nodes leave whose machines' appointments are near, each with the time until then. Mesos would ask its
// frameworks for their resources back (inverse offers); here it is the node itself that has something to carry. One that an
// operator recommissioned since is left to the operator.
func (f *fleet) leaveInTime(now time.Time) {
	lead := f.cfg.MaintenanceLead
	due := map[int64][]string{} // by the instant of the appointment
	f.ledger.view(func(m *machine) {
		if lead <= 0 || !m.Schedule.any(lead, now) {
			return
		}
		for name, n := range m.Nodes {
			a := m.Schedule.of(name, n.PeerAddress, now)
			if n.State != Active || a.mode() != modeDraining || !a.of.within(lead, now) {
				continue
			}
			if !n.kept(a, lead) {
				due[a.of.Start] = append(due[a.of.Start], name)
			}
		}
	})
	for start, names := range due {
		at := time.Unix(0, start)
		o := &order{Timeout: f.cfg.DecommissionTimeout, By: byMaintenance, Reason: "its machine's maintenance has begun"}
		if left := at.Sub(now); left > 0 {
			o.Timeout, o.Reason = left, "its machine's maintenance begins at "+at.UTC().Format(time.RFC3339)
		}
		f.decideAll(command{Do: doDecommission, Order: o}, names)
	}
}

// kept says whether an operator recommissioned n since it began to leave for this appointment. What was scheduled since is another
// one, however near.
func (n node) kept(a appointment, lead time.Duration) bool {
	d := n.Decommission
	return d != nil && d.Order != nil && d.Order.By == byMaintenance && d.Outcome == undone &&
		!d.StartedAt.Before(a.of.start().Add(-lead)) && !d.EndedAt.Before(a.of.Said)
}

// any says whether a window begins so soon, or has begun.
func (s *schedule) any(soon time.Duration, now time.Time) bool {
	return s != nil && slices.ContainsFunc(s.Windows, func(w outage) bool { return w.within(soon, now) })
}

// appointmentsNear says, once, that other windows are near than when it was last asked. A change of the schedule itself is told
// by its event.
func (f *fleet) appointmentsNear(now time.Time) bool {
	near := []string{}
	if s := f.scheduled(); s != nil {
		for i, w := range s.Windows {
			if w.within(f.cfg.MaintenanceLead+peersUntil, now) {
				near = append(near, strconv.Itoa(i))
			}
		}
	}
	is := hashOf(near...)
	return f.nearby.Swap(is) != is
}

// scheduled reads the durable part.
func (f *fleet) scheduled() (s *schedule) {
	f.ledger.view(func(m *machine) { s = m.Schedule })
	return s
}

// takesNothing says whether a machine is worked on, or will be before what lands on it is of use.
func (f *fleet) takesNothing(a appointment, now time.Time) bool {
	return a.mode() == modeDown || a.mode() == modeDraining && a.of.within(f.cfg.MaintenanceLead+peersUntil, now)
}
