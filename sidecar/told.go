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
	stateRunning state = "running" // under way, or it was when an earlier process ended
	stateDone    state = "done"
	stateFailed  state = "failed"
	stateSkipped state = "skipped" // the action's phases leave the word out
)

// told is what one action was told last. It is plain data, kept as JSON.
type told struct {
	Phase  workloads.Phase   `json:"phase"`
	State  state             `json:"state"`
	Kind   preemption.Kind   `json:"kind"`
	Stance preemption.Stance `json:"stance"`
	Lead   *time.Duration    `json:"lead,omitempty"`  // to the deadline that was told; nil: none was known
	Round  int               `json:"round,omitempty"` // how often another notice followed after it was told that the machine stays, or of a rehearsal
	// Rehearsal says that the action was told that nothing will happen to the machine.
	Rehearsal bool          `json:"rehearsal,omitempty"`
	Trouble   string        `json:"trouble,omitempty"`
	Took      time.Duration `json:"took,omitempty"`
}

// outdated reports whether what was told is no longer true.
func (t told) outdated(i preemption.Incident, stance preemption.Stance) bool {
	return i.Moved(t.Lead) || t.Kind != i.Kind() || t.Stance != stance
}

// holds reports whether the action was last told that the machine goes.
func (t told) holds() bool {
	return t.Phase == workloads.PhaseNoticed || t.Phase == workloads.PhaseChanged || t.Phase == workloads.PhaseDone
}

// due is what an action must be told while the node takes a stance; false: nothing, or it is being told. A word that an
// earlier process had begun, and that still holds, is due again.
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

// pretended reports whether a word was about a rehearsal that has become earnest. For a signal or a unit there is no
// difference: they did what they were told.
func (a *action) pretended(rehearsal bool, i preemption.Incident) bool {
	switch a.Action.(type) {
	case workloads.Signal, workloads.Unit:
		return false
	}
	return rehearsal && !i.Rehearsed()
}

func (a *action) wants(phase workloads.Phase) bool { return slices.Contains(a.phases, phase) }

// settled reports whether every action has been told everything that is due, and none is being told.
func (s *Sidecar) settled(p page, stance preemption.Stance) bool {
	return !slices.ContainsFunc(s.actions, func(a *action) bool {
		_, due := a.due(p, stance)
		return due || p.Work.Told[a.name].State == stateRunning
	})
}

// next is what an action must be told now. That everything is done is told last.
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

// over reports whether there is nothing left to tell any action.
func (s *Sidecar) over(p page, stance preemption.Stance) bool {
	return s.settled(p, stance) && !slices.ContainsFunc(s.actions, func(a *action) bool {
		_, due := s.next(a, p, stance)
		return due
	})
}

// idle reports whether no action is being told, and none must be.
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

// note writes down what an action was told. The caller holds turn.
func (s *Sidecar) note(a *action, t told) {
	err := s.incidents.Amend(func(w *work) {
		w.Told = maps.Clone(w.Told) // other goroutines may hold the page with the old map
		if w.Told == nil {
			w.Told = map[string]told{}
		}
		w.Told[a.name] = t
	})
	if err != nil {
		s.log.Error("cannot write what was told: a restart would tell it again", "action", a.name, "phase", t.Phase, "err", err)
	}
}
