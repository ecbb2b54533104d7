package coordinator

import (
	"fmt"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
	"strconv"
	"time"
)

// What happens, in words that scripts match on.
const (
	evRegistered      = "NodeRegistered"
	evReplaced        = "NodeReplaced" // another machine came under the name
	evChanged         = "NodeChanged"  // its address, zone, pool or version
	evReturned        = "NodeReturned"
	evDecommissioning = "NodeDecommissioning" // an operator's order
	evAnnounced       = "WorkerDecommission"  // the node's own word
	evDeadline        = "DecommissionChanged"
	evWithdrawn       = "NoticeWithdrawn" // and an order still stands
	evDecommissioned  = "NodeDecommissioned"
	evRecommissioned  = "NodeRecommissioned"
	evManifest        = "ManifestReceived" // after the decommission had ended
	evLost            = "NodeLost"
	evShutdown        = "NodeShutdown"
	evForgotten       = "NodeForgotten"
	evExcluded        = "NodeExcluded" // all its disks are unwell
	evReadmitted      = "NodeReadmitted"
	evDeactivated     = "NodeDeactivated" // an operator wants it given nothing new
	evReactivated     = "NodeReactivated"
	evGone            = "NodeGone" // for ever
)

// slack is how far two readings of the same deadline may lie apart. It crosses the wire as a span, so each reading is
// late by the time the message travelled.
const slack = time.Second

// step is one command meeting one node. Every change is told by an event.
type step struct {
	name string
	node node // a zero State: not known
	cmd  command
	last uint64 // index of the last event before this step

	hosts    *hosts.Lists // in force
	schedule *schedule    // of maintenance, in force

	wasScheduled *schedule // before the command

	banned bool // who registers is GONE

	events []event
}

func (s *step) take() error {
	if err := s.meet(); err != nil {
		return err
	}
	s.markGone()
	s.tellExecutors()
	return nil
}

func (s *step) meet() error {
	n, c := &s.node, s.cmd
	if c.Do == doRegister {
		return s.register()
	}
	if n.State == "" {
		return errUnknownNode
	}
	if c.Incarnation != "" && c.Incarnation != n.Incarnation {
		return errIncarnation
	}
	switch c.Do {
	case doAnnounce:
		s.announce()
	case doWithdraw:
		s.withdraw()
	case doUnavailable:
		if n.State == Active {
			n.State = Shutdown
			s.tell(evShutdown)
		}
	case doGoodbye:
		s.goodbye()
	case doTell: // what every command does at its end
	case doDecommission:
		o := *c.Order
		if own, ok := c.Timeouts[s.name]; ok {
			o.Timeout = own
		} else if c.Unsaid && n.ordered() {
			o.Timeout = n.Decommission.Order.Timeout // who only looks again changes nothing
		}
		if c.Drain {
			o.By = byDrain
			s.deactivate()
		}
		s.ask(o)
	case doHosts:
		s.refresh()
	case doSchedule, doMachinesDown, doMachinesUp:
		s.maintain()
	case doExclude:
		if !n.Excluded {
			n.Excluded = true
			s.tell(evExcluded, "reason", c.Reason)
		}
	case doReadmit:
		if n.Excluded {
			n.Excluded = false
			s.tell(evReadmitted)
		}
	case doDeactivate:
		s.deactivate()
	case doReactivate:
		if n.Deactivated {
			n.Deactivated = false
			s.tell(evReactivated, "reason", c.Reason)
		}
		s.readmit(byDrain)
	case doRecommission:
		return s.recommission()
	case doLose, doRelease:
		s.lose()
	case doTimeout:
		s.expire()
	case doForget:
		if c.Named && !n.forgettable() {
			return fmt.Errorf("%w: it is %s", errNotAway, n.State)
		}
		if c.Named || n.gone(c.At, c.After) {
			s.tell(evForgotten, "id", n.ID, "state", string(n.State), "reason", c.Reason)
			*n = node{}
		}
	default:
		return fmt.Errorf("command %q is not known to this lifeboat", c.Do)
	}
	return nil
}

func (s *step) register() error {
	n, c := &s.node, s.cmd
	if err := s.admit(); err != nil {
		return err
	}
	replaces := n.State != "" && n.Incarnation != c.Facts.Incarnation
	if replaces {
		s.tell(evReplaced, "id", n.ID, "state", string(n.State))
		*n = node{}
	}
	if n.State == "" {
		*n = node{Name: s.name, ID: s.id("node"), State: Active, Began: c.At, facts: *c.Facts, Namesake: replaces}
		s.tell(evRegistered, "id", n.ID, "peer_address", n.PeerAddress)
		return nil
	}
	if n.facts != *c.Facts {
		n.facts = *c.Facts
		s.tell(evChanged, "peer_address", n.PeerAddress, "version", n.Version)
	}
	switch n.State {
	case Lost, Shutdown:
		if n.ordered() { // it was away while the order stood: the order stands
			from := n.State
			s.begin(n.Decommission.Order, n.Decommission.Notice)
			s.tell(evReturned, "from", string(from), "decommission", n.Decommission.ID)
			return nil
		}
		s.activate(evReturned, "from", string(n.State))
	case Decommissioned:
		if !n.Gone && !c.UnderNotice && (!c.Reattach || n.mayReturn()) && !s.judge().Excluded() {
			s.activate(evReturned, "from", string(Decommissioned))
		}
	}
	return nil
}

// announce is the node saying that it leaves.
func (s *step) announce() {
	n, said := &s.node, s.cmd.Notice
	if said.Kind == echo {
		said = &notice{Incident: said.Incident, Kind: said.Kind, Source: said.Source, Reason: said.Reason}
		if !n.leaving() || n.Decommission.Order == nil {
			return // the order was taken back meanwhile: the next directive says so
		}
	}
	d := n.Decommission
	switch {
	case n.Gone, n.State == Decommissioned && d != nil && d.Notice != nil && d.Notice.Incident == said.Incident:
		return // it has gone already
	case n.State == Decommissioned && d != nil && d.Order != nil && d.Outcome != undone:
		return // it was sent away, which stands, and has yet to hear it
	case !n.leaving():
		s.begin(n.standing(), said)
		s.tellNotice(evAnnounced)
	case d.Notice == nil || d.Notice.Incident != said.Incident:
		s.amend(d.Order, said)
		s.tellNotice(evAnnounced)
	case d.Notice.Kind != said.Kind || !near(d.Notice.Deadline, said.Deadline):
		s.amend(d.Order, said)
		s.tellNotice(evDeadline)
	}
}

// withdraw is the node saying that the notice was taken back.
func (s *step) withdraw() {
	n := &s.node
	d := n.Decommission
	if d == nil || d.Notice == nil || d.Notice.Incident != s.cmd.Incident {
		return
	}
	if n.Gone || n.State == Decommissioned && s.judge().Excluded() {
		return // it stays out on other grounds
	}
	switch {
	case n.leaving() && d.Order != nil:
		s.amend(d.Order, nil)
		s.tell(evWithdrawn, "incident", s.cmd.Incident)
	case n.leaving() || n.State == Decommissioned && d.Order == nil:
		s.end(undone)
		s.activate(evRecommissioned, "incident", s.cmd.Incident)
	}
}

// goodbye is the node's account of its decommission. It may come late, or from a node whose notice never reached us.
func (s *step) goodbye() {
	n, ref := &s.node, s.cmd.Manifest
	counts := []string{"moved", strconv.FormatInt(ref.Moved, 10), "lost", strconv.FormatInt(ref.Lost, 10), "skipped", strconv.FormatInt(ref.Skipped, 10), "rehearsal", yes(ref.rehearsed())}
	d := n.Decommission
	switch {
	case n.State == Decommissioned:
		if n.Manifest = ref; d != nil && d.Outcome == timedOut && ref.inTime(d) { // nobody was there to hear it
			in := *d
			in.Outcome = drained
			n.Decommission, counts = &in, append(counts, "outcome", string(drained))
		}
		s.tell(evManifest, counts...)
		return
	case n.State == Active && (d != nil && d.Notice != nil && d.Notice.Incident == ref.Incident ||
		n.Manifest != nil && n.Manifest.Incident == ref.Incident):
		return // it stays after all, and this account was overtaken on the way
	case !n.leaving():
		s.begin(n.standing(), &notice{Incident: ref.Incident, Kind: "unknown", Source: "manifest", Reason: "told by its manifest only"})
	}
	s.end(drained)
	n.State, n.Manifest = Decommissioned, ref
	s.tell(evDecommissioned, append(counts, "outcome", string(drained), "decommission", n.Decommission.ID)...)
}

// ask wants the node gone by o: at once when that gives it no time, and when it is away, once it is back.
func (s *step) ask(o order) {
	n := &s.node
	if d := n.Decommission; d != nil && d.Order != nil && d.Outcome != undone {
		o.Gone = o.Gone || d.Order.Gone
	}
	if n.State == Decommissioned && o.Gone && !n.Gone {
		o.At = s.cmd.At
		s.amend(&o, n.Decommission.Notice)
		if n.Decommission.Outcome == undone { // it might have come back
			s.end(forced)
		}
		return
	}
	switch {
	case s.cmd.LeavingOnly && !n.leaving():
		return
	case !n.leaving() && o.Timeout == 0:
		s.cut(o, Decommissioned, evDecommissioned)
		return
	case n.State == Lost || n.State == Shutdown:
		s.await(o)
		return
	}
	defer s.expire() // what time it has counts from its beginning, and may be over
	o.At = s.cmd.At
	d := n.Decommission
	switch {
	case n.State == Decommissioned:
		return
	case !n.leaving():
		s.begin(&o, nil)
	case d.Order == nil:
		s.amend(&o, d.Notice)
	case s.takesOver(d.Order), d.Order.Timeout != o.Timeout, d.Order.Gone != o.Gone:
		data := s.change(o)
		s.tell(evDeadline, append(data, "deadline", stamp(n.Decommission.deadline()))...)
		return
	default:
		return
	}
	s.tell(evDecommissioning, "decommission", n.Decommission.ID, "deadline", stamp(n.Decommission.deadline()), "reason", o.Reason)
}

// takesOver says whether the command makes an operator's own of an order that is the maintenance schedule's or the host files',
// which would else take it back. Who says no time and marks nothing only looks again.
func (s *step) takesOver(standing *order) bool {
	c := s.cmd
	if c.Do != doDecommission || c.LeavingOnly || c.Order.By != "" {
		return false
	}
	_, said := c.Timeouts[s.name]
	if c.Unsaid && !said && !c.Order.Gone {
		return false
	}
	return standing.By == byMaintenance || standing.By == byHosts
}

// change puts o in the place of the order that stands, whose clock goes on. It returns what there is to tell of it.
func (s *step) change(o order) (data []string) {
	d := s.node.Decommission
	data = []string{"decommission", d.ID}
	if o.At = d.Order.At; s.takesOver(d.Order) {
		data = append(data, "reason", o.Reason)
	} else {
		o.By, o.Reason = d.Order.By, d.Order.Reason
	}
	s.amend(&o, d.Notice)
	return data
}

func (s *step) recommission() error {
	if j := s.judge(); j.Excluded() {
		return refusalOf(j)
	}
	n := &s.node
	if n.Gone {
		return errGone
	}
	d := n.Decommission
	switch {
	case n.leaving() && d.Notice != nil && d.Notice.Kind != echo:
		if d.Order == nil {
			return errOwnNotice
		}
		s.amend(nil, d.Notice)
		s.tell(evRecommissioned, "still", "leaving on its own notice")
	case n.leaving() || n.State == Decommissioned:
		s.end(undone)
		s.activate(evRecommissioned)
	case n.ordered(): // LOST: only the order is taken back
		s.end(undone)
		s.tell(evRecommissioned, "still", string(n.State))
	}
	return nil
}

// expire ends a decommission whose time is up.
func (s *step) expire() {
	n := &s.node
	if !n.late(s.cmd.At) {
		return
	}
	s.end(timedOut)
	n.State = Decommissioned
	s.tell(evDecommissioned, "outcome", string(timedOut), "decommission", n.Decommission.ID)
}

// cut ends, at once, what an order with no time is for. The node may be there still, and say what became of its blocks.
func (s *step) cut(o order, left State, event string) {
	n := &s.node
	if n.State == Decommissioned || n.State == left && !n.ordered() {
		return
	}
	o.At, o.Timeout = s.cmd.At, 0
	if d := n.Decommission; n.leaving() || n.ordered() {
		if d.Order != nil {
			o.Gone = o.Gone || d.Order.Gone
			if !s.takesOver(d.Order) {
				o.By = d.Order.By
			}
		}
		s.amend(&o, d.Notice)
	} else {
		s.begin(&o, nil)
	}
	if o.Gone { // which no list shuts out any further
		left, event = Decommissioned, evDecommissioned
	}
	s.end(forced)
	n.State = left
	s.tell(event, "outcome", string(forced), "decommission", n.Decommission.ID, "reason", o.Reason)
}

// lose is the lease running out. A leaver with a deadline is left to the deadline: it may well be draining out of our sight.
func (s *step) lose() {
	n := &s.node
	switch {
	case s.cmd.Overdue && n.State == Shutdown && !n.shutOut(): // it said that it would be back
	case n.leaving() && n.Decommission.deadline().IsZero():
		s.end(silenced)
	case n.State != Active:
		return
	}
	n.State = Lost
	s.tell(evLost)
}

// begin opens a decommission. One that the node's silence broke off goes on under its old name and clock.
func (s *step) begin(o *order, nt *notice) {
	if o != nil && o.At.IsZero() {
		from := *o
		from.At = s.cmd.At
		o = &from
	}
	d := &decommission{ID: s.id("dec"), StartedAt: s.cmd.At, Order: o, Notice: nt}
	if s.node.ordered() {
		d.ID, d.StartedAt, d.Told = s.node.Decommission.ID, s.node.Decommission.StartedAt, s.node.Decommission.Told
	}
	s.node.State, s.node.Decommission, s.node.Manifest = Decommissioning, d, nil
}

func (s *step) amend(o *order, nt *notice) {
	d := *s.node.Decommission
	d.Order, d.Notice = o, nt
	s.node.Decommission = &d
}

func (s *step) end(how outcome) {
	if s.node.Decommission == nil {
		return
	}
	d := *s.node.Decommission
	d.Outcome, d.EndedAt = how, s.cmd.At
	s.node.Decommission = &d
}

// activate takes the node back, unless the host files keep it out on their part.
func (s *step) activate(event string, data ...string) {
	if j := s.judge(); j.Excluded() {
		s.node.State = Decommissioned
		s.tell(evDecommissioned, "outcome", string(forced), "reason", j.Why)
		return
	}
	s.node.State, s.node.ReturnedAt = Active, s.cmd.At
	s.tell(event, data...)
}

// id makes a name that no other node or decommission has: it contains the index of the event that is about to tell of it.
func (s *step) id(kind string) string {
	return kind + "-" + strconv.FormatUint(s.last+uint64(len(s.events))+1, 10)
}

func (s *step) tell(what string, data ...string) {
	e := event{Index: s.last + uint64(len(s.events)) + 1, Time: s.cmd.At, Type: what, Node: s.name}
	e.Data = saying(append(data, "by", s.cmd.Asked.by())...)
	s.events = append(s.events, e)
}

// saying is what words and their values say, a word before each value; a word without one says nothing. Nil: nothing is said.
func saying(data ...string) (said map[string]string) {
	for i := 0; i+1 < len(data); i += 2 {
		if data[i+1] == "" {
			continue
		}
		if said == nil {
			said = map[string]string{}
		}
		said[data[i]] = data[i+1]
	}
	return said
}

func (s *step) tellNotice(what string) {
	d := s.node.Decommission
	s.tell(what, "decommission", d.ID, "incident", d.Notice.Incident, "kind", d.Notice.Kind, "source", d.Notice.Source,
		"deadline", stamp(d.deadline()), "reason", d.Notice.Reason)
}

func near(a, b time.Time) bool {
	return a.IsZero() == b.IsZero() && a.Sub(b).Abs() <= slack
}

func stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339Nano)
}
