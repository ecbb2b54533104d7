package registry

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/hosts"
)

// byHosts marks an order as the host files'. A new reading of the files takes back only these orders: a node that an operator
// decommissioned by name stays decommissioned.
const byHosts = "hosts"

// Forced is the outcome of a decommission with no time. The node is still there, and may say later what became of its blocks.
const Forced Outcome = "forced"

const (
	EventHosts        = "HostsRefreshed"
	EventHostsRefused = "HostsRefused"
	// EventBrakeReleased is in the log when an operator released the brake.
	EventBrakeReleased = "BrakeReleased"
)

// ErrExcluded says that a node may not join, or not come back.
var ErrExcluded = errors.New("kept out by the host files")

// HostsState is what the registry knows of host files.
type HostsState struct {
	Lists   *hosts.Lists `json:"lists,omitempty"` // in force; nil: there are none
	Since   time.Time    `json:"since,omitzero"`
	Refused *refusal     `json:"refused,omitempty"` // the last refused reading since the lists in force were read
}

// refusal is why a later reading of the files was refused.
type refusal struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

// touched are the nodes that a command concerns.
func (m *Registry) touched(c Command) []string {
	if c.Do == DoHosts || c.maintains() {
		return slices.Sorted(maps.Keys(m.Nodes))
	}
	return c.Nodes
}

// hostsAfter is the host files' state after c, and the event that tells of the change. The same refusal again is no change.
func (m *Registry) hostsAfter(c Command) (HostsState, []Event) {
	h := m.Hosts
	s := step{cmd: c, last: m.LastEvent}
	switch {
	case c.Do == DoHosts && (!h.Lists.Equal(c.Hosts) || h.Refused != nil):
		h = HostsState{Lists: c.Hosts, Since: c.At}
		if l := c.Hosts; l == nil {
			s.tell(EventHosts, "lists", "none")
		} else {
			s.tell(EventHosts, "include", l.IncludeFile, "included", CountIf(l.Include != nil, len(l.Include)),
				"exclude", l.ExcludeFile, "excluded", strconv.Itoa(len(l.Exclude)))
		}
	case c.Do == DoRefuseHosts && (h.Refused == nil || h.Refused.Reason != c.Reason):
		h.Refused = &refusal{At: c.At, Reason: c.Reason}
		s.tell(EventHostsRefused, "reason", c.Reason)
	case c.Do == DoRelease:
		s.tell(EventBrakeReleased, "by", "operator", "lost", strconv.Itoa(len(c.Nodes)), "reason", c.Reason)
	}
	return h, s.events
}

// CountIf is n as text if it counts, else "", which events and records leave out.
func CountIf(counts bool, n int) string {
	if !counts {
		return ""
	}
	return strconv.Itoa(n)
}

// refresh applies the lists to one node by YARN's table (NodesListManager.handleExcludeNodeList), with two differences. The lists
// recommission only nodes that they ordered away themselves. And a node that is away gets its order when it is back, with all of
// its time.
func (s *step) refresh() {
	n, j := &s.node, s.hosts.Judge(s.name, s.node.PeerAddress)
	switch {
	case !j.Excluded():
		s.readmit(byHosts)
	case s.cmd.Force:
		s.force(j)
	case n.State == Decommissioned:
	default:
		o := *s.cmd.Order
		if j.Timeout != nil {
			o.Timeout = *j.Timeout
		}
		o.By, o.Reason = byHosts, j.Why
		s.ask(o)
	}
}

// readmit takes back an order of the host files, the maintenance schedule or a drain (by). A node that is done, or away, comes back by
// registering again. A node that is still excluded on other grounds goes on leaving: the order is marked as theirs now, and its
// clock goes on.
func (s *step) readmit(by string) {
	n, d := &s.node, s.node.Decommission
	if n.State == Active || n.Gone || d == nil || d.Order == nil || d.Order.By != by || d.Outcome == undone {
		return
	}
	j := s.judge()
	switch {
	case j.Excluded() && (n.ordered() || n.State == Decommissioned):
		o := *d.Order
		o.By, o.Reason, o.Gone = byOf(j), j.Why, false
		s.amend(&o, d.Notice)
		data := []string{"decommission", d.ID, "reason", o.Reason}
		if n.Leaving() {
			data = append(data, "deadline", Stamp(n.Decommission.Deadline()))
		} else {
			data = append(data, "still", string(n.State))
		}
		s.tell(EventDeadline, data...)
	case !n.Leaving():
		s.end(undone)
		s.tell(EventRecommissioned, "still", string(n.State))
	case d.Notice != nil && d.Notice.Kind != Echo:
		s.amend(nil, d.Notice)
		s.tell(EventRecommissioned, "still", "leaving on its own notice")
	default:
		s.end(undone)
		s.activate(EventRecommissioned)
	}
}

// force ends the node's stay at once: an excluded node is DECOMMISSIONED, and one that the include list does not have is SHUTDOWN.
func (s *step) force(j hosts.Judgement) {
	left, event := Decommissioned, EventDecommissioned
	if j.Untracked {
		left, event = Shutdown, EventShutdown
	}
	s.cut(Order{By: byHosts, Reason: j.Why}, left, event)
}

// await notes an order for a node that is away. The order's clock starts when the node is back: it cannot drain while it is away.
func (s *step) await(o Order) {
	n, d := &s.node, s.node.Decommission
	switch {
	case !n.ordered():
		n.Decommission = &Decommission{ID: s.id("dec"), StartedAt: s.cmd.At, EndedAt: s.cmd.At, Outcome: silenced, Order: &o}
		s.tell(EventDecommissioning, "decommission", n.Decommission.ID, "reason", o.Reason, "still", string(n.State))
	case s.takesOver(d.Order), d.Order.Timeout != o.Timeout, d.Order.Gone != o.Gone:
		s.tell(EventDeadline, append(s.change(o), "still", string(n.State))...)
	}
}

// admit says why a node may not register; nil: it may. An excluded node may register while it is leaving, so that it is heard until it is
// done, and when it is done and only reattaches to a coordinator that came back.
func (s *step) admit() error {
	j := s.judgeAt(s.cmd.Facts.PeerAddress)
	n := s.node
	same := n.State != "" && n.Incarnation == s.cmd.Facts.Incarnation
	if s.banned && !(same && s.cmd.Reattach) {
		return ErrGone
	}
	if !j.Excluded() || same && (n.Leaving() || n.ordered() || n.State == Decommissioned && s.cmd.Reattach) {
		return nil
	}
	return refusalOf(j)
}
