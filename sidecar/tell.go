package sidecar

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

// action is one thing to tell, how, and when.
type action struct {
	name    string
	when    preemption.Stance
	phases  []workloads.Phase
	timeout time.Duration
	again   bool // a failure may pass in a moment, and the way of telling does not retry by itself
	workloads.Action
}

// A signal's process may be between two starts, and a service manager busy, so such a word is tried again each againEach,
// ten times the default of RestartSec. A process that is not there on purpose holds a shutdown up no longer than againFor.
const againEach, againFor = time.Second, 10 * time.Second

// leastTelling is the least time that a word gets, even if its notice leaves none (EC2's hibernation): the machine may still
// live for some seconds, and a word that is given up helps nobody.
const leastTelling = 5 * time.Second

// look tells an action every word that is due, until ctx ends.
func (s *Sidecar) look(ctx context.Context, a *action) error {
	for {
		changed := s.incidents.Changes()
		w, again, due := s.begin(a)
		if due {
			s.tell(ctx, a, w)
		} else if !wait(ctx, changed, again) {
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// begin decides what an action must be told now, and writes it down. If nothing is due, it returns when to look again.
func (s *Sidecar) begin(a *action) (w workloads.Word, again time.Time, due bool) {
	s.turn.Lock()
	defer s.turn.Unlock()
	p, open := s.incidents.Open()
	if !open {
		return w, time.Time{}, false
	}
	stance, changes := s.stance(p)
	phase, due := s.next(a, p, stance)
	if !due {
		return w, changes, false
	}
	was, known := p.Work.Told[a.name]
	t := told{Phase: phase, State: stateRunning, Kind: p.Incident.Kind(), Stance: stance, Lead: p.Incident.Lead(), Round: was.Round, Rehearsal: p.Incident.Rehearsed()}
	switch {
	case was.State == stateRunning && was.Phase == phase && !a.pretended(was.Rehearsal, p.Incident):
		t = was // later news is told after this word
	case !a.wants(phase):
		t.State = stateSkipped
	}
	if known && phase == workloads.PhaseNoticed && (!was.holds() || a.pretended(was.Rehearsal, p.Incident)) {
		t.Round++
	}
	s.note(a, t)
	return s.word(p.Incident, t.Round, phase, stance), time.Time{}, t.State == stateRunning
}

// word makes the word about the incident as it is now. An action that was told that the machine stays, and then hears of a
// further notice of the same incident, is told of it under another name: for the action the first incident has ended.
func (s *Sidecar) word(i preemption.Incident, round int, phase workloads.Phase, stance preemption.Stance) workloads.Word {
	name := i.ID
	if round > 0 {
		name += "." + strconv.Itoa(round+1)
	}
	return workloads.Word{
		Phase: phase, Node: s.cfg.Node.Name, Incident: name, Kind: string(i.Kind()), Source: i.Source(), Stance: string(stance),
		Reason: i.Reason(), Rehearsal: i.Rehearsed(),
	}.Before(i.Deadline())
}

// about reports whether a word is about an incident.
func about(w workloads.Word, i preemption.Incident) bool {
	name, _, _ := strings.Cut(w.Incident, ".")
	return name == i.ID
}

// tell tells a word until it has arrived, its time is up, or it no longer holds. When ctx ends the word stays under way: the
// next process goes on with it.
func (s *Sidecar) tell(ctx context.Context, a *action, w workloads.Word) {
	began := time.Now()
	s.log.Info("telling", "action", a.name, "phase", w.Phase, "incident", w.Incident, "kind", w.Kind, preemption.Left(w.Deadline), "what", a.String())
	var err error
	for {
		if err = s.attempt(ctx, a, w, began); errors.Is(err, workloads.ErrMoved) && ctx.Err() == nil {
			continue
		}
		next := time.Now().Add(againEach)
		until, _ := s.until(a, w, began)
		if err == nil || !a.again || errors.Is(err, workloads.ErrSuperseded) || next.After(until) || next.After(began.Add(againFor)) {
			break
		}
		if s.troubled(a, w, err); !wait(ctx, nil, next) {
			break
		}
	}
	if err != nil && ctx.Err() != nil {
		return
	}
	took := time.Since(began)
	switch {
	case errors.Is(err, workloads.ErrSuperseded):
		s.log.Info("no longer told", "action", a.name, "phase", w.Phase, "incident", w.Incident, "took", took)
		s.counts.told(a.name, w.Phase, "superseded")
		return // the word that replaces it is due now
	case err != nil:
		s.log.Error("not told, and it is not tried again", "action", a.name, "phase", w.Phase, "incident", w.Incident, "took", took, "err", err)
	default:
		s.log.Info("told", "action", a.name, "phase", w.Phase, "incident", w.Incident, "took", took)
	}
	s.ended(a, w, took, err)
}

// troubled notes and logs why a word was not told yet. The word is tried again.
func (s *Sidecar) troubled(a *action, w workloads.Word, err error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	p, open := s.incidents.Open()
	t := p.Work.Told[a.name]
	if !open || !about(w, p.Incident) || t.Trouble == err.Error() {
		return
	}
	s.log.Warn("not told; it is tried again", "action", a.name, "phase", w.Phase, "incident", w.Incident, "err", err)
	t.Trouble = err.Error()
	s.note(a, t)
}

// ended writes down whether a word was told or given up.
func (s *Sidecar) ended(a *action, w workloads.Word, took time.Duration, err error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	p, open := s.incidents.Open()
	if !open || !about(w, p.Incident) {
		return // cannot happen: an incident is closed only when no action is being told
	}
	t := p.Work.Told[a.name]
	t.State, t.Took, t.Trouble = stateDone, took, ""
	if err != nil {
		t.State, t.Trouble = stateFailed, err.Error()
	}
	s.counts.told(a.name, w.Phase, string(t.State)) // before others can see that it is done
	s.note(a, t)
}

// attempt tells a word once, for as long as the incident leaves time.
func (s *Sidecar) attempt(ctx context.Context, a *action, w workloads.Word, began time.Time) error {
	until := func() (time.Time, bool) { return s.until(a, w, began) }
	return workloads.Attempt(ctx, a, w, s.incidents.Changes, until, func(err error) { s.troubled(a, w, err) })
}

// until is when telling a word must end; false: the word no longer holds. A word about a machine that goes has time until
// the deadline less the incident's tail; if the notice leaves less than two tails, half of the time that it leaves.
func (s *Sidecar) until(a *action, w workloads.Word, began time.Time) (time.Time, bool) {
	limit := began.Add(a.timeout)
	p, open := s.incidents.Open()
	if !open || !about(w, p.Incident) {
		return limit, false
	}
	stance, _ := s.stance(p)
	goes := stance.AtLeast(a.when) && stance != preemption.StanceIgnore
	if w.Phase == workloads.PhaseWithdrawn {
		return limit, !goes
	}
	if d := p.Incident.Deadline(); !d.IsZero() {
		lead := max(0, d.Sub(p.Incident.LeftAt()))
		last := d.Add(-min(p.Incident.Tail(), lead/2))
		if least := began.Add(leastTelling); last.Before(least) {
			last = least
		}
		if last.Before(limit) {
			limit = last
		}
	}
	return limit, goes && !a.pretended(w.Rehearsal, p.Incident)
}
