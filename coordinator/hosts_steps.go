package coordinator

import (
	"errors"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
	"maps"
	"slices"
	"strconv"
	"time"
)

// byHosts marks an order as the host files'. They take back what they ordered and nothing else: a node that an operator
// decommissioned by name is none of theirs.
const byHosts = "hosts"

// forced is how a decommission ended that was given no time. The node is there still, and may say what became of its blocks.
const forced outcome = "forced"

const (
	evHosts        = "HostsRefreshed"
	evHostsRefused = "HostsRefused"
)

// errExcluded is why a node may not join, or not come back.
var errExcluded = errors.New("kept out by the host files")

// hostsState is what the machine knows of host files.
type hostsState struct {
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
func (m *machine) touched(c command) []string {
	if c.Do == doHosts || c.maintains() {
		return slices.Sorted(maps.Keys(m.Nodes))
	}
	return c.Nodes
}

// hostsAfter is what c makes of the lists, and the event that tells it. The same refusal again is no news.
func (m *machine) hostsAfter(c command) (hostsState, []event) {
	h := m.Hosts
	s := step{cmd: c, last: m.LastEvent}
	switch {
	case c.Do == doHosts && (!h.Lists.Equal(c.Hosts) || h.Refused != nil):
		h = hostsState{Lists: c.Hosts, Since: c.At}
		if l := c.Hosts; l == nil {
			s.tell(evHosts, "lists", "none")
		} else {
			s.tell(evHosts, "include", l.IncludeFile, "included", countIf(l.Include != nil, len(l.Include)),
				"exclude", l.ExcludeFile, "excluded", strconv.Itoa(len(l.Exclude)))
		}
	case c.Do == doRefuseHosts && (h.Refused == nil || h.Refused.Reason != c.Reason):
		h.Refused = &refusal{At: c.At, Reason: c.Reason}
		s.tell(evHostsRefused, "reason", c.Reason)
	case c.Do == doRelease:
		s.tell(evBrakeReleased, "by", "operator", "lost", strconv.Itoa(len(c.Nodes)), "reason", c.Reason)
	}
	return h, s.events
}

func countIf(counts bool, n int) string {
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
		if n.leaving() {
			data = append(data, "deadline", stamp(n.Decommission.deadline()))
		} else {
			data = append(data, "still", string(n.State))
		}
		s.tell(evDeadline, data...)
	case !n.leaving():
		s.end(undone)
		s.tell(evRecommissioned, "still", string(n.State))
	case d.Notice != nil && d.Notice.Kind != echo:
		s.amend(nil, d.Notice)
		s.tell(evRecommissioned, "still", "leaving on its own notice")
	default:
		s.end(undone)
		s.activate(evRecommissioned)
	}
}

// mayReturn says whether n is done with a decommission that nobody wishes any more: registering makes it ACTIVE.
func (n node) mayReturn() bool {
	return n.State == Decommissioned && !n.Gone && n.Decommission != nil && n.Decommission.Outcome == undone
}

// force ends it at once. A node that the lists do not know is shut out; an excluded one is decommissioned.
func (s *step) force(j hosts.Judgement) {
	left, event := Decommissioned, evDecommissioned
	if j.Untracked {
		left, event = Shutdown, evShutdown
	}
	s.cut(order{By: byHosts, Reason: j.Why}, left, event)
}

// await orders a node that is not there. Its clock starts when it is back: a time to drain in is of no use to a node that
// spends it away.
func (s *step) await(o order) {
	n, d := &s.node, s.node.Decommission
	switch {
	case !n.ordered():
		n.Decommission = &decommission{ID: s.id("dec"), StartedAt: s.cmd.At, EndedAt: s.cmd.At, Outcome: silenced, Order: &o}
		s.tell(evDecommissioning, "decommission", n.Decommission.ID, "reason", o.Reason, "still", string(n.State))
	case s.takesOver(d.Order), d.Order.Timeout != o.Timeout, d.Order.Gone != o.Gone:
		s.tell(evDeadline, append(s.change(o), "still", string(n.State))...)
	}
}

// admit says whether a node may register. One that is leaving may, to be heard until it is done; so may one that is done
// and only repeats itself to a coordinator that came back.
func (s *step) admit() error {
	j := s.judgeAt(s.cmd.Facts.PeerAddress)
	n := s.node
	same := n.State != "" && n.Incarnation == s.cmd.Facts.Incarnation
	if s.banned && !(same && s.cmd.Reattach) {
		return errGone
	}
	if !j.Excluded() || same && (n.leaving() || n.ordered() || n.State == Decommissioned && s.cmd.Reattach) {
		return nil
	}
	return refusalOf(j)
}
