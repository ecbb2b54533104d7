package registry

import (
	"fmt"

	"github.com/lifeboat/lifeboat/coordinator/hosts"
)

// ByMaintenance marks an order as the maintenance schedule's. When an appointment goes, only its node's orders of this mark are taken back.
const ByMaintenance = "maintenance"

const (
	EventMaintenance = "MaintenanceScheduled"
	EventMachineDown = "MachineDown"
	EventMachineUp   = "MachineUp"
)

// maintain applies a change of the schedule, or of its machine's mode, to one node. A node whose machine goes DOWN leaves as by an order,
// with time to drain. A node whose appointment is gone, or is now more than the lead time (After) away, stays.
func (s *step) maintain() {
	n := &s.node
	was, is := s.wasScheduled.Of(s.name, n.PeerAddress, s.cmd.At), s.schedule.Of(s.name, n.PeerAddress, s.cmd.At)
	switch {
	case is.Mode() == ModeDown && was.Mode() != ModeDown:
		o := *s.cmd.Order
		o.By, o.Reason = ByMaintenance, ErrDown.Error()
		if n.ordered() && s.cmd.Unsaid {
			o.Timeout = n.Decommission.Order.Timeout
		}
		s.ask(o)
	case is.Mode() == ModeUp && was.Mode() != ModeUp, (s.cmd.Do == DoSchedule || was.Mode() == ModeDown) && is.Mode() == ModeDraining && !is.Of.Within(s.cmd.After, s.cmd.At):
		s.readmit(ByMaintenance)
	}
}

// judge says whether the node may not stay, by the host files or the maintenance schedule, and why.
func (s *step) judge() hosts.Judgement { return s.judgeAt(s.node.PeerAddress) }

func (s *step) judgeAt(peerAddress string) hosts.Judgement {
	j := s.hosts.Judge(s.name, peerAddress)
	if !j.Excluded() && s.schedule.Of(s.name, peerAddress, s.cmd.At).Mode() == ModeDown {
		return hosts.Judgement{Why: ErrDown.Error(), Down: true}
	}
	return j
}

// byOf is the mark (Order.By) of an order that stands because of j.
func byOf(j hosts.Judgement) string {
	if j.Down {
		return ByMaintenance
	}
	return byHosts
}

// refusalOf is the error of a call that would have the node stay against j.
func refusalOf(j hosts.Judgement) error {
	if j.Down {
		return ErrDown
	}
	return fmt.Errorf("%w: %s", ErrExcluded, j.Why)
}
