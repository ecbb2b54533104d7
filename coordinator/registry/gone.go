package registry

import (
	"errors"
	"slices"
)

// byDrain marks an order as a drain's, in the sense of Mesos's DRAIN_AGENT: the node is deactivated as well, and reactivating it takes
// back both.
const byDrain = "drain"

// keptBanned bounds the incarnations of nodes that are GONE, some 36 bytes each. Mesos keeps a tenth of a million
// (registry_max_agent_count), for fleets in which machines last.
const keptBanned = 16384

// ErrGone says that a node may never be let in again.
var ErrGone = errors.New("it was marked GONE, for ever")

func (s *step) deactivate() {
	if n := &s.node; !n.Deactivated {
		n.Deactivated = true
		s.tell(EventDeactivated, "reason", s.cmd.Reason)
	}
}

// markGone marks the node GONE if its order says so and it is DECOMMISSIONED, no matter how its decommission ended.
func (s *step) markGone() {
	n := &s.node
	if d := n.Decommission; n.State == Decommissioned && !n.Gone && d != nil && d.Order != nil && d.Order.Gone && d.Outcome != undone {
		n.Gone = true
		s.tell(EventGone, "id", n.ID)
	}
}

// ban remembers the incarnation of a node that is GONE, also when the node itself is forgotten.
func (m *Registry) ban(n Node) {
	if !n.Gone || slices.Contains(m.Banned, n.Incarnation) {
		return
	}
	m.Banned = append(slices.Clone(m.Banned[max(0, len(m.Banned)+1-keptBanned):]), n.Incarnation)
}
