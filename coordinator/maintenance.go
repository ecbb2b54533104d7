package coordinator

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// peersUntil is how long before a machine begins to leave (maintenance_lead before its appointment) no more blocks land on it: they would
// have to be moved again. Before that it is a peer like any other: in a fleet whose machines all have appointments, one after the
// other, there would be no peers otherwise.
const peersUntil = time.Hour

// maintenance is the maintenance schedule of the log: whose machines are worked on, and when.
type maintenance struct {
	ledger  *ledger
	lead    time.Duration // maintenance_lead
	timeout time.Duration // of a node whose machine's appointment is past

	seen atomic.Uint64 // hash of the windows that were near when near last looked
}

// leaveInTime are the orders for nodes whose machines' appointments are near, each with the time until then. Mesos would ask its frameworks
// for their resources back (inverse offers); here the node itself has something to move. A node that an operator recommissioned since is
// left to the operator.
func (mt *maintenance) leaveInTime(now time.Time) map[*registry.Order][]string {
	due := map[int64][]string{} // by the instant of the appointment
	mt.ledger.view(func(m *registry.Registry) {
		if mt.lead <= 0 || !m.Schedule.Any(mt.lead, now) {
			return
		}
		for name, n := range m.Nodes {
			a := m.Schedule.Of(name, n.PeerAddress, now)
			if n.State != registry.Active || a.Mode() != registry.ModeDraining || !a.Of.Within(mt.lead, now) {
				continue
			}
			if !n.Kept(a, mt.lead) {
				due[a.Of.Start] = append(due[a.Of.Start], name)
			}
		}
	})
	orders := map[*registry.Order][]string{}
	for start, names := range due {
		at := time.Unix(0, start)
		o := &registry.Order{Timeout: mt.timeout, By: registry.ByMaintenance, Reason: "its machine's maintenance has begun"}
		if left := at.Sub(now); left > 0 {
			o.Timeout, o.Reason = left, "its machine's maintenance begins at "+at.UTC().Format(time.RFC3339)
		}
		orders[o] = names
	}
	return orders
}

// near reports whether other windows are near than at the last call, as time goes on. Changes of the schedule itself have an
// event.
func (mt *maintenance) near(now time.Time) bool {
	near := []string{}
	if s := mt.scheduled(); s != nil {
		for i, w := range s.Windows {
			if w.Within(mt.lead+peersUntil, now) {
				near = append(near, strconv.Itoa(i))
			}
		}
	}
	is := hashOf(near...)
	return mt.seen.Swap(is) != is
}

// scheduled is the maintenance schedule, from the log.
func (mt *maintenance) scheduled() (s *registry.Schedule) {
	mt.ledger.view(func(m *registry.Registry) { s = m.Schedule })
	return s
}

// takesNothing reports whether no blocks are to land on a machine: it is DOWN, or will be worked on soon.
func (mt *maintenance) takesNothing(a registry.Appointment, now time.Time) bool {
	return a.Mode() == registry.ModeDown || a.Mode() == registry.ModeDraining && a.Of.Within(mt.lead+peersUntil, now)
}
