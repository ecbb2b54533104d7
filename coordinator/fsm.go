package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// State is where a node stands.
type State string

const (
	Active          State = "ACTIVE"
	Decommissioning State = "DECOMMISSIONING"
	Decommissioned  State = "DECOMMISSIONED"
	Lost            State = "LOST"     // its lease ran out
	Shutdown        State = "SHUTDOWN" // it said that it would be silent
	Gone            State = "GONE"     // it is DECOMMISSIONED, and an operator said that it never comes back
)

// States lists every state, in the order in which people are shown them.
var States = [...]State{Active, Decommissioning, Decommissioned, Lost, Shutdown, Gone}

// outcome is how a decommission ended.
type outcome string

const (
	running  outcome = ""
	drained  outcome = "drained" // the node said goodbye
	timedOut outcome = "timeout" // the leader's clock ended it
	silenced outcome = "lost"    // the node fell silent and nothing bounded the wait
	undone   outcome = "undone"  // withdrawn by the node or recommissioned by an operator
)

// node is all that is durably known of one node. Records are never changed once stored: a step takes a copy and stores
// another, so a snapshot may be written while commands go on.
type node struct {
	Name  string    `json:"name"`
	ID    string    `json:"id"`
	State State     `json:"state"`
	Since time.Time `json:"since"`          // in this state
	Began time.Time `json:"began,omitzero"` // as this machine: when it registered first
	facts
	ReturnedAt   time.Time     `json:"returned_at,omitzero"` // when it last became ACTIVE again: what it lost before, it has again
	Decommission *decommission `json:"decommission,omitempty"`
	Manifest     *manifestRef  `json:"manifest,omitempty"`    // of the last decommission, once it ended
	Excluded     bool          `json:"excluded,omitempty"`    // it said that all its disks are unwell, and has not said otherwise
	Deactivated  bool          `json:"deactivated,omitempty"` // an operator wants it given nothing new
	Gone         bool          `json:"gone,omitempty"`        // it is DECOMMISSIONED for ever
	Namesake     bool          `json:"namesake,omitempty"`    // another machine had its name before
}

// registeredAt is the event with which this machine came under its name: its id says (step.id).
func (n node) registeredAt() uint64 {
	at, err := strconv.ParseUint(strings.TrimPrefix(n.ID, "node-"), 10, 64)
	if err != nil {
		return 0
	}
	return at
}

// facts are what a node says of itself when it registers.
type facts struct {
	Incarnation string `json:"incarnation"`
	PeerAddress string `json:"peer_address"`
	Zone        string `json:"zone,omitempty"`
	Pool        string `json:"pool,omitempty"`
	Version     string `json:"version,omitempty"`
}

// decommission is one passage out of the fleet. An operator's order, the node's own notice, or both stand behind it.
type decommission struct {
	ID        string    `json:"id"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	Outcome   outcome   `json:"outcome,omitempty"`
	Order     *order    `json:"order,omitempty"`
	Notice    *notice   `json:"notice,omitempty"`
	Told      bool      `json:"told,omitempty"` // of its executors
}

// order is an operator's wish. Its deadline counts from At whenever the timeout changes: a new timeout starts no new clock.
// At is zero while the node that it is for has yet to come back and hear it.
type order struct {
	At      time.Time     `json:"at"`
	Timeout time.Duration `json:"timeout"` // negative: without limit
	Reason  string        `json:"reason,omitempty"`
	By      string        `json:"by,omitempty"`   // byHosts, byMaintenance, byDrain; empty: an operator's own
	Gone    bool          `json:"gone,omitempty"` // and it never comes back
}

func (o *order) deadline() time.Time {
	if o.Timeout < 0 {
		return time.Time{}
	}
	return o.At.Add(o.Timeout)
}

// notice is what a node said it is under.
type notice struct {
	Incident string    `json:"incident"`
	Kind     string    `json:"kind"`
	Source   string    `json:"source"`
	Deadline time.Time `json:"deadline,omitzero"`
	Reason   string    `json:"reason,omitempty"`
}

// echo is the kind of the notice that an agent opens because of our own order: it adds nothing to the order.
const echo = "decommission"

// pretended is the source of the notice of a rehearsal, and of its account: the node stays, and has its blocks.
const pretended = "simulate"

// deadline is the earliest instant that binds d, or zero.
func (d *decommission) deadline() time.Time {
	var at time.Time
	if d.Order != nil {
		at = d.Order.deadline()
	}
	if d.Notice != nil && !d.Notice.Deadline.IsZero() && (at.IsZero() || d.Notice.Deadline.Before(at)) {
		at = d.Notice.Deadline
	}
	return at
}

func (d *decommission) reason() string {
	switch {
	case d.Order != nil && d.Order.Reason != "":
		return d.Order.Reason
	case d.Notice != nil:
		return d.Notice.Reason
	}
	return ""
}

// leaving says whether a decommission of n is under way.
func (n node) leaving() bool { return n.State == Decommissioning }

// ordered says whether an operator wants n gone, also when n is not there to hear it.
func (n node) ordered() bool {
	d := n.Decommission
	return d != nil && d.Order != nil && (d.Outcome == running || d.Outcome == silenced)
}

// standing is the order that it is under; nil: none, or it is over.
func (n node) standing() *order {
	if !n.ordered() {
		return nil
	}
	return n.Decommission.Order
}

// accounted says whether n gave an account of its last decommission. One from before it came back, and was ordered away anew, is of
// an earlier one.
func (n node) accounted() bool {
	d := n.Decommission
	return n.Manifest != nil && (d == nil || !n.ReturnedAt.After(n.Manifest.At) || d.StartedAt.Before(n.ReturnedAt))
}

// manifestRef is the durable part of a manifest; the entries are in the file that it names.
type manifestRef struct {
	File        string    `json:"file"`
	Node        string    `json:"node"`
	Incarnation string    `json:"incarnation"`
	Incident    string    `json:"incident"`
	At          time.Time `json:"at"`
	Summary     []byte    `json:"summary"` // api.ManifestSummary
	Moved       int64     `json:"moved"`
	Lost        int64     `json:"lost"`
	Skipped     int64     `json:"skipped"`
	Bytes       int64     `json:"bytes,omitempty"`
	Finished    time.Time `json:"finished,omitzero"` // its drain, by the node's clock
}

// inTime says whether it is of d, and that was done before its deadline.
func (r *manifestRef) inTime(d *decommission) bool {
	own := d.Notice == nil || d.Notice.Incident == r.Incident
	return own && !r.rehearsed() && !r.Finished.IsZero() && !r.Finished.After(d.deadline())
}

// event is one thing that happened. The index of one in the log has no gaps and is the same after a restart.
type event struct {
	Index uint64            `json:"index"`
	Term  uint64            `json:"term,omitempty"` // of the leader that decided it
	Soft  uint64            `json:"-"`              // its number behind index, of what is in no log
	Time  time.Time         `json:"time"`
	Type  string            `json:"type"`
	Node  string            `json:"node"`
	Data  map[string]string `json:"data,omitempty"`
}

const (
	// keptEvents are for whoever was away for hours of a fleet in trouble, or months of a quiet one. They are some 4 MB of a
	// snapshot and 10 MB of memory, and less where less happened.
	keptEvents    = 16384
	keptManifests = 4096

	// forgetAfter is how long a node that is gone stays on the list, unless the settings say otherwise. Fleets of spot
	// machines never use a name twice.
	forgetAfter = 7 * 24 * time.Hour
)

// machine is the fleet's durable state. Commands go in, events come out. It reads no clock, draws no random number,
// depends on no map's order and touches nothing outside itself: every replica that applies the same log is the same.
type machine struct {
	Nodes     map[string]node `json:"nodes"`
	Events    []event         `json:"events"` // the newest, oldest first
	LastEvent uint64          `json:"last_event"`
	Manifests []*manifestRef  `json:"manifests"` // the newest, oldest first
	Hosts     hostsState      `json:"hosts,omitzero"`
	Audit     []auditRecord   `json:"audit,omitempty"` // the newest, oldest first
	LastAudit uint64          `json:"last_audit,omitempty"`
	Hooks     map[string]mark `json:"hooks,omitempty"` // how far webhooks are, by name; replaced, never changed
	Door      door            `json:"door,omitzero"`
	Lives     map[string]life `json:"lives,omitempty"`      // of apps; replaced, never changed
	Schedule  *schedule       `json:"schedule,omitempty"`   // of maintenance; replaced, never changed
	Banned    []string        `json:"banned,omitempty"`     // incarnations of nodes that are GONE, the newest last; replaced, never changed
	LivesSaid uint64          `json:"lives_said,omitempty"` // the newest event that says of an app that it is over, or not any more
	Forgotten fates           `json:"forgotten,omitempty"`  // replaced, never changed
	Began     time.Time       `json:"began,omitzero"`       // of its first event, or when it was restored: no other log has the same
}

func newMachine() *machine { return &machine{Nodes: map[string]node{}} }

// commandVersion is raised when an older coordinator could not apply a command as meant: it stops at what it cannot read.
const commandVersion = 1

// command is one entry of the log: what to do to which nodes. The leader stamps At.
type command struct {
	Version int       `json:"v"`
	At      time.Time `json:"at"`
	Do      verb      `json:"do"`
	Nodes   []string  `json:"nodes"`
	Asked   *asking   `json:"asked,omitempty"` // by an operator: recorded with what becomes of it
	term    uint64    // of the entry that it came in

	Facts       *facts       `json:"facts,omitempty"`        // register
	UnderNotice bool         `json:"under_notice,omitempty"` // register
	Reattach    bool         `json:"reattach,omitempty"`     // register: we lost sight of it, it did not go away
	Incarnation string       `json:"incarnation,omitempty"`  // of the caller, on all that a node says
	Notice      *notice      `json:"notice,omitempty"`       // announce
	Incident    string       `json:"incident,omitempty"`     // withdraw
	Order       *order       `json:"order,omitempty"`        // decommission; At is set when it is first applied
	LeavingOnly bool         `json:"leaving_only,omitempty"` // decommission: others stay as they are
	Overdue     bool         `json:"overdue,omitempty"`      // lose: nodes that announced a restart, too
	Manifest    *manifestRef `json:"manifest,omitempty"`     // goodbye
	Hosts       *hosts.Lists `json:"hosts,omitempty"`        // hosts; Order has the timeout of those without their own
	Force       bool         `json:"force,omitempty"`        // hosts
	Reason      string       `json:"reason,omitempty"`       // refuse-hosts, exclude, deactivate, reactivate, forget

	Timeouts  map[string]time.Duration `json:"timeouts,omitempty"`  // decommission: of single nodes, rather than the order's
	Drain     bool                     `json:"drain,omitempty"`     // decommission: and give them nothing new, should they come back
	Unsaid    bool                     `json:"unsaid,omitempty"`    // decommission: nobody said the order's timeout; nodes that have one keep it
	Executors map[string][]executor    `json:"executors,omitempty"` // what ran on nodes that begin to leave, or are ended
	After     time.Duration            `json:"after,omitempty"`     // forget: those that have been gone for longer; schedule, machines-up: who has longer stays
	Mark      *mark                    `json:"mark,omitempty"`      // mark
	Pass      *pass                    `json:"pass,omitempty"`      // pass
	Apps      []string                 `json:"apps,omitempty"`      // what is said of apps; Reason says why they are over
	Owner     string                   `json:"owner,omitempty"`     // of apps: whose certificate says so; empty: an operator, or the clock
	Lease     time.Duration            `json:"lease,omitempty"`     // beat-app
	Windows   []outage                 `json:"windows,omitempty"`   // schedule
	Add       bool                     `json:"add,omitempty"`       // schedule: those that stand in it stay
	Renews    bool                     `json:"renews,omitempty"`    // schedule: and some take the place of those that are over
	Machines  []scheduled              `json:"machines,omitempty"`  // machines-down, machines-up
	Named     bool                     `json:"named,omitempty"`     // forget: an operator names them, however short they have been gone
}

// maintains says whether c is about the maintenance schedule.
func (c command) maintains() bool {
	return c.Do == doSchedule || c.Do == doMachinesDown || c.Do == doMachinesUp
}

type verb string

const (
	doRegister     verb = "register"
	doAnnounce     verb = "announce"
	doWithdraw     verb = "withdraw"
	doUnavailable  verb = "unavailable"
	doGoodbye      verb = "goodbye"
	doDecommission verb = "decommission"
	doRecommission verb = "recommission"
	doLose         verb = "lose"
	doTimeout      verb = "timeout"
	doForget       verb = "forget"
	doRelease      verb = "release-brake" // an operator says that those are lost
	doTell         verb = "tell"          // of executors that nobody knew when their node began to leave
	doExclude      verb = "exclude"
	doReadmit      verb = "readmit"
	doDeactivate   verb = "deactivate"
	doReactivate   verb = "reactivate"
	doHosts        verb = "hosts" // about every node there is, as the next three
	doSchedule     verb = "schedule"
	doMachinesDown verb = "machines-down"
	doMachinesUp   verb = "machines-up"
	doRefuseHosts  verb = "refuse-hosts"
	doRecord       verb = "record" // of what was asked, and is no command
	doMark         verb = "mark"   // how far a webhook is
)

// Reasons why a command is refused. Nothing changed then.
var (
	errUnknownNode = errors.New("not known here")
	errIncarnation = errors.New("registered with another incarnation")
	errOwnNotice   = errors.New("leaving on its own notice")
)

// apply does c whole or not at all.
func (m *machine) apply(c command) ([]event, error) {
	if m.decided(c.Asked) {
		return nil, nil
	}
	t, err := m.try(c)
	events := t.events
	m.audit(c, events, err)
	if err != nil {
		return nil, err
	}
	for i := range events {
		events[i].Term = c.term
	}
	m.mark(c.Mark)
	m.Hosts, m.Schedule, m.Door, m.Lives = t.hosts, t.schedule, t.door, t.lives
	var forgotten []node
	for i, n := range t.nodes {
		if n.State == "" {
			forgotten = append(forgotten, m.Nodes[c.Nodes[i]])
			delete(m.Nodes, c.Nodes[i])
		} else {
			m.ban(n)
			m.Nodes[n.Name] = n
		}
	}
	m.Forgotten = m.Forgotten.with(forgotten, c.At)
	m.record(events)
	if len(c.Apps) > 0 && len(events) > 0 {
		m.LivesSaid = m.LastEvent
	}
	if c.Manifest != nil && len(events) > 0 {
		m.keep(c.Manifest)
	}
	return events, nil
}

// idle says whether c would change nothing, so that it need not be logged. That it was asked for is something to log.
func (m *machine) idle(c command) bool {
	if c.Asked != nil {
		return m.decided(c.Asked)
	}
	t, err := m.try(c)
	return err == nil && len(t.events) == 0 && !t.changed && !m.moves(c.Mark)
}

// trial is what a command would do.
type trial struct {
	nodes    []node
	hosts    hostsState
	schedule *schedule
	door     door
	lives    map[string]life
	changed  bool // the door or the lives: that need not have an event
	events   []event
}

// try works out what c would do. A step that has no event to tell has changed nothing, and its node stays as it was.
func (m *machine) try(c command) (t trial, err error) {
	t.hosts, t.schedule, t.door, t.lives = m.Hosts, m.Schedule, m.Door, m.Lives
	switch {
	case c.Pass != nil:
		t.door, t.changed, t.events, err = m.doorAfter(c)
		return t, err
	case len(c.Apps) > 0:
		t.lives, t.changed, t.events, err = m.livesAfter(c)
		return t, err
	}
	var told []event
	if t.schedule, told, err = m.scheduleAfter(c); err != nil {
		return trial{}, err
	}
	t.hosts, t.events = m.hostsAfter(c)
	t.events = append(t.events, told...)
	for _, name := range m.touched(c) {
		was := m.Nodes[name]
		s := step{
			node: was, cmd: c, name: name, banned: c.Facts != nil && slices.Contains(m.Banned, c.Facts.Incarnation), hosts: t.hosts.Lists, wasScheduled: m.Schedule, schedule: t.schedule, last: m.LastEvent + uint64(len(t.events)),
		}
		if err := s.take(); err != nil {
			return trial{}, fmt.Errorf("node %s: %w", name, err)
		}
		if len(s.events) == 0 {
			s.node = was
		}
		if s.node.State != was.State {
			s.node.Since = c.At
		}
		t.nodes, t.events = append(t.nodes, s.node), append(t.events, s.events...)
	}
	return t, nil
}

// record appends. It never writes into the part of the slice that a snapshot may be reading.
func (m *machine) record(events []event) {
	if m.Began.IsZero() && len(events) > 0 {
		m.Began = events[0].Time
	}
	m.Events = append(m.Events, events...)
	m.LastEvent += uint64(len(events))
	if len(m.Events) >= keptEvents+keptEvents/4 {
		m.Events = slices.Clone(m.Events[len(m.Events)-keptEvents:])
	}
}

// log is another number for each log; 0: it has no event yet.
func (m *machine) log() uint64 {
	if m.Began.IsZero() {
		return 0
	}
	return uint64(m.Began.UnixNano())
}

// keep adds a manifest; a repeated goodbye replaces what it said before.
func (m *machine) keep(ref *manifestRef) {
	kept := make([]*manifestRef, 0, len(m.Manifests)+1)
	for _, r := range m.Manifests {
		if r.Node != ref.Node || r.Incarnation != ref.Incarnation || r.Incident != ref.Incident {
			kept = append(kept, r)
		}
	}
	kept = append(kept, ref)
	kept = withinMost(kept, ref.Node)
	m.Manifests = kept[max(0, len(kept)-keptManifests):]
}

// withinMost drops the oldest manifests of a node that has more on the coordinators' disks, or in their memory, than one may have.
func withinMost(all []*manifestRef, node string) []*manifestRef {
	var bytes, entries int64
	for i, r := range slices.Backward(all) {
		if r.Node != node {
			continue
		}
		bytes += r.Bytes
		entries += min(r.Moved, maxEntries) + min(r.Lost, maxEntries) + min(r.Skipped, maxEntries)
		if i < len(all)-1 && (bytes > maxManifest || entries > maxEntries) {
			all = slices.Delete(all, i, i+1)
		}
	}
	return all
}

// inForce says whether what ref names as lost is lost still: a node that came back as itself brought its blocks along, and one that
// rehearsed has never gone.
func (m *machine) inForce(ref *manifestRef) bool {
	n, ok := m.Nodes[ref.Node]
	return (!ok || n.Incarnation != ref.Incarnation || n.ReturnedAt.Before(ref.At)) && !ref.rehearsed()
}

// freeze is a copy that later commands leave alone.
func (m *machine) freeze() *machine {
	c := *m
	c.Nodes = make(map[string]node, len(m.Nodes))
	maps.Copy(c.Nodes, m.Nodes)
	return &c
}

// thaw reads what a frozen machine was written as.
func thaw(data []byte) (*machine, error) {
	m := newMachine()
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return m, nil
}
