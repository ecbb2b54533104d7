package registry

import (
	"strconv"
	"strings"
	"time"
)

// State is where a node stands.
type State string

// States lists every state, in the order in which people are shown them.
var States = [...]State{Active, Decommissioning, Decommissioned, Lost, Shutdown, Gone}

// Outcome is how a decommission ended.
type Outcome string

const (
	running  Outcome = ""
	Drained  Outcome = "drained" // the node said goodbye
	TimedOut Outcome = "timeout" // the leader's clock ended it
	silenced Outcome = "lost"    // the node fell silent and nothing bounded the wait
	undone   Outcome = "undone"  // withdrawn by the node or recommissioned by an operator
)

// Node is all that is durably known of one node. Records are never changed once stored: a step takes a copy and stores
// another, so a snapshot may be written while commands go on.
type Node struct {
	Name  string    `json:"name"`
	ID    string    `json:"id"`
	State State     `json:"state"`
	Since time.Time `json:"since"`          // in this state
	Began time.Time `json:"began,omitzero"` // as this machine: when it registered first
	Facts
	ReturnedAt   time.Time     `json:"returned_at,omitzero"` // when it last became ACTIVE again: what it lost before, it has again
	Decommission *Decommission `json:"decommission,omitempty"`
	Manifest     *ManifestRef  `json:"manifest,omitempty"`    // of the last decommission, once it ended
	Excluded     bool          `json:"excluded,omitempty"`    // it said that all its disks are unwell, and has not said otherwise
	Deactivated  bool          `json:"deactivated,omitempty"` // an operator wants it given nothing new
	Gone         bool          `json:"gone,omitempty"`        // it is DECOMMISSIONED for ever
	Namesake     bool          `json:"namesake,omitempty"`    // another machine had its name before
}

// RegisteredAt is the event with which this machine came under its name: its id says (step.id).
func (n Node) RegisteredAt() uint64 {
	at, err := strconv.ParseUint(strings.TrimPrefix(n.ID, "node-"), 10, 64)
	if err != nil {
		return 0
	}
	return at
}

// Facts are what a node says of itself when it registers.
type Facts struct {
	Incarnation string `json:"incarnation"`
	PeerAddress string `json:"peer_address"`
	Zone        string `json:"zone,omitempty"`
	Pool        string `json:"pool,omitempty"`
	Version     string `json:"version,omitempty"`
}

// Decommission is one passage out of the fleet. An operator's order, the node's own notice, or both stand behind it.
type Decommission struct {
	ID        string    `json:"id"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	Outcome   Outcome   `json:"outcome,omitempty"`
	Order     *Order    `json:"order,omitempty"`
	Notice    *Notice   `json:"notice,omitempty"`
	Told      bool      `json:"told,omitempty"` // of its executors
}

// Order is an operator's wish. Its deadline counts from At whenever the timeout changes: a new timeout starts no new clock.
// At is zero while the node that it is for has yet to come back and hear it.
type Order struct {
	At      time.Time     `json:"at"`
	Timeout time.Duration `json:"timeout"` // negative: without limit
	Reason  string        `json:"reason,omitempty"`
	By      string        `json:"by,omitempty"`   // byHosts, ByMaintenance, byDrain; empty: an operator's own
	Gone    bool          `json:"gone,omitempty"` // and it never comes back
}

// Deadline is when its time is up; zero: it has no limit.
func (o *Order) Deadline() time.Time {
	if o.Timeout < 0 {
		return time.Time{}
	}
	return o.At.Add(o.Timeout)
}

// Notice is what a node said it is under.
type Notice struct {
	Incident string    `json:"incident"`
	Kind     string    `json:"kind"`
	Source   string    `json:"source"`
	Deadline time.Time `json:"deadline,omitzero"`
	Reason   string    `json:"reason,omitempty"`
}

// Echo is the kind of the notice that an agent opens because of our own order: it adds nothing to the order.
const Echo = "decommission"

// Pretended is the source of the notice of a rehearsal, and of its account: the node stays, and has its blocks.
const Pretended = "simulate"

// Deadline is the earliest instant that binds d, or zero.
func (d *Decommission) Deadline() time.Time {
	var at time.Time
	if d.Order != nil {
		at = d.Order.Deadline()
	}
	if d.Notice != nil && !d.Notice.Deadline.IsZero() && (at.IsZero() || d.Notice.Deadline.Before(at)) {
		at = d.Notice.Deadline
	}
	return at
}

// Reason is the operator's, else the notice's.
func (d *Decommission) Reason() string {
	switch {
	case d.Order != nil && d.Order.Reason != "":
		return d.Order.Reason
	case d.Notice != nil:
		return d.Notice.Reason
	}
	return ""
}

// Leaving says whether a decommission of n is under way.
func (n Node) Leaving() bool { return n.State == Decommissioning }

// ordered says whether an operator wants n gone, also when n is not there to hear it.
func (n Node) ordered() bool {
	d := n.Decommission
	return d != nil && d.Order != nil && (d.Outcome == running || d.Outcome == silenced)
}

// standing is the order that it is under; nil: none, or it is over.
func (n Node) standing() *Order {
	if !n.ordered() {
		return nil
	}
	return n.Decommission.Order
}

// Wish is the order that n is told of, until it is done and nobody wishes it any more; nil: none.
func (n Node) Wish() *Order {
	if d := n.Decommission; d != nil && (n.Leaving() || n.State == Decommissioned && !n.MayReturn()) {
		return d.Order
	}
	return nil
}

// Accounted says whether n gave an account of its last decommission. One from before it came back, and was ordered away anew, is of
// an earlier one.
func (n Node) Accounted() bool {
	d := n.Decommission
	return n.Manifest != nil && (d == nil || !n.ReturnedAt.After(n.Manifest.At) || d.StartedAt.Before(n.ReturnedAt))
}

const (
	Active          State = "ACTIVE"
	Decommissioning State = "DECOMMISSIONING"
	Decommissioned  State = "DECOMMISSIONED"
	Lost            State = "LOST"     // its lease ran out
	Shutdown        State = "SHUTDOWN" // it said that it would be silent
	Gone            State = "GONE"     // it is DECOMMISSIONED, and an operator said that it never comes back
)

// Shown is the state that people and programs are told.
func (n Node) Shown() State {
	if n.Gone {
		return Gone
	}
	return n.State
}

// MayReturn says whether n is done with a decommission that nobody wishes any more: registering makes it ACTIVE.
func (n Node) MayReturn() bool {
	return n.State == Decommissioned && !n.Gone && n.Decommission != nil && n.Decommission.Outcome == undone
}

// Forgettable says whether an operator may have n forgotten.
func (n Node) Forgettable() bool { return n.State == Lost || n.Shown() == Gone }

// WaitsForApps says whether n stays for the sake of apps: it leaves by an order, and not because its machine goes.
func (n Node) WaitsForApps() bool {
	d := n.Decommission
	return n.Leaving() && d.Order != nil && (d.Notice == nil || d.Notice.Kind == Echo)
}
