// Package workloads tells the processes of this machine that it is going to be taken away: by a signal, by their service
// manager, by running a program or by calling a URL.
//
// It tells no process in a way that would kill it unasked: a signal that would do harm goes only to a process that catches
// it and is still the one that was meant. The package decides nothing: its caller decides who is told what, and when.
package workloads

import (
	"context"
	"time"
)

// Phase is the kind of a word.
type Phase string

const (
	PhaseNoticed   Phase = "noticed"   // the machine will go
	PhaseChanged   Phase = "changed"   // it will, but at another time, or for a graver reason
	PhaseWithdrawn Phase = "withdrawn" // it stays after all
	PhaseDone      Phase = "done"      // everything that the notice asked for has been done
)

// Word is what a workload is told. It goes as JSON to programs and URLs, so its keys are stable.
type Word struct {
	Phase    Phase     `json:"phase"`
	Node     string    `json:"node"`
	Incident string    `json:"incident"`
	Kind     string    `json:"kind"`
	Source   string    `json:"source"`
	Stance   string    `json:"stance"`
	Deadline time.Time `json:"deadline,omitzero"` // zero: not known
	// RemainingSeconds is the time to the deadline when the word was made; nil: not known.
	RemainingSeconds *float64 `json:"remaining_seconds"`
	Reason           string   `json:"reason"`
	Rehearsal        bool     `json:"rehearsal,omitempty"` // nothing will happen to the machine
}

// Before returns the word with a deadline; zero: none is known. It has whole seconds, as clouds write them: it stays the same
// after a restart and after small corrections of the clock.
func (w Word) Before(deadline time.Time) Word {
	if !deadline.IsZero() {
		w.RemainingSeconds, w.Deadline = new(time.Until(deadline).Seconds()), deadline.Round(time.Second).UTC()
	}
	return w
}

// same identifies a word: two words with the same result are one, said again.
func (w Word) same() []string {
	if w.Phase != PhaseChanged {
		return []string{string(w.Phase)}
	}
	deadline := "unknown"
	if !w.Deadline.IsZero() {
		deadline = w.Deadline.UTC().Format(time.RFC3339Nano)
	}
	return []string{string(w.Phase), w.Kind, deadline}
}

// Action is one way to tell somebody.
type Action interface {
	// Tell returns when the word has arrived: the signal is sent, the unit has stopped, the program has ended, or the URL
	// has answered. It gives up when ctx ends. Telling the same word again, after a restart of this process, continues what
	// the first call began, where that can be known.
	Tell(ctx context.Context, w Word) error
	// String says in a few words what would be done, as in "SIGPWR to spark-worker.service".
	String() string
}
