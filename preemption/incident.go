package preemption

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"slices"
	"time"
)

// Incident sums up all notices about one end of this machine's life. A node has at most one open.
//
// It is plain data without a clock of its own, so it can be kept as JSON and is found unchanged after a restart. It is not
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

// Join adds a notice, and reports whether that changed anything. A repeated notice changes nothing. A source's newer word
// about a known notice moves its deadline either way (an operator may give more time), but never removes one, except an
// operator's. It makes the notice graver, but never lighter: only a withdrawal does that. The withdrawal of a notice that
// never joined changes nothing.
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
	case known.Withdrawn: // it is back, with everything it says now
		next = n
		next.SeenAt = earliest(known.SeenAt, n.SeenAt)
	default:
		if n.Kind.severity() > known.Kind.severity() {
			next.Kind, next.Reason, next.Stance, next.Appointed = n.Kind, n.Reason, n.Stance, n.Appointed
		}
		next.Stands = n.Stands
		told := !n.Deadline.IsZero() || n.Source == SourceOperator // an operator's order is always complete: without a deadline it has lost the one it had
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

// knows reports whether n is already part of the incident just as it is said: joining it would change nothing.
func (i Incident) knows(n Notice) bool { return !i.Join(n) }

// InForce returns the notices that were not withdrawn.
func (i *Incident) InForce() []Notice {
	return slices.DeleteFunc(slices.Clone(i.Notices), func(n Notice) bool { return n.Withdrawn })
}

// From reports whether a notice in force comes from one of these sources.
func (i *Incident) From(sources ...string) bool {
	return slices.ContainsFunc(i.Notices, func(n Notice) bool { return !n.Withdrawn && slices.Contains(sources, n.Source) })
}

// SaidHere reports whether a notice in force is one that Manual.Withdraw takes back.
func (i *Incident) SaidHere() bool { return i.From(saidHere...) }

// Withdrawn tells whether every notice was taken back: the node stays.
func (i *Incident) Withdrawn() bool {
	return !slices.ContainsFunc(i.Notices, func(n Notice) bool { return !n.Withdrawn })
}

// Kind is the gravest kind in force. Once all notices are withdrawn, it is the gravest kind that was.
func (i *Incident) Kind() Kind { return i.gravest().Kind }

// Source is the source of the gravest notice.
func (i *Incident) Source() string { return i.gravest().Source }

// Reason is the reason of the gravest notice.
func (i *Incident) Reason() string { return i.gravest().Reason }

// Lead is the time from the first sight of the incident to its deadline; nil: no deadline is known. A step of the clock
// moves both instants alike, so the same deadline has the same lead in every journal.
func (i *Incident) Lead() *time.Duration {
	d := i.Deadline()
	if d.IsZero() {
		return nil
	}
	return new(d.Sub(i.NoticedAt()))
}

// Moved reports whether the deadline has moved since the incident had that lead.
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

// LeftAt is when the node began to leave for the notice that sets the deadline; the node's time is measured from then, since
// advice may have stood for weeks before. If the node does not leave for that notice yet, or no deadline is known, LeftAt is
// when it began to leave for the first notice in force. Before it leaves at all, it is when the first notice was seen.
func (i *Incident) LeftAt() time.Time {
	if at := i.binding().LeftAt; !at.IsZero() {
		return at
	}
	return i.FirstLeftAt()
}

// FirstLeftAt is when the node began to leave for the first notice in force, whichever sets the deadline: its drain has run
// since. Before it leaves at all, it is when the first notice was seen.
func (i *Incident) FirstLeftAt() time.Time {
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

// leave marks the notices for which the node leaves now, and reports whether it did not leave for one of them before.
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

// hurry lets the time of a notice whose deadline was moved closer count from now, because the node could not know of it
// before. An event of Azure's that somebody lets begin has its deadline moved to this moment, and so leaves no time at all.
func (i *Incident) hurry(was Incident, now time.Time) {
	for at, n := range i.Notices { // a notice that joined comes after those that were there
		if at == len(was.Notices) {
			break
		}
		before := was.Notices[at].Deadline
		if !n.LeftAt.IsZero() && !n.Deadline.IsZero() && (before.IsZero() || before.Sub(n.Deadline) > slack) {
			i.Notices[at].LeftAt = now // Join has cloned the notices, for the deadline was changed
		}
	}
}

// Deadline is when the machine goes, as far as any source said: the earliest binding deadline in force. A time that comes
// with mere advice does not bind. Zero: not known.
func (i *Incident) Deadline() time.Time { return i.binding().Deadline }

// Ahead returns the incident without the deadlines that have passed by then: they say nothing more about a machine that is still there.
func (i Incident) Ahead(then time.Time) Incident {
	i.Notices = slices.Clone(i.Notices)
	for at, n := range i.Notices {
		if !n.Deadline.After(then) {
			i.Notices[at].Deadline = time.Time{}
		}
	}
	return i
}

// leastAhead is the latest time before an appointment at which the node begins to leave: as long as the notice that EC2
// gives every spot machine.
const leastAhead = 2 * time.Minute

// Stance is how far the node should go at an instant, and when that changes by itself, which an appointment does at most
// once (zero: it does not). estimate is how long emptying the node would take. The node leaves for an appointment three
// times that long before it. Until then a node that will leave copies ahead, and a node that only steps aside serves on.
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

// goesAt is how far the node goes for one notice at an instant, and when it goes further by itself (zero: it does not).
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

// Tail is how long before the deadline sending should stop, to leave time for the account and the goodbye. It depends on the
// notice that sets the deadline: AWS calls its time approximate (EC2 User Guide, Spot Instance interruption notices), so
// more of it is kept back.
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

// goes is how far the node goes for this notice once it is time to.
func (n Notice) goes() Stance {
	if n.Stance != "" {
		return n.Stance
	}
	return n.Kind.stance()
}

// soFar is how far the node has gone for this notice: before it leaves for an appointment it copies ahead at most.
func (n Notice) soFar() Stance {
	if goes := n.goes(); goes != StanceDrain || !n.Appointed || !n.LeftAt.IsZero() {
		return goes
	}
	return StancePreCopy
}

// gravest is the notice in force for which the policy goes furthest, and of several the most severe kind, and of those the
// first. When none is in force, it is taken from the withdrawn ones.
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

// Rehearsed reports whether the node goes further for a rehearsal than for any notice in earnest. A rehearsal does not count
// beside a notice in earnest for which the node goes as far. Advice, for which it goes less far, makes no rehearsal earnest,
// nor does an appointment for which the node need not leave before the rehearsal is over. Once all are withdrawn, it is what
// it was.
func (i *Incident) Rehearsed() bool {
	all, earnest, pretended := i.Withdrawn(), StanceIgnore, StanceIgnore
	var ends time.Time
	for _, n := range i.Notices {
		if n.Source == SourceRehearsal {
			ends = n.Deadline
		}
	}
	for _, n := range i.Notices {
		most, goes := &earnest, n.goes()
		switch {
		case n.Source == SourceRehearsal:
			most = &pretended
		case !ends.IsZero() && ends.Before(n.Deadline.Add(-leastAhead)):
			goes = n.soFar()
		}
		if (all || !n.Withdrawn) && goes.AtLeast(*most) {
			*most = goes
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

// OutlivedAt is the instant from which a machine that still lives has outlived the incident: every notice for which the node
// has gone furthest. Others do not count, such as an appointment that is far ahead when the node leaves for something else.
// Zero: never, as with an operator's order, which stands until it is taken back.
func (i *Incident) OutlivedAt() time.Time {
	var last time.Time
	furthest := StanceWatch
	for _, n := range i.InForce() {
		if n.soFar() != furthest && n.soFar().AtLeast(furthest) {
			furthest = n.soFar()
		}
	}
	for _, n := range i.InForce() {
		switch at := n.outlivedAt(); {
		case n.soFar() != furthest:
		case !at.IsZero():
			last = latest(last, at)
		case furthest == StanceDrain:
			return time.Time{}
		}
	}
	return last
}

// outlivedAt is the instant from which a machine that still lives has outlived this notice. A cloud that has not taken it
// ten minutes after the announced time has changed its mind without saying so (an EC2 notice is known to stay, in the past,
// when a reclaim fails), and a rehearsal is over at its deadline. Zero: the notice stands until it is withdrawn.
func (n Notice) outlivedAt() time.Time {
	switch {
	case n.Deadline.IsZero(), n.Stands:
	case n.Source == SourceRehearsal:
		return n.Deadline
	case n.Source == SourceLogind || slices.Contains(Providers(), n.Source):
		return n.Deadline.Add(outliveAfter)
	}
	return time.Time{}
}

const outliveAfter = 10 * time.Minute

// Outlived reports whether the machine lives on although every such notice should have taken it, or a rehearsal is over.
func (i *Incident) Outlived() bool { return over(i.OutlivedAt()) }

// Outlived reports whether the machine has outlived this notice.
func (n Notice) Outlived() bool { return over(n.outlivedAt()) }

func over(until time.Time) bool { return !until.IsZero() && !time.Now().Before(until) }

// Left is the time to a deadline, as an attribute of logs. It is empty where no deadline is known: 0s would mean now.
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
