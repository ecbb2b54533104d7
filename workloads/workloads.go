// Package workloads tells the processes of this machine that it is going to be taken away: by a signal, by their service
// manager, by running a program or by calling a URL.
//
// Nobody is told in a way that would kill them unasked: a signal goes only to a process that catches it and is still the
// one that was meant. The package decides nothing: who is told what, and when, is its caller's business.
package workloads

import (
	"context"
	"time"
)

// Phase is what there is to tell.
type Phase string

const (
	PhaseNoticed   Phase = "noticed"   // the machine will go
	PhaseChanged   Phase = "changed"   // it will, but at another time, or for a graver reason
	PhaseWithdrawn Phase = "withdrawn" // it stays after all
	PhaseDone      Phase = "done"      // everything that was to be done about the notice has been done
)

// Word is what is told. As JSON it goes to programs and to URLs, so its keys are stable.
type Word struct {
	Phase    Phase     `json:"phase"`
	Node     string    `json:"node"`
	Incident string    `json:"incident"`
	Kind     string    `json:"kind"`
	Source   string    `json:"source"`
	Stance   string    `json:"stance"`
	Deadline time.Time `json:"deadline,omitzero"` // zero: not known
	// RemainingSeconds is the time to the deadline when the word was said; nil: not known.
	RemainingSeconds *float64 `json:"remaining_seconds"`
	Reason           string   `json:"reason"`
	Rehearsal        bool     `json:"rehearsal,omitempty"` // nothing will happen to the machine
}

// same is what makes a word the one that was said before, and not news.
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
	// Tell returns when the word has arrived: the signal is sent, the unit has stopped, the program has ended, the URL has
	// answered. It gives up when ctx ends. Telling the same word again, after a restart of this process, goes on with what
	// the first began, where that can be known.
	Tell(ctx context.Context, w Word) error
	// String says in a few words what would be done, as in "SIGPWR to spark-worker.service".
	String() string
}
