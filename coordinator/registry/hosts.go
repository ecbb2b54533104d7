package registry

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/hosts"
)

// byHosts marks an order as the host files'. They take back what they ordered and nothing else: a node that an operator
// decommissioned by name is none of theirs.
const byHosts = "hosts"

// Forced is how a decommission ended that was given no time. The node is there still, and may say what became of its blocks.
const Forced Outcome = "forced"

const (
	EventHosts        = "HostsRefreshed"
	EventHostsRefused = "HostsRefused"
	// EventBrakeReleased is in the log when it was an operator.
	EventBrakeReleased = "BrakeReleased"
)

// ErrExcluded is why a node may not join, or not come back.
var ErrExcluded = errors.New("kept out by the host files")

// HostsState is what the registry knows of host files.
type HostsState struct {
	Lists   *hosts.Lists `json:"lists,omitempty"` // in force; nil: there are none
	Since   time.Time    `json:"since,omitzero"`
	Refused *refusal     `json:"refused,omitempty"` // since the lists in force were read
}

// refusal is why a later reading of the files counts for nothing.
type refusal struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

// touched are the nodes that a command is about.
func (m *Registry) touched(c Command) []string {
	if c.Do == DoHosts || c.maintains() {
		return slices.Sorted(maps.Keys(m.Nodes))
	}
	return c.Nodes
}

// hostsAfter is what c makes of the lists, and the event that tells it. The same refusal again is no news.
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

// CountIf is n in an event or a record, which say nothing of what does not count.
func CountIf(counts bool, n int) string {
	if !counts {
		return ""
	}
	return strconv.Itoa(n)
}

// refresh does to one node what the lists say: YARN's table (NodesListManager.handleExcludeNodeList), with two things
// said more closely. Recommissioned is what the files had leave, not what somebody else did. And a node that is away gets
// its order when it is back, with all of its time.
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

// readmit takes back what the files, the maintenance schedule or a drain ordered. A node that is done, or away, comes back by
// registering again. One that may not stay on other grounds leaves on: the order is theirs now, with its clock.
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

// force ends it at once. A node that the lists do not know is shut out; an excluded one is decommissioned.
func (s *step) force(j hosts.Judgement) {
	left, event := Decommissioned, EventDecommissioned
	if j.Untracked {
		left, event = Shutdown, EventShutdown
	}
	s.cut(Order{By: byHosts, Reason: j.Why}, left, event)
}

// await orders a node that is not there. Its clock starts when it is back: a time to drain in is of no use to a node that
// spends it away.
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

// admit says whether a node may register. One that is leaving may, to be heard until it is done; so may one that is done
// and only repeats itself to a coordinator that came back.
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
