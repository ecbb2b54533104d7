package registry

import (
	"fmt"
	"strconv"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/hosts"
)

// What happens, in words that scripts match on.
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

// slack is how far two readings of the same deadline may lie apart. It crosses the wire as a span, so each reading is
// late by the time the message travelled.
const slack = time.Second

// step is one command meeting one node. Every change is told by an event.
type step struct {
	name string
	node Node // a zero State: not known
	cmd  Command
	last uint64 // index of the last event before this step

	hosts    *hosts.Lists // in force
	schedule *Schedule    // of maintenance, in force

	wasScheduled *Schedule // before the command

	banned bool // who registers is GONE

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
	case DoTell: // what every command does at its end
	case DoDecommission:
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

// announce is the node saying that it leaves.
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
	case n.Leaving() && d.Order != nil:
		s.amend(d.Order, nil)
		s.tell(EventWithdrawn, "incident", s.cmd.Incident)
	case n.Leaving() || n.State == Decommissioned && d.Order == nil:
		s.end(undone)
		s.activate(EventRecommissioned, "incident", s.cmd.Incident)
	}
}

// goodbye is the node's account of its decommission. It may come late, or from a node whose notice never reached us.
func (s *step) goodbye() {
	n, ref := &s.node, s.cmd.Manifest
	counts := []string{"moved", strconv.FormatInt(ref.Moved, 10), "lost", strconv.FormatInt(ref.Lost, 10), "skipped", strconv.FormatInt(ref.Skipped, 10), "rehearsal", Yes(ref.rehearsed())}
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
		return // it stays after all, and this account was overtaken on the way
	case !n.Leaving():
		s.begin(n.standing(), &Notice{Incident: ref.Incident, Kind: "unknown", Source: "manifest", Reason: "told by its manifest only"})
	}
	s.end(Drained)
	n.State, n.Manifest = Decommissioned, ref
	s.tell(EventDecommissioned, append(counts, "outcome", string(Drained), "decommission", n.Decommission.ID)...)
}

// ask wants the node gone by o: at once when that gives it no time, and when it is away, once it is back.
func (s *step) ask(o Order) {
	n := &s.node
	if d := n.Decommission; d != nil && d.Order != nil && d.Outcome != undone {
		o.Gone = o.Gone || d.Order.Gone
	}
	if n.State == Decommissioned && o.Gone && !n.Gone {
		o.At = s.cmd.At
		s.amend(&o, n.Decommission.Notice)
		if n.Decommission.Outcome == undone { // it might have come back
			s.end(Forced)
		}
		return
	}
	switch {
	case s.cmd.LeavingOnly && !n.Leaving():
		return
	case !n.Leaving() && o.Timeout == 0:
		s.cut(o, Decommissioned, EventDecommissioned)
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

// takesOver says whether the command makes an operator's own of an order that is the maintenance schedule's or the host files',
// which would else take it back. Who says no time and marks nothing only looks again.
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

// change puts o in the place of the order that stands, whose clock goes on. It returns what there is to tell of it.
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

// cut ends, at once, what an order with no time is for. The node may be there still, and say what became of its blocks.
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
	if o.Gone { // which no list shuts out any further
		left, event = Decommissioned, EventDecommissioned
	}
	s.end(Forced)
	n.State = left
	s.tell(event, "outcome", string(Forced), "decommission", n.Decommission.ID, "reason", o.Reason)
}

// lose is the lease running out. A leaver with a deadline is left to the deadline: it may well be draining out of our sight.
func (s *step) lose() {
	n := &s.node
	switch {
	case s.cmd.Overdue && n.State == Shutdown && !n.ShutOut(): // it said that it would be back
	case n.Leaving() && n.Decommission.Deadline().IsZero():
		s.end(silenced)
	case n.State != Active:
		return
	}
	n.State = Lost
	s.tell(EventLost)
}

// begin opens a decommission. One that the node's silence broke off goes on under its old name and clock.
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

// activate takes the node back, unless the host files keep it out on their part.
func (s *step) activate(event string, data ...string) {
	if j := s.judge(); j.Excluded() {
		s.node.State = Decommissioned
		s.tell(EventDecommissioned, "outcome", string(Forced), "reason", j.Why)
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
	e := Event{Index: s.last + uint64(len(s.events)) + 1, Time: s.cmd.At, Type: what, Node: s.name}
	e.Data = Saying(append(data, "by", s.cmd.Asked.by())...)
	s.events = append(s.events, e)
}

// Saying is what words and their values say, a word before each value; a word without one says nothing. Nil: nothing is said.
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

// Yes is "yes" in an event or a record, which say nothing of what is not so.
func Yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}
