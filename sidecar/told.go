package sidecar

import (
	"maps"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

// state is how far the telling of one word is.
type state string

const (
	stateRunning state = "running" // or was when an earlier process ended
	stateDone    state = "done"
	stateFailed  state = "failed"
	stateSkipped state = "skipped" // its phases leave the word out
)

// told is what one action was told last. It is plain data, kept as JSON.
type told struct {
	Phase  workloads.Phase   `json:"phase"`
	State  state             `json:"state"`
	Kind   preemption.Kind   `json:"kind"`
	Stance preemption.Stance `json:"stance"`
	Lead   *time.Duration    `json:"lead,omitempty"`  // to the deadline that was told; nil: none was known
	Round  int               `json:"round,omitempty"` // how often it was told that the machine stays, or of a rehearsal, and then of another notice
	// Rehearsal says that it was told that nothing will happen to the machine.
	Rehearsal bool          `json:"rehearsal,omitempty"`
	Trouble   string        `json:"trouble,omitempty"`
	Took      time.Duration `json:"took,omitempty"`
}

// outdated tells whether what was told is no longer so.
func (t told) outdated(i preemption.Incident, stance preemption.Stance) bool {
	return i.Moved(t.Lead) || t.Kind != i.Kind() || t.Stance != stance
}

// holds tells whether the action believes that the machine goes.
func (t told) holds() bool {
	return t.Phase == workloads.PhaseNoticed || t.Phase == workloads.PhaseChanged || t.Phase == workloads.PhaseDone
}

// due is what an action must be told while the node takes a stance; false: it knows all there is to know, or is about to.
// A word that an earlier process was about to say, and that still holds, is due again.
func (a *action) due(p page, stance preemption.Stance) (workloads.Phase, bool) {
	t, known := p.Work.Told[a.name]
	goes := stance.AtLeast(a.when) && stance != preemption.StanceIgnore
	switch {
	case !known && !goes:
		return "", false
	case goes && a.pretended(t.Rehearsal, p.Incident):
		return workloads.PhaseNoticed, true
	case known && t.State == stateRunning && goes == t.holds():
		return t.Phase, true
	case !goes && t.holds():
		return workloads.PhaseWithdrawn, true
	case goes && !t.holds():
		return workloads.PhaseNoticed, true
	case goes && t.outdated(p.Incident, stance) && a.wants(workloads.PhaseChanged):
		return workloads.PhaseChanged, true
	default:
		return "", false
	}
}

// pretended tells whether a word was a rehearsal's that is none any more. A signal and a unit know no pretending: they did
// what they were told.
func (a *action) pretended(rehearsal bool, i preemption.Incident) bool {
	switch a.Action.(type) {
	case workloads.Signal, workloads.Unit:
		return false
	}
	return rehearsal && !i.Rehearsed()
}

func (a *action) wants(phase workloads.Phase) bool { return slices.Contains(a.phases, phase) }

// settled tells whether every action knows all there is to know, and none is being told.
func (s *Sidecar) settled(p page, stance preemption.Stance) bool {
	return !slices.ContainsFunc(s.actions, func(a *action) bool {
		_, due := a.due(p, stance)
		return due || p.Work.Told[a.name].State == stateRunning
	})
}

// next is what an action must be told now. That all is done is told last.
func (s *Sidecar) next(a *action, p page, stance preemption.Stance) (workloads.Phase, bool) {
	if phase, due := a.due(p, stance); due {
		return phase, true
	}
	last := stance == preemption.StanceDrain && a.wants(workloads.PhaseDone) && p.Work.Told[a.name].Phase != workloads.PhaseDone
	if last && s.settled(p, stance) {
		return workloads.PhaseDone, true
	}
	return "", false
}

// over tells whether there is nothing left to tell anybody.
func (s *Sidecar) over(p page, stance preemption.Stance) bool {
	return s.settled(p, stance) && !slices.ContainsFunc(s.actions, func(a *action) bool {
		_, due := s.next(a, p, stance)
		return due
	})
}

// idle tells whether nobody is told anything now, and nobody must be.
func (s *Sidecar) idle() bool {
	s.turn.Lock()
	defer s.turn.Unlock()
	p, open := s.incidents.Open()
	if !open {
		return true
	}
	stance, _ := s.stance(p)
	return s.over(p, stance)
}

// note writes down how far an action is. The caller holds turn.
func (s *Sidecar) note(a *action, t told) {
	err := s.incidents.Amend(func(w *work) {
		w.Told = maps.Clone(w.Told) // pages that others look at stay as they are
		if w.Told == nil {
			w.Told = map[string]told{}
		}
		w.Told[a.name] = t
	})
	if err != nil {
		s.log.Error("cannot write what was told: a restart would tell it again", "action", a.name, "phase", t.Phase, "err", err)
	}
}
