package registry

import (
	"fmt"

	"github.com/lifeboat/lifeboat/coordinator/hosts"
)

// ByMaintenance marks an order as the maintenance schedule's. It is taken back with the appointment, and no other is.
const ByMaintenance = "maintenance"

const (
	EventMaintenance = "MaintenanceScheduled"
	EventMachineDown = "MachineDown"
	EventMachineUp   = "MachineUp"
)

// maintain does to one node what the schedule, or a word about its machine, makes of it. One whose machine goes DOWN leaves as by
// an order, with the time to carry what it has; one whose appointment is gone, or is later, stays.
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
		if d := n.Decommission; d != nil && d.Order != nil && d.Order.By == ByMaintenance {
			s.readmit(ByMaintenance)
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
	if !j.Excluded() && s.schedule.Of(s.name, peerAddress, s.cmd.At).Mode() == ModeDown {
		return hosts.Judgement{Why: ErrDown.Error(), Down: true}
	}
	return j
}

// byOf marks the order of one that may not stay.
func byOf(j hosts.Judgement) string {
	if j.Down {
		return ByMaintenance
	}
	return byHosts
}

// refusalOf is the error for who wants it to stay.
func refusalOf(j hosts.Judgement) error {
	if j.Down {
		return ErrDown
	}
	return fmt.Errorf("%w: %s", ErrExcluded, j.Why)
}
