package preemption

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"time"
)

// Incident is what all notices about one end of this machine's life add up to. A node has at most one open.
//
// It is plain data with no clock of its own, so the agent can keep it as JSON and find it unchanged after a restart. It
// is not safe for concurrent use, but a copy stays as it was when the original is joined.
type Incident struct {
	ID      string   `json:"id"`
	Notices []Notice `json:"notices"`
}

// Open starts an incident with its first notice, under a random id.
func Open(n Notice) Incident {
	var id [6]byte
	rand.Read(id[:]) // never fails: the runtime ends the process first
	return Incident{ID: "inc-" + hex.EncodeToString(id[:]), Notices: []Notice{n}}
}

// Join adds what a source said, and tells whether that changed anything. A notice that is repeated changes nothing. A
// source's newer word about the same notice moves its deadline either way (an operator may give more time), but never
// forgets one, and makes it graver, but never lighter: only a withdrawal does. Withdrawing what never joined is nothing.
func (i *Incident) Join(n Notice) bool {
	at := slices.IndexFunc(i.Notices, n.same)
	if at < 0 {
		if n.Withdrawn {
			return false
		}
		i.Notices = append(slices.Clip(i.Notices), n)
		return true
	}
	known := i.Notices[at]
	next := known
	switch {
	case n.Withdrawn:
		next.Withdrawn = true
	case known.Withdrawn: // it is back, as a new word
		next = n
		next.SeenAt = earliest(known.SeenAt, n.SeenAt)
	default:
		if n.Kind.severity() > known.Kind.severity() {
			next.Kind, next.Reason = n.Kind, n.Reason
		}
		if !n.Deadline.IsZero() && !sameInstant(n.Deadline, known.Deadline) {
			next.Deadline = n.Deadline
		}
	}
	if next == known {
		return false
	}
	i.Notices = slices.Clone(i.Notices)
	i.Notices[at] = next
	return true
}

// Withdrawn tells whether every notice was taken back: the node stays.
func (i *Incident) Withdrawn() bool {
	return !slices.ContainsFunc(i.Notices, func(n Notice) bool { return !n.Withdrawn })
}

// Kind is the gravest kind in force. Once all are withdrawn, it is what the gravest had been.
func (i *Incident) Kind() Kind { return i.gravest().Kind }

// Source is where the gravest notice came from.
func (i *Incident) Source() string { return i.gravest().Source }

// Reason is what the gravest notice gave as its reason.
func (i *Incident) Reason() string { return i.gravest().Reason }

// Stance is how far the node should go: that of the gravest notice in force, and none once all are withdrawn.
func (i *Incident) Stance() Stance {
	if i.Withdrawn() {
		return StanceIgnore
	}
	return i.Kind().Stance()
}

// NoticedAt is when the first of the notices was seen.
func (i *Incident) NoticedAt() time.Time {
	var first time.Time
	for _, n := range i.Notices {
		first = earliest(first, n.SeenAt)
	}
	return first
}

// Deadline is when the machine goes, as far as anybody said: the earliest deadline in force that binds. A time that
// comes with mere advice binds nobody. Zero: not known.
func (i *Incident) Deadline() time.Time { return i.binding().Deadline }

// Tail is how long before the deadline sending should stop, for the account to be given and the node to say goodbye. It
// follows the notice that sets the deadline: AWS calls its time approximate (EC2 User Guide, Spot Instance interruption
// notices), so more is kept back from it.
func (i *Incident) Tail() time.Duration {
	n := i.binding()
	if n.Deadline.IsZero() {
		n = i.gravest()
	}
	if n.Source == SourceEC2 {
		return 10 * time.Second
	}
	return 5 * time.Second
}

// gravest is the most severe notice in force, the first of several; of the withdrawn ones when none is in force.
func (i *Incident) gravest() Notice {
	var gravest Notice // of no known kind: any other is graver
	all := i.Withdrawn()
	for _, n := range i.Notices {
		if n.Withdrawn && !all {
			continue
		}
		if gravest.Source == "" || n.Kind.severity() > gravest.Kind.severity() {
			gravest = n
		}
	}
	return gravest
}

// binding is the notice in force whose deadline comes first among those that make a node leave.
func (i *Incident) binding() Notice {
	var binding Notice
	for _, n := range i.Notices {
		if n.Withdrawn || n.Deadline.IsZero() || !n.Kind.Stance().AtLeast(StanceDrain) {
			continue
		}
		if binding.Deadline.IsZero() || n.Deadline.Before(binding.Deadline) {
			binding = n
		}
	}
	return binding
}

// earliest is the earlier of two instants, where zero is no instant.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
