package preemption

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Manual is the source for what is said on this host: DecommissionSelf by the socket, the command line or the shell
// trigger, SIGPWR, and rehearsals. It is safe for concurrent use.
type Manual struct {
	news *queue

	mu   sync.Mutex // guards said
	said []Notice   // in force
}

// saidHere are the sources that a Manual speaks for.
var saidHere = []string{SourceManual, SourceSignal, SourceRehearsal}

// NewManual returns a source that nobody has said anything to.
func NewManual() *Manual { return &Manual{news: newQueue()} }

// Believe tells what was said before a restart, so that Withdraw can take it back. Notices of other sources, and those
// already withdrawn, are passed over.
func (m *Manual) Believe(notices ...Notice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range notices {
		if slices.Contains(saidHere, n.Source) && !n.Withdrawn {
			m.said = append(m.said, n)
		}
	}
}

// Say passes a notice on. What is left empty is filled in: source and kind manual, the source's name as the id, seen
// now. Several scripts may say the same; a deadline that was given only ever gets earlier, since whoever named it may
// know why. To give the node more time, Withdraw and say it again. It returns the notice as it stands with all that was said.
func (m *Manual) Say(n Notice) Notice {
	n.Source = cmp.Or(n.Source, SourceManual)
	n.ID = cmp.Or(n.ID, n.Source)
	n.Kind = cmp.Or(n.Kind, KindManual)
	if n.SeenAt.IsZero() {
		n.SeenAt = time.Now()
	}
	n.Withdrawn = false

	m.mu.Lock()
	defer m.mu.Unlock()
	at := slices.IndexFunc(m.said, n.same)
	if at < 0 {
		m.said = append(m.said, n)
		m.news.push(n)
		return n
	}
	known := m.said[at]
	n.SeenAt = known.SeenAt
	n.Deadline = earliest(known.Deadline, n.Deadline)
	if n.Kind.severity() < known.Kind.severity() {
		n.Kind, n.Reason = known.Kind, known.Reason
	}
	if n.Kind == known.Kind && sameInstant(n.Deadline, known.Deadline) {
		return known
	}
	m.said[at] = n
	m.news.push(n)
	return n
}

// ErrTakenBack is the answer to a notice that was cancelled before it was part of an incident.
var ErrTakenBack = errors.New("the notice was taken back at the same moment")

// lookAgain is how often who waits for an incident looks whether there will be one: what was taken back changes none.
const lookAgain = time.Second

// Say passes a notice on, and returns the incident that it became part of, once that is on disk.
func Say[W any](ctx context.Context, m *Manual, k *Keeper[W], n Notice) (Incident, error) {
	n = m.Say(n)
	for {
		changed := k.Changes()
		if p, open := k.Open(); open && p.Incident.knows(n) {
			return p.Incident, nil
		}
		if !m.stands(n) {
			return Incident{}, ErrTakenBack
		}
		select {
		case <-changed:
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return Incident{}, ctx.Err()
		}
	}
}

// stands tells whether what was said is in force still, or about to be.
func (m *Manual) stands(n Notice) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.said, n.same)
}

// Withdraw takes back all that was said here, and tells whether there was anything.
func (m *Manual) Withdraw(reason string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.said {
		n.Withdrawn = true
		n.Reason = cmp.Or(reason, n.Reason)
		m.news.push(n)
	}
	said := len(m.said) > 0
	m.said = nil
	return said
}

// Forget drops what was said under notices that are over, so that it can be said anew.
func (m *Manual) Forget(notices ...Notice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = slices.DeleteFunc(m.said, func(n Notice) bool { return slices.ContainsFunc(notices, n.same) })
}

// Next blocks until something is said or withdrawn, or ctx ends.
func (m *Manual) Next(ctx context.Context) (Notice, error) { return m.news.pop(ctx) }
