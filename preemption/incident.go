package preemption

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"slices"
	"time"
)

// Incident is what all notices about one end of this machine's life add up to. A node has at most one open.
//
// It is plain data with no clock of its own, so it can be kept as JSON and is found unchanged after a restart. It is not
// safe for concurrent use, but a copy stays as it was when the original is joined.
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
// forgets one, unless it is the operator's, and makes it graver, but never lighter: only a withdrawal does. Withdrawing what
// never joined is nothing.
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
			next.Kind, next.Reason, next.Stance, next.Appointed = n.Kind, n.Reason, n.Stance, n.Appointed
		}
		next.Stands = n.Stands
		told := !n.Deadline.IsZero() || n.Source == SourceOperator // whose order is whole each time, and may have lost its limit
		if told && !sameInstant(n.Deadline, known.Deadline) {
			next.Deadline, next.Appointed = n.Deadline, n.Appointed
		}
	}
	if next == known {
		return false
	}
	i.Notices = slices.Clone(i.Notices)
	i.Notices[at] = next
	return true
}

// knows tells whether n is in force here as it is said: joining it would change nothing.
func (i Incident) knows(n Notice) bool { return !i.Join(n) }

// InForce returns the notices that were not withdrawn.
func (i *Incident) InForce() []Notice {
	return slices.DeleteFunc(slices.Clone(i.Notices), func(n Notice) bool { return n.Withdrawn })
}

// From tells whether a notice in force is of one of these sources.
func (i *Incident) From(sources ...string) bool {
	return slices.ContainsFunc(i.Notices, func(n Notice) bool { return !n.Withdrawn && slices.Contains(sources, n.Source) })
}

// SaidHere tells whether a notice in force is one that Manual.Withdraw takes back.
func (i *Incident) SaidHere() bool { return i.From(saidHere...) }

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

// Lead is how long before the deadline it was first noticed; nil: no deadline is known. A clock that is set moves both alike, so that
// the same deadline has the same lead in every journal.
func (i *Incident) Lead() *time.Duration {
	d := i.Deadline()
	if d.IsZero() {
		return nil
	}
	return new(d.Sub(i.NoticedAt()))
}

// Moved tells whether the deadline is another than when its lead was that one.
func (i *Incident) Moved(lead *time.Duration) bool {
	now := i.Lead()
	return (lead == nil) != (now == nil) || now != nil && (*lead-*now).Abs() > slack
}

// NoticedAt is when the first of the notices was seen.
func (i *Incident) NoticedAt() time.Time {
	var first time.Time
	for _, n := range i.Notices {
		first = earliest(first, n.SeenAt)
	}
	return first
}

// LeftAt is when the node began to leave for the notice that sets the deadline, which is what its time is measured from; where
// that is for later, or nobody knows a deadline, for the first in force. Advice may have stood for weeks before that. Before it
// leaves, it is when the first was seen.
func (i *Incident) LeftAt() time.Time {
	if at := i.binding().LeftAt; !at.IsZero() {
		return at
	}
	var first time.Time
	rehearsed := i.Rehearsed()
	for _, n := range i.InForce() {
		if rehearsed || n.Source != SourceRehearsal {
			first = earliest(first, n.LeftAt)
		}
	}
	if first.IsZero() {
		return i.NoticedAt()
	}
	return first
}

// Leaving tells whether the node has begun to leave for a notice in force.
func (i *Incident) Leaving() bool {
	return slices.ContainsFunc(i.Notices, func(n Notice) bool { return !n.Withdrawn && !n.LeftAt.IsZero() })
}

// leave notes for which notices the node leaves now, and reports whether there are any that it did not leave for before.
func (i *Incident) leave(now time.Time, estimate time.Duration) (begins bool) {
	for at, n := range i.Notices {
		if goes, _ := n.goesAt(now, estimate); n.Withdrawn || !n.LeftAt.IsZero() || !goes.AtLeast(StanceDrain) {
			continue
		}
		if !begins {
			i.Notices, begins = slices.Clone(i.Notices), true
		}
		i.Notices[at].LeftAt = now
	}
	return begins
}

// hurry has the time of a notice whose deadline was moved closer count from now: the node could not know of it before. One that is
// moved to this moment, as that of an event of Azure's that somebody lets begin, is one that leaves no time at all.
func (i *Incident) hurry(was Incident, now time.Time) {
	for at, n := range i.Notices { // what joins comes after those that were there
		if at == len(was.Notices) {
			break
		}
		before := was.Notices[at].Deadline
		if !n.LeftAt.IsZero() && !n.Deadline.IsZero() && (before.IsZero() || before.Sub(n.Deadline) > slack) {
			i.Notices[at].LeftAt = now // in a copy: its deadline was changed
		}
	}
}

// Deadline is when the machine goes, as far as anybody said: the earliest deadline in force that binds. A time that
// comes with mere advice binds nobody. Zero: not known.
func (i *Incident) Deadline() time.Time { return i.binding().Deadline }

// leastAhead is how long before an appointment the node begins to leave at the latest: what EC2 gives for all.
const leastAhead = 2 * time.Minute

// Stance is how far the node should go at an instant, and when that changes by itself, which it does once at most, for an
// appointment (zero: it does not). estimate is how long emptying the node would take. An appointment is left for three
// times that before it; until then a node that will leave copies ahead, and one that only steps aside serves on.
func (i *Incident) Stance(now time.Time, estimate time.Duration) (stance Stance, changes time.Time) {
	stance = StanceIgnore
	for _, n := range i.Notices {
		if n.Withdrawn {
			continue
		}
		goes, begin := n.goesAt(now, estimate)
		if !begin.IsZero() {
			changes = earliest(changes, begin)
		}
		if goes.AtLeast(stance) {
			stance = goes
		}
	}
	return stance, changes
}

// goesAt is how far the node goes for one notice, and when it goes further by itself (zero: it does not).
func (n Notice) goesAt(now time.Time, estimate time.Duration) (goes Stance, changes time.Time) {
	goes = n.goes()
	begin := n.Deadline.Add(-max(3*estimate, leastAhead))
	if !n.Appointed || n.Deadline.IsZero() || !now.Before(begin) {
		return goes, time.Time{}
	}
	early := StanceIgnore
	if goes.AtLeast(StancePreCopy) {
		early = StancePreCopy
	}
	if goes == early {
		return goes, time.Time{}
	}
	return early, begin
}

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

// goes is how far the node goes for this notice when it is time to.
func (n Notice) goes() Stance {
	if n.Stance != "" {
		return n.Stance
	}
	return n.Kind.stance()
}

// gravest is the most severe notice in force, the first of several; of the withdrawn ones when none is in force. What the
// policy goes further for is graver.
func (i *Incident) gravest() Notice {
	var gravest Notice // of no known kind: any other is graver
	all, rehearsed := i.Withdrawn(), i.Rehearsed()
	for _, n := range i.Notices {
		if n.Withdrawn && !all || !rehearsed && n.Source == SourceRehearsal {
			continue
		}
		further := n.goes() != gravest.goes() && n.goes().AtLeast(gravest.goes())
		if gravest.Source == "" || further || n.goes() == gravest.goes() && n.Kind.severity() > gravest.Kind.severity() {
			gravest = n
		}
	}
	return gravest
}

// Rehearsed tells whether the node goes further for a rehearsal than for anything in earnest. What is pretended counts for
// nothing beside what goes as far, and advice that goes less far makes no rehearsal earnest. Once all are withdrawn, it is
// what was.
func (i *Incident) Rehearsed() bool {
	all, earnest, pretended := i.Withdrawn(), StanceIgnore, StanceIgnore
	for _, n := range i.Notices {
		goes := &earnest
		if n.Source == SourceRehearsal {
			goes = &pretended
		}
		if (all || !n.Withdrawn) && n.goes().AtLeast(*goes) {
			*goes = n.goes()
		}
	}
	return !earnest.AtLeast(pretended)
}

// binding is the notice in force whose deadline comes first among those that make a node leave.
func (i *Incident) binding() Notice {
	var binding Notice
	rehearsed := i.Rehearsed()
	for _, n := range i.Notices {
		if n.Withdrawn || n.Deadline.IsZero() || !n.goes().AtLeast(StanceDrain) || !rehearsed && n.Source == SourceRehearsal {
			continue
		}
		if binding.Deadline.IsZero() || n.Deadline.Before(binding.Deadline) {
			binding = n
		}
	}
	return binding
}

// OutlivedAt is the instant from which a machine that still lives has outlived this incident: all in it that go furthest. What
// stands beside them and goes less far ends with none of them. Zero: it can last for ever, as an operator's word does.
func (i *Incident) OutlivedAt() time.Time {
	var last time.Time
	furthest := StanceWatch
	for _, n := range i.InForce() {
		if n.goes() != furthest && n.goes().AtLeast(furthest) {
			furthest = n.goes()
		}
	}
	for _, n := range i.InForce() {
		switch at := n.outlivedAt(); {
		case n.goes() != furthest:
		case !at.IsZero():
			last = latest(last, at)
		case furthest == StanceDrain:
			return time.Time{}
		}
	}
	return last
}

// outlivedAt is the instant from which a machine that still lives has outlived this notice: a cloud that has not taken it ten
// minutes after it said it would has changed its mind without a word (an EC2 notice is known to stay, in the past, when a
// reclaim fails), and a rehearsal is over at its deadline. Zero: it can last for ever, or until it is taken back in so many words.
func (n Notice) outlivedAt() time.Time {
	switch {
	case n.Deadline.IsZero(), n.Stands:
	case n.Source == SourceRehearsal:
		return n.Deadline
	case fromCloud(n.Source) || n.Source == SourceLogind:
		return n.Deadline.Add(outliveAfter)
	}
	return time.Time{}
}

const outliveAfter = 10 * time.Minute

// Outlived tells whether the machine lives on though it should have gone by all in the incident, or a rehearsal is over.
func (i *Incident) Outlived() bool { return over(i.OutlivedAt()) }

// Outlived tells it of one notice.
func (n Notice) Outlived() bool { return over(n.outlivedAt()) }

func over(until time.Time) bool { return !until.IsZero() && !time.Now().Before(until) }

// Left is the time to a deadline, for logs. Where none is known nothing is said: 0s would be that it is now.
func Left(deadline time.Time) slog.Attr {
	if deadline.IsZero() {
		return slog.Attr{}
	}
	return slog.Duration("left", time.Until(deadline).Round(time.Millisecond))
}

// earliest is the earlier of two instants, where zero is no instant.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// latest is the later of two instants.
func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
