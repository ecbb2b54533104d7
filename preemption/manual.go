package preemption

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Manual is the source of notices that are given on this host: DecommissionSelf by the socket, the command line or the shell
// trigger, SIGPWR, and rehearsals. It is safe for concurrent use.
type Manual struct {
	news *queue

	mu   sync.Mutex // guards said
	said []Notice   // in force
}

// saidHere are the sources that a Manual speaks for.
var saidHere = []string{SourceManual, SourceSignal, SourceRehearsal}

// NewManual returns a source without any notice.
func NewManual() *Manual { return &Manual{news: newQueue()} }

// Believe takes the notices from before a restart, so that Withdraw can take them back. It passes over withdrawn notices and
// those of other sources.
func (m *Manual) Believe(notices ...Notice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range notices {
		if slices.Contains(saidHere, n.Source) && !n.Withdrawn {
			m.said = append(m.said, n)
		}
	}
}

// Say passes a notice on. It fills in empty fields: source and kind manual, the source's name as the id, seen now. Several
// scripts may give the same notice. Its deadline only ever gets earlier, since the script that gave the earlier one may know
// why; to give the node more time, call Withdraw and Say again. Say returns the notice with everything that was said of it.
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

// lookAgain is how often Say looks whether its notice still stands: a notice that was taken back before it joined changes no
// incident.
const lookAgain = time.Second

// Say passes a notice on, and returns the incident that it joined, once that is on disk.
func Say[W any](ctx context.Context, m *Manual, k *Keeper[W], n Notice) (Incident, error) {
	n = m.Say(n)
	for {
		changed := k.Changes()
		said, stands := m.newest(n) // another caller may have hurried it since: then nothing joins that is just as n says
		if p, open := k.Open(); open && p.Incident.knows(said) {
			return p.Incident, nil
		}
		if !stands {
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

// newest returns what was last said of a notice; false: it has been taken back.
func (m *Manual) newest(n Notice) (said Notice, stands bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := slices.IndexFunc(m.said, n.same); at >= 0 {
		return m.said[at], true
	}
	return n, false
}

// Withdraw takes back all notices that were given here, and reports whether there were any.
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

// Forget drops notices that are over, so that they can be given anew.
func (m *Manual) Forget(notices ...Notice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = slices.DeleteFunc(m.said, func(n Notice) bool { return slices.ContainsFunc(notices, n.same) })
}

// Next blocks until something is said or withdrawn, or ctx ends.
func (m *Manual) Next(ctx context.Context) (Notice, error) { return m.news.pop(ctx) }
