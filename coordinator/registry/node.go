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

// Node is all that is durably known of one node. Records are never changed once stored: a step changes a copy, which replaces the
// record. So a snapshot can be written while commands are applied.
type Node struct {
	Name  string    `json:"name"`
	ID    string    `json:"id"`
	State State     `json:"state"`
	Since time.Time `json:"since"`          // in this state
	Began time.Time `json:"began,omitzero"` // as this machine: when it registered first
	Facts
	ReturnedAt   time.Time     `json:"returned_at,omitzero"` // when it last became ACTIVE again: what it named as lost is there again
	Recalled     time.Time     `json:"recalled,omitzero"`    // when an operator last took an order to leave back
	Decommission *Decommission `json:"decommission,omitempty"`
	Manifest     *ManifestRef  `json:"manifest,omitempty"`    // of the last decommission, once it ended
	Excluded     bool          `json:"excluded,omitempty"`    // its last word on its disks is that all are unwell
	Deactivated  bool          `json:"deactivated,omitempty"` // an operator said that it gets nothing new
	Gone         bool          `json:"gone,omitempty"`        // it is DECOMMISSIONED for ever
	Namesake     bool          `json:"namesake,omitempty"`    // another machine had its name before
}

// RegisteredAt is the index of the event with which this machine registered. It is part of the node's id (step.id).
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

// Order is an operator's order to leave. Its deadline is At plus Timeout; a changed timeout leaves At as it is, so it starts no new clock.
// At is zero while the node is away and has not heard of the order.
type Order struct {
	At      time.Time     `json:"at"`
	Timeout time.Duration `json:"timeout"` // negative: without limit
	Reason  string        `json:"reason,omitempty"`
	By      string        `json:"by,omitempty"`   // byHosts, ByMaintenance, byDrain; empty: an operator's own
	Gone    bool          `json:"gone,omitempty"` // and the node never comes back
}

// Deadline is the instant when the order's time is up; zero: there is no limit.
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

// Echo is the kind of the notice that an agent opens on the coordinator's own order. The notice adds nothing to the order.
const Echo = "decommission"

// Pretended is the source of a rehearsal's notice and manifest: the node stays, and keeps its blocks.
const Pretended = "simulate"

// Deadline is the earlier of the order's and the notice's deadline; zero: neither has one.
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

// Reason is the order's reason, else the notice's.
func (d *Decommission) Reason() string {
	switch {
	case d.Order != nil && d.Order.Reason != "":
		return d.Order.Reason
	case d.Notice != nil:
		return d.Notice.Reason
	}
	return ""
}

// Leaving reports whether a decommission of n is under way.
func (n Node) Leaving() bool { return n.State == Decommissioning }

// ordered reports whether an order to leave stands, also while n is away and cannot hear it.
func (n Node) ordered() bool {
	d := n.Decommission
	return d != nil && d.Order != nil && (d.Outcome == running || d.Outcome == silenced)
}

// standing is the order that stands for n; nil: there is none, or it is over.
func (n Node) standing() *Order {
	if !n.ordered() {
		return nil
	}
	return n.Decommission.Order
}

// Wish is the order that replies to n's heartbeats carry; nil: none. A node that is done is still told of its order, until the order is
// taken back.
func (n Node) Wish() *Order {
	if d := n.Decommission; d != nil && (n.Leaving() || n.State == Decommissioned && !n.MayReturn()) {
		return d.Order
	}
	return nil
}

// Accounted reports whether n has given the account of its last decommission. A manifest from before n came back is of an earlier one, if n
// was ordered away again since.
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

// Shown is the state that people and programs see: GONE is a mark beside State.
func (n Node) Shown() State {
	if n.Gone {
		return Gone
	}
	return n.State
}

// MayReturn reports whether n is done with a decommission that was undone since: when it registers it becomes ACTIVE.
func (n Node) MayReturn() bool {
	return n.State == Decommissioned && !n.Gone && n.Decommission != nil && n.Decommission.Outcome == undone
}

// Forgettable reports whether an operator may have n forgotten.
func (n Node) Forgettable() bool { return n.State == Lost || n.Shown() == Gone }

// WaitsForApps reports whether n, which is leaving, stays for as long as apps need it: it leaves by an order, and no notice says that its
// machine goes.
func (n Node) WaitsForApps() bool {
	d := n.Decommission
	return n.Leaving() && d.Order != nil && (d.Notice == nil || d.Notice.Kind == Echo)
}
