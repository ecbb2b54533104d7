package registry

import (
	"fmt"
	"strconv"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/hosts"
)

// Types of events. Scripts match on them.
const (
	EventRegistered      = "NodeRegistered"
	EventReplaced        = "NodeReplaced" // another machine came under the name
	EventChanged         = "NodeChanged"  // its address, zone, pool or version
	EventReturned        = "NodeReturned"
	EventDecommissioning = "NodeDecommissioning" // an operator's order
	EventAnnounced       = "WorkerDecommission"  // the node's own word
	EventDeadline        = "DecommissionChanged"
	EventWithdrawn       = "NoticeWithdrawn" // and an order still stands
	EventDecommissioned  = "NodeDecommissioned"
	EventRecommissioned  = "NodeRecommissioned"
	EventManifest        = "ManifestReceived" // after the decommission had ended
	EventLost            = "NodeLost"
	EventShutdown        = "NodeShutdown"
	EventForgotten       = "NodeForgotten"
	EventExcluded        = "NodeExcluded" // all its disks are unwell
	EventReadmitted      = "NodeReadmitted"
	EventDeactivated     = "NodeDeactivated" // an operator wants it given nothing new
	EventReactivated     = "NodeReactivated"
	EventGone            = "NodeGone" // for ever
)

// slack is how far apart two readings of the same deadline may be. A deadline crosses the wire as the span that is left, so each
// reading is late by the time that its message took.
const slack = time.Second

// step applies one command to one node. Every change has an event.
type step struct {
	name string
	node Node // a zero State: not known
	cmd  Command
	last uint64 // index of the last event before this step

	hosts    *hosts.Lists // in force
	schedule *Schedule    // of maintenance, in force

	wasScheduled *Schedule // before the command

	banned bool // the incarnation that registers is of a node that is GONE

	events []Event
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
	if c.Do == DoRegister {
		return s.register()
	}
	if n.State == "" {
		return ErrUnknownNode
	}
	if c.Incarnation != "" && c.Incarnation != n.Incarnation {
		return ErrIncarnation
	}
	switch c.Do {
	case DoAnnounce:
		s.announce()
	case DoWithdraw:
		s.withdraw()
	case DoUnavailable:
		if n.State == Active {
			n.State = Shutdown
			s.tell(EventShutdown)
		}
	case DoGoodbye:
		s.goodbye()
	case DoTell: // take tells of executors after every command
	case DoDecommission:
		o := *c.Order
		if own, ok := c.Timeouts[s.name]; ok {
			o.Timeout = own
		} else if c.Unsaid && n.ordered() {
			o.Timeout = n.Decommission.Order.Timeout // an operator who repeats the command to look again changes nothing
		}
		if c.Drain {
			o.By = byDrain
			s.deactivate()
		}
		s.ask(o)
	case DoHosts:
		s.refresh()
	case DoSchedule, DoMachinesDown, DoMachinesUp:
		s.maintain()
	case DoExclude:
		if !n.Excluded {
			n.Excluded = true
			s.tell(EventExcluded, "reason", c.Reason)
		}
	case DoReadmit:
		if n.Excluded {
			n.Excluded = false
			s.tell(EventReadmitted)
		}
	case DoDeactivate:
		s.deactivate()
	case DoReactivate:
		if n.Deactivated {
			n.Deactivated = false
			s.tell(EventReactivated, "reason", c.Reason)
		}
		s.readmit(byDrain)
	case DoRecommission:
		return s.recommission()
	case DoLose, DoRelease:
		s.lose()
	case DoTimeout:
		s.expire()
	case DoDelay:
		if d := n.Decommission; n.Leaving() && d.Order != nil {
			o := *d.Order // its timeout stays: the next reading of the host files, say, would bring a changed one back
			o.At = o.At.Add(c.After)
			s.amend(&o, d.Notice)
			s.tell(EventDeadline, "decommission", d.ID, "deadline", Stamp(n.Decommission.Deadline()))
		}
	case DoForget:
		if c.Named && !n.Forgettable() {
			return fmt.Errorf("%w: it is %s", ErrNotAway, n.State)
		}
		if c.Named || n.Outlived(c.At, c.After) {
			s.tell(EventForgotten, "id", n.ID, "state", string(n.Shown()), "reason", c.Reason)
			*n = Node{}
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
		s.tell(EventReplaced, "id", n.ID, "state", string(n.Shown()))
		*n = Node{}
	}
	if n.State == "" {
		*n = Node{Name: s.name, ID: s.id("node"), State: Active, Began: c.At, Facts: *c.Facts, Namesake: replaces}
		s.tell(EventRegistered, "id", n.ID, "peer_address", n.PeerAddress)
		return nil
	}
	if n.Facts != *c.Facts {
		n.Facts = *c.Facts
		s.tell(EventChanged, "peer_address", n.PeerAddress, "version", n.Version)
	}
	switch n.State {
	case Lost, Shutdown:
		if n.ordered() { // it was away while the order stood: the order stands
			from := n.State
			s.begin(n.Decommission.Order, n.Decommission.Notice)
			s.tell(EventReturned, "from", string(from), "decommission", n.Decommission.ID)
			return nil
		}
		s.activate(EventReturned, "from", string(n.State))
	case Decommissioned:
		if !n.Gone && !c.UnderNotice && (!c.Reattach || n.MayReturn()) && !s.judge().Excluded() {
			s.activate(EventReturned, "from", string(Decommissioned))
		}
	}
	return nil
}

// announce notes the node's notice that it leaves.
func (s *step) announce() {
	n, said := &s.node, s.cmd.Notice
	if said.Kind == Echo {
		said = &Notice{Incident: said.Incident, Kind: said.Kind, Source: said.Source, Reason: said.Reason}
		if !n.Leaving() || n.Decommission.Order == nil {
			return // the order was taken back meanwhile: the next directive says so
		}
	}
	d := n.Decommission
	switch {
	case n.Gone, n.State == Decommissioned && d != nil && d.Notice != nil && d.Notice.Incident == said.Incident:
		return // it has gone already
	case n.State == Decommissioned && d != nil && d.Order != nil && d.Outcome != undone:
		return // it was sent away, which stands, and has yet to hear it
	case !n.Leaving():
		s.begin(n.standing(), said)
		s.tellNotice(EventAnnounced)
	case d.Notice == nil || d.Notice.Incident != said.Incident:
		s.amend(d.Order, said)
		s.tellNotice(EventAnnounced)
	case d.Notice.Kind != said.Kind || !near(d.Notice.Deadline, said.Deadline):
		s.amend(d.Order, said)
		s.tellNotice(EventDeadline)
	}
}

// withdraw notes that the node's notice was taken back.
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
	case n.Leaving() && d.Order != nil:
		s.amend(d.Order, nil)
		s.tell(EventWithdrawn, "incident", s.cmd.Incident)
	case n.Leaving() || n.State == Decommissioned && d.Order == nil:
		s.end(undone)
		s.activate(EventRecommissioned, "incident", s.cmd.Incident)
	}
}

// goodbye notes the node's account of its decommission. It may come late, or from a node whose notice never reached the coordinator.
func (s *step) goodbye() {
	n, ref := &s.node, s.cmd.Manifest
	counts := []string{
		"moved", strconv.FormatInt(ref.Moved, 10), "lost", strconv.FormatInt(ref.Lost, 10),
		"skipped", strconv.FormatInt(ref.Skipped, 10), "rehearsal", Yes(ref.rehearsed()),
	}
	d := n.Decommission
	switch {
	case n.State == Decommissioned:
		if n.Manifest = ref; d != nil && d.Outcome == TimedOut && ref.inTime(d) { // nobody was there to hear it
			in := *d
			in.Outcome = Drained
			n.Decommission, counts = &in, append(counts, "outcome", string(Drained))
		}
		s.tell(EventManifest, counts...)
		return
	case n.State == Active && (d != nil && d.Notice != nil && d.Notice.Incident == ref.Incident ||
		n.Manifest != nil && n.Manifest.Incident == ref.Incident):
		return // the node stays after all: the account is of a decommission that was undone while it was on its way
	case !n.Leaving():
		s.begin(n.standing(), &Notice{Incident: ref.Incident, Kind: "unknown", Source: "manifest", Reason: "told by its manifest only"})
	}
	s.end(Drained)
	n.State, n.Manifest = Decommissioned, ref
	s.tell(EventDecommissioned, append(counts, "outcome", string(Drained), "decommission", n.Decommission.ID)...)
}

// ask orders the node to leave by o: at once if o gives it no time, and once it is back if it is away.
func (s *step) ask(o Order) {
	n := &s.node
	if d := n.Decommission; d != nil && d.Order != nil && d.Outcome != undone {
		o.Gone = o.Gone || d.Order.Gone
	}
	switch {
	case s.cmd.LeavingOnly && !n.Leaving():
		return
	case n.MayReturn(): // it is done, and its last order was taken back: this one keeps it from coming back
		o.At = s.cmd.At
		n.Decommission = &Decommission{ID: s.id("dec"), StartedAt: s.cmd.At, EndedAt: s.cmd.At, Outcome: Forced, Order: &o}
		s.tell(EventDecommissioning, "decommission", n.Decommission.ID, "reason", o.Reason, "still", string(n.State))
		return
	case n.State == Decommissioned && o.Gone && !n.Gone:
		o.At = s.cmd.At
		s.amend(&o, n.Decommission.Notice)
		return
	case !n.Leaving() && o.Timeout == 0:
		s.cut(o, Decommissioned, EventDecommissioned)
		return
	case n.State == Lost || n.State == Shutdown:
		s.await(o)
		return
	}
	defer s.expire() // a new timeout counts from the old beginning, and may be over already
	o.At = s.cmd.At
	d := n.Decommission
	switch {
	case n.State == Decommissioned:
		return
	case !n.Leaving():
		s.begin(&o, nil)
	case d.Order == nil:
		s.amend(&o, d.Notice)
	case s.takesOver(d.Order), d.Order.Timeout != o.Timeout, d.Order.Gone != o.Gone:
		data := s.change(o)
		s.tell(EventDeadline, append(data, "deadline", Stamp(n.Decommission.Deadline()))...)
		return
	default:
		return
	}
	s.tell(EventDecommissioning, "decommission", n.Decommission.ID, "deadline", Stamp(n.Decommission.Deadline()), "reason", o.Reason)
}

// takesOver reports whether the command turns a standing order of the maintenance schedule or the host files into the operator's own, so
// that these do not take it back. A command without a timeout of its own that does not mark the node GONE only looks again, and does
// not take over.
func (s *step) takesOver(standing *Order) bool {
	c := s.cmd
	if c.Do != DoDecommission || c.LeavingOnly || c.Order.By != "" {
		return false
	}
	_, said := c.Timeouts[s.name]
	if c.Unsaid && !said && !c.Order.Gone {
		return false
	}
	return standing.By == ByMaintenance || standing.By == byHosts
}

// change replaces the standing order with o and lets its clock go on. It returns data for the event.
func (s *step) change(o Order) (data []string) {
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
		return ErrGone
	}
	d := n.Decommission
	n.Recalled = s.cmd.At
	switch {
	case n.Leaving() && d.Notice != nil && d.Notice.Kind != Echo:
		if d.Order == nil {
			return ErrOwnNotice
		}
		s.amend(nil, d.Notice)
		s.tell(EventRecommissioned, "still", "leaving on its own notice")
	case n.Leaving() || n.State == Decommissioned:
		s.end(undone)
		s.activate(EventRecommissioned)
	case n.ordered(): // LOST: only the order is taken back
		s.end(undone)
		s.tell(EventRecommissioned, "still", string(n.State))
	}
	return nil
}

// expire ends a decommission whose time is up.
func (s *step) expire() {
	n := &s.node
	if !n.Late(s.cmd.At) {
		return
	}
	s.end(TimedOut)
	n.State = Decommissioned
	s.tell(EventDecommissioned, "outcome", string(TimedOut), "decommission", n.Decommission.ID)
}

// cut ends the node's stay at once, for an order that gives it no time. The node may still be there, and say later what became of its
// blocks.
func (s *step) cut(o Order, left State, event string) {
	n := &s.node
	if n.State == Decommissioned || n.State == left && !n.ordered() {
		return
	}
	o.At, o.Timeout = s.cmd.At, 0
	if d := n.Decommission; n.Leaving() || n.ordered() {
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
	if o.Gone { // GONE is for ever: it goes beyond what any list can do
		left, event = Decommissioned, EventDecommissioned
	}
	s.end(Forced)
	n.State = left
	s.tell(event, "outcome", string(Forced), "decommission", n.Decommission.ID, "reason", o.Reason)
}

// lose makes the node LOST when its lease runs out. A leaving node with a deadline is left to the deadline: it may well be draining where
// the coordinator cannot hear it.
func (s *step) lose() {
	n := &s.node
	switch {
	case s.cmd.Overdue: // it said that it would be back, and may be by now
		if n.State != Shutdown || n.ShutOut() {
			return
		}
	case n.Leaving() && n.Decommission.Deadline().IsZero():
		s.end(silenced)
	case n.State != Active:
		return
	}
	n.State = Lost
	s.tell(EventLost)
}

// begin opens a decommission. If the node's silence broke one off and its order stands, that one goes on with its id and clock.
func (s *step) begin(o *Order, nt *Notice) {
	if o != nil && o.At.IsZero() {
		from := *o
		from.At = s.cmd.At
		o = &from
	}
	d := &Decommission{ID: s.id("dec"), StartedAt: s.cmd.At, Order: o, Notice: nt}
	if s.node.ordered() {
		d.ID, d.StartedAt, d.Told = s.node.Decommission.ID, s.node.Decommission.StartedAt, s.node.Decommission.Told
	}
	s.node.State, s.node.Decommission, s.node.Manifest = Decommissioning, d, nil
}

func (s *step) amend(o *Order, nt *Notice) {
	d := *s.node.Decommission
	d.Order, d.Notice = o, nt
	s.node.Decommission = &d
}

func (s *step) end(how Outcome) {
	if s.node.Decommission == nil {
		return
	}
	d := *s.node.Decommission
	d.Outcome, d.EndedAt = how, s.cmd.At
	s.node.Decommission = &d
}

// activate makes the node ACTIVE, unless the host files or the maintenance schedule keep it out.
func (s *step) activate(event string, data ...string) {
	if j := s.judge(); j.Excluded() {
		s.node.State = Decommissioned
		s.tell(EventDecommissioned, "outcome", string(Forced), "reason", j.Why)
		return
	}
	s.node.State, s.node.ReturnedAt = Active, s.cmd.At
	s.tell(event, data...)
}

// id makes an id that no other node or decommission has: it contains the index of the event that is about to tell of it.
func (s *step) id(kind string) string {
	return kind + "-" + strconv.FormatUint(s.last+uint64(len(s.events))+1, 10)
}

func (s *step) tell(what string, data ...string) {
	e := Event{Index: s.last + uint64(len(s.events)) + 1, Time: s.cmd.At, Type: what, Node: s.name}
	e.Data = Saying(append(data, "by", s.cmd.Asked.by())...)
	s.events = append(s.events, e)
}

// Saying is a map from keys and values in turn, without those whose value is empty; nil: all are.
func Saying(data ...string) (said map[string]string) {
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
		"deadline", Stamp(d.Deadline()), "reason", d.Notice.Reason)
}

func near(a, b time.Time) bool {
	return a.IsZero() == b.IsZero() && a.Sub(b).Abs() <= slack
}

// Stamp is an instant in an event; empty: none.
func Stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339Nano)
}

// Yes is "yes" if b, else "", which events and records leave out.
func Yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}
