package sidecar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
)

const (
	// releaseTimeout bounds one attempt to tell the sources that everything is done, and retryRelease is the pause before
	// the next; it doubles, for a refusal may be for good, and all machines of a group that goes would ask the same service.
	// Without it the machine goes too, only later.
	releaseTimeout   = 10 * time.Second
	retryRelease     = 5 * time.Second
	mostRetryRelease = time.Minute
)

// mind looks after the incident as a whole, until ctx ends: it begins leaving when its time comes, releases the machine when
// every action was told, and closes the incident when the machine stays.
func (s *Sidecar) mind(ctx context.Context) error {
	pause := retryRelease
	for {
		changed := s.incidents.Changes()
		finished, again := s.review()
		if finished != nil {
			err := s.release(ctx, *finished)
			if err == nil {
				pause = retryRelease
				continue
			}
			if pause == retryRelease {
				s.log.Warn("cannot release the machine yet: tried again until it is done", "incident", finished.Incident.ID, "err", err)
			}
			again, pause = time.Now().Add(pause), min(2*pause, mostRetryRelease)
		}
		if !wait(ctx, changed, again) {
			return nil
		}
	}
}

// review does what is due about the incident, and returns when something is due by itself. It returns the incident's page
// when everything is done and its notices must still be released.
func (s *Sidecar) review() (finished *page, again time.Time) {
	s.turn.Lock()
	defer s.turn.Unlock()
	p, open := s.incidents.Open()
	if !open {
		return nil, time.Time{}
	}
	stance, changes := s.stance(p)
	if stance == preemption.StanceDrain && !p.Incident.Leaving() {
		s.log.Info("it is time to leave", "incident", p.Incident.ID, "kind", p.Incident.Kind(), preemption.Left(p.Incident.Deadline()))
		if err := s.incidents.Begin(); err != nil {
			s.log.Error("cannot write to the journal that it is time to leave", "incident", p.Incident.ID, "err", err)
		}
	}
	switch gone := p.Incident.Outlived(); {
	case !s.over(p, stance):
	case gone || p.Incident.Withdrawn():
		s.end(p, gone)
	case len(s.unreleased(p)) > 0:
		return &p, changes
	}
	return nil, changes
}

// end closes the incident: the machine stays. Notices that it has not outlived stay in force, as an incident of their own.
// The caller holds turn.
func (s *Sidecar) end(p page, gone bool) {
	why, word := "the notice was withdrawn", "withdrawn"
	if gone {
		why, word = "the machine outlived its deadline", "outlived"
		if p.Incident.Rehearsed() {
			why, word = "the rehearsal is over", "rehearsed"
		}
	}
	if err := s.incidents.Close(why); err != nil {
		s.log.Error("cannot write the end of the incident to the journal: a restart would begin it again", "incident", p.Incident.ID, "err", err)
	}
	s.counts.Ends.WithLabelValues(word).Inc()
	s.log.Info("the machine stays", "incident", p.Incident.ID, "kind", p.Incident.Kind(), "why", why)
	for _, n := range p.Incident.InForce() {
		if n.Outlived() {
			s.manual.Forget(n) // or the next rehearsal would count as part of this one
		} else {
			s.joinInTurn(n)
		}
	}
}

// unreleased lists the notices whose sources must still be told that everything is done. If the machine does not leave there
// are none, and in a rehearsal no cloud is told to take the machine sooner. But a shutdown that waits for this process, even
// for a reboot, waits only until every action was told.
func (s *Sidecar) unreleased(p page) []preemption.Notice {
	leaving, rehearsed := p.Incident.Leaving(), p.Incident.Rehearsed()
	return slices.DeleteFunc(p.Incident.InForce(), func(n preemption.Notice) bool {
		wants := n.Source == preemption.SourceLogind || leaving && (!rehearsed || n.Source == preemption.SourceRehearsal)
		return !wants || slices.Contains(p.Work.Released, n.Name())
	})
}

// release tells the sources that the machine may go. A source that cannot be told keeps no other from being told.
func (s *Sidecar) release(ctx context.Context, p page) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	var released []string
	var refused []error
	for _, n := range s.unreleased(p) {
		if err := s.notices.Release(ctx, n); err != nil {
			refused = append(refused, err)
		} else {
			released = append(released, n.Name())
		}
	}
	s.noteReleased(p, released)
	if len(refused) > 0 {
		return errors.Join(refused...)
	}
	failed := 0
	for _, t := range p.Work.Told {
		if t.State == stateFailed {
			failed++
		}
	}
	s.log.Info("all done", "incident", p.Incident.ID, "kind", p.Incident.Kind(), "actions", len(p.Work.Told), "failed", failed,
		"took", time.Since(p.Incident.NoticedAt()).Round(time.Millisecond), preemption.Left(p.Incident.Deadline()))
	return nil
}

// noteReleased writes down which notices have been released.
func (s *Sidecar) noteReleased(p page, names []string) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if now, open := s.incidents.Open(); !open || now.Incident.ID != p.Incident.ID || len(names) == 0 {
		return
	}
	err := s.incidents.Amend(func(w *work) { w.Released = append(slices.Clone(w.Released), names...) })
	if err != nil {
		s.log.Error("cannot write to the journal that the machine is released: a restart would release it again", "incident", p.Incident.ID, "err", err)
	}
}

// unrelease forgets the release of a notice that was taken back: if it returns, it is a new one. The caller holds turn.
func (s *Sidecar) unrelease(n preemption.Notice) {
	if p, _ := s.incidents.Open(); !slices.Contains(p.Work.Released, n.Name()) {
		return
	}
	err := s.incidents.Amend(func(w *work) {
		w.Released = slices.DeleteFunc(slices.Clone(w.Released), func(name string) bool { return name == n.Name() })
	})
	if err != nil {
		s.log.Error("cannot write what was taken back", "source", n.Source, "err", err)
	}
}

// tellManager tells the service manager that the sidecar listens and, until ctx ends, how it is in one line.
func (s *Sidecar) tellManager(ctx context.Context) {
	s.ready()
	var shown systemd.Headline
	for {
		changed := s.incidents.Changes()
		shown.Say(s.log, s.summary())
		if !wait(ctx, changed, time.Time{}) {
			return
		}
	}
}

// summary is the sidecar in one line, as `systemctl status` shows it.
func (s *Sidecar) summary() string {
	p, open := s.incidents.Open()
	if !open {
		return "no notice"
	}
	count := map[state]int{}
	for _, t := range p.Work.Told {
		count[t.State]++
	}
	line := fmt.Sprintf("%s from %s: %d told, %d running, %d failed of %d", p.Incident.Kind(), p.Incident.Source(),
		count[stateDone], count[stateRunning], count[stateFailed], len(s.actions))
	if d := p.Incident.Deadline(); !d.IsZero() {
		line += ", deadline " + d.UTC().Format(time.TimeOnly) + "Z"
	}
	return line
}
