package agent

import (
	"context"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/preemption"
)

// state is what the agent knows of its own end: the open incident and the drain that empties the node.
type state struct {
	mu    sync.Mutex
	open  bool
	page  page
	drain *migration.Drain // the last one that began; nil: none since the start

	changed chan struct{} // closed and replaced when the incident changes
}

func (s *state) init() { s.changed = make(chan struct{}) }

// incident returns the open one.
func (s *state) incident() (preemption.Incident, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.page.Incident, s.open
}

func (s *state) read() (page, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.page, s.open
}

// update changes the page and wakes those who wait for a change.
func (s *state) update(open bool, p page) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open, s.page = open, p
	close(s.changed)
	s.changed = make(chan struct{})
}

// amend changes the open page, on disk first. Where the disk fails, the change stands all the same.
func (s *state) amend(j *journal, change func(*page)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.page)
	err := j.write(s.page)
	close(s.changed)
	s.changed = make(chan struct{})
	return err
}

func (s *state) changes() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// leaving says whether the open incident asks for a drain.
func (s *state) leaving() bool {
	i, open := s.incident()
	return open && i.Stance().AtLeast(preemption.StanceDrain)
}

// noticed says what the node is under, "" if nothing: a node under any notice takes no blocks.
func (s *state) noticed() string {
	i, open := s.incident()
	if !open || !i.Stance().AtLeast(preemption.StanceWatch) {
		return ""
	}
	return string(i.Kind())
}

func (s *state) setDrain(d *migration.Drain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain = d
}

// limitRate changes the cap of the running drain, if there is one.
func (s *state) limitRate(bytesPerSecond int64) {
	s.mu.Lock()
	d := s.drain
	s.mu.Unlock()
	if d != nil {
		d.Limit(bytesPerSecond)
	}
}

func (s *state) progress() (migration.Progress, bool) {
	s.mu.Lock()
	d := s.drain
	s.mu.Unlock()
	if d == nil {
		return migration.Progress{}, false
	}
	return d.Progress(), true
}

// join makes a notice part of the incident. It is on disk before anything acts on it.
func (a *Agent) join(ctx context.Context, n preemption.Notice) {
	began := time.Now()
	i, changed, err := a.news.join(a.journal, n)
	if !changed {
		return
	}
	if err != nil {
		// A full disk must not stop the drain that would empty it. The price: a restart now would not resume it.
		a.log.Error("the incident is not on disk: a restart would forget it", "incident", i.ID, "err", err)
	}
	a.log.Info("notice", "incident", i.ID, "kind", n.Kind, "source", n.Source, "withdrawn", n.Withdrawn, "stance", i.Stance(),
		"left", left(i.Deadline()), "reason", n.Reason, "took", time.Since(began))
	a.beat.Nudge()
	if p, _ := a.news.read(); i.Withdrawn() && !p.leftBehind() {
		a.recommission(ctx, errWithdrawn) // only watched: nothing was begun
	}
}

// join adds a notice to the open incident, or opens one. What changed is on disk before anybody sees it.
func (s *state) join(j *journal, n preemption.Notice) (i preemption.Incident, changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.page
	switch {
	case s.open:
		if !p.Incident.Join(n) {
			return p.Incident, false, nil
		}
	case n.Withdrawn:
		return preemption.Incident{}, false, nil // of something that never was an incident here
	default:
		p = page{Incident: preemption.Open(n)}
	}
	err = j.write(p)
	s.open, s.page = true, p
	close(s.changed)
	s.changed = make(chan struct{})
	return p.Incident, true, err
}

// leftBehind says whether a drain began: then leave, which runs it, ends it.
func (p page) leftBehind() bool {
	for _, n := range p.Incident.Notices {
		if n.Kind.Stance().AtLeast(preemption.StanceDrain) {
			return true
		}
	}
	return false
}

// DecommissionSelf is what the socket, the shell trigger and SIGPWR say: this node is going. A zero deadline is one that
// nobody knows. It returns the incident once it is on disk.
func (a *Agent) DecommissionSelf(ctx context.Context, source string, deadline time.Time, reason string) (preemption.Incident, error) {
	changed := a.news.changes()
	a.manual.Say(preemption.Notice{Source: source, ID: source, Kind: preemption.KindManual, Deadline: deadline, SeenAt: time.Now(), Reason: reason})
	for {
		if i, open := a.news.incident(); open && i.Stance().AtLeast(preemption.StanceDrain) && a.hasNotice(i, source) {
			return i, nil
		}
		select {
		case <-changed:
			changed = a.news.changes()
		case <-ctx.Done():
			return preemption.Incident{}, ctx.Err()
		}
	}
}

func (a *Agent) hasNotice(i preemption.Incident, source string) bool {
	for _, n := range i.Notices {
		if n.Source == source && !n.Withdrawn {
			return true
		}
	}
	return false
}

// Cancel takes back what DecommissionSelf said. still names the notice that keeps the node leaving all the same.
func (a *Agent) Cancel(ctx context.Context, reason string) (cancelled bool, still string) {
	cancelled = a.manual.Withdraw(reason)
	if !cancelled {
		i, open := a.news.incident()
		if open && !i.Withdrawn() {
			still = i.Source() + " says " + string(i.Kind())
		}
		return false, still
	}
	for changed := a.news.changes(); ; changed = a.news.changes() {
		i, open := a.news.incident()
		if !open {
			return true, ""
		}
		if !a.hasNotice(i, preemption.SourceManual) && !a.hasNotice(i, preemption.SourceSignal) && !i.Withdrawn() {
			return true, i.Source() + " says " + string(i.Kind())
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return true, ctx.Err().Error()
		}
	}
}
