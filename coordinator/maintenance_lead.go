package coordinator

import (
	"strconv"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// peersUntil is how long before a machine begins to leave (maintenance_lead before its appointment) no more blocks land on it: they would
// have to be moved again. Before that it is a peer like any other: in a fleet whose machines all have appointments, one after the
// other, there would be no peers otherwise.
const peersUntil = time.Hour

// leaveInTime orders nodes away whose machines' appointments are near, each with the time until then. Mesos would ask its frameworks for
// their resources back (inverse offers); here the node itself has something to move. A node that an operator recommissioned since is
// left to the operator.
func (f *fleet) leaveInTime(now time.Time) {
	lead := f.cfg.MaintenanceLead
	due := map[int64][]string{} // by the instant of the appointment
	f.ledger.view(func(m *registry.Registry) {
		if lead <= 0 || !m.Schedule.Any(lead, now) {
			return
		}
		for name, n := range m.Nodes {
			a := m.Schedule.Of(name, n.PeerAddress, now)
			if n.State != registry.Active || a.Mode() != registry.ModeDraining || !a.Of.Within(lead, now) {
				continue
			}
			if !n.Kept(a, lead) {
				due[a.Of.Start] = append(due[a.Of.Start], name)
			}
		}
	})
	for start, names := range due {
		at := time.Unix(0, start)
		o := &registry.Order{Timeout: f.cfg.DecommissionTimeout, By: registry.ByMaintenance, Reason: "its machine's maintenance has begun"}
		if left := at.Sub(now); left > 0 {
			o.Timeout, o.Reason = left, "its machine's maintenance begins at "+at.UTC().Format(time.RFC3339)
		}
		f.decideAll(registry.Command{Do: registry.DoDecommission, Order: o}, names)
	}
}

// appointmentsNear reports whether other windows are near than at the last call, as time goes on. Changes of the schedule itself have an
// event.
func (f *fleet) appointmentsNear(now time.Time) bool {
	near := []string{}
	if s := f.scheduled(); s != nil {
		for i, w := range s.Windows {
			if w.Within(f.cfg.MaintenanceLead+peersUntil, now) {
				near = append(near, strconv.Itoa(i))
			}
		}
	}
	is := hashOf(near...)
	return f.nearby.Swap(is) != is
}

// scheduled is the maintenance schedule, from the log.
func (f *fleet) scheduled() (s *registry.Schedule) {
	f.ledger.view(func(m *registry.Registry) { s = m.Schedule })
	return s
}

// takesNothing reports whether no blocks are to land on a machine: it is DOWN, or will be worked on soon.
func (f *fleet) takesNothing(a registry.Appointment, now time.Time) bool {
	return a.Mode() == registry.ModeDown || a.Mode() == registry.ModeDraining && a.Of.Within(f.cfg.MaintenanceLead+peersUntil, now)
}
