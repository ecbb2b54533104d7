package workloads

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// State is how far a workload is. Its words go over the wire.
type State string

const (
	Running  State = "RUNNING"
	Told     State = "TOLD"     // it runs, and was told that the machine goes
	Stopping State = "STOPPING" // it was asked to end
	Done     State = "DONE"
	Killed   State = "KILLED"
	Unknown  State = "UNKNOWN" // which is not "done"
)

// Look is what was seen of a workload at one moment.
type Look struct {
	State     State      // Running, Done or Unknown
	Processes []Identity // those that were seen one by one
	Count     int        // of processes
	Apps      []string
	Executors []Executor
	Trouble   string // empty: well
}

// Workload is a process or engine on this machine that is waited for, told or stopped before the machine goes. Settings.Open
// makes it. Its methods may be called by several goroutines.
type Workload struct {
	Name  string
	Type  string
	Await bool          // a leaving node waits for it
	Stops bool          // it is stopped if it still runs when time is short
	Grace time.Duration // between SIGTERM and SIGKILL
	Every time.Duration // from one look to the next
	Idle  time.Duration // the same, while there is no notice
	// Teller is how it is told; nil: not at all.
	Teller Action

	kind    kind
	list    question // lists its apps; empty: they are not known
	done    question // asks whether it is done; empty: it is done when it is gone
	timeout time.Duration

	mu     sync.Mutex // guards what follows
	asked  time.Time  // when the look under way began; zero: none is
	listed Look       // the apps and executors of the last list
}

// String says in a few words what it is.
func (w *Workload) String() string { return w.kind.String() }

// killing is how long a look that is out of time may take to end the program that it started.
const killing = time.Second

// Look says how the workload is. known are the processes that it had. Only if leaving, when the node is about to go, does it
// ask whether the workload is done though it runs.
//
// A look that does not return in time is left behind, since nothing can end it. The answer is UNKNOWN then, and for every
// further call until that look returns: no second one begins.
func (w *Workload) Look(ctx context.Context, known []Identity, leaving bool) Look {
	if since, busy := w.begin(); busy {
		return w.unknown(fmt.Sprintf("it was asked %s ago and has not answered: nobody asks again before it does", time.Since(since).Round(time.Second)))
	}
	limited, cancel := context.WithTimeout(ctx, w.timeout)
	answer := make(chan Look, 1)
	go func() {
		defer cancel()
		l := w.look(limited, known, leaving)
		w.end()
		answer <- l
	}()
	select {
	case l := <-answer:
		return l
	case <-limited.Done():
	}
	select {
	case l := <-answer:
		return l
	case <-time.After(killing):
	}
	return w.unknown(fmt.Sprintf("it does not answer within %s", w.timeout))
}

// unknown is a look that saw nothing: the apps and executors are assumed to be those of the last list.
func (w *Workload) unknown(trouble string) Look {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Look{State: Unknown, Apps: w.listed.Apps, Executors: w.listed.Executors, Trouble: trouble}
}

func (w *Workload) begin() (since time.Time, busy bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.asked.IsZero() {
		return w.asked, true
	}
	w.asked = time.Now()
	return time.Time{}, false
}

func (w *Workload) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = time.Time{}
}

func (w *Workload) look(ctx context.Context, known []Identity, leaving bool) Look {
	l := w.kind.look(ctx, known)
	switch l.State {
	case Unknown:
		return w.unknown(l.Trouble)
	case Done:
		return l
	}
	if leaving && len(w.done) > 0 {
		switch done, err := w.done.yes(ctx); {
		case err != nil:
			l.Trouble = err.Error()
		case done:
			l.State = Done
			return l
		}
	}
	if len(w.list) > 0 {
		apps, executors, err := w.list.list(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err != nil {
			l.Trouble = err.Error()
		}
		if err == nil || len(apps) > 0 {
			w.listed = Look{Apps: apps, Executors: executors}
		}
		l.Apps, l.Executors = w.listed.Apps, w.listed.Executors
	}
	return l
}

// Terminate asks the workload to end: SIGTERM to its processes, or the stop job of its unit. It returns the processes that
// Kill may end, and does not wait.
func (w *Workload) Terminate(ctx context.Context, known []Identity) ([]Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	return w.kind.terminate(ctx, known)
}

// Kill ends the processes that Terminate asked and their descendants, and no others.
func (w *Workload) Kill(ctx context.Context, asked []Identity) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	return w.kind.kill(ctx, asked)
}

// Hears reports whether the workload is told a word. A signal or the stop of a unit can only say that the machine goes. In a
// rehearsal no unit is stopped.
func (w *Workload) Hears(word Word) bool {
	switch w.Teller.(type) {
	case nil:
		return false
	case program, Webhook:
		return word.Phase != PhaseDone
	case Unit:
		return word.Phase == PhaseNoticed && !word.Rehearsal
	}
	return word.Phase == PhaseNoticed
}

// Again reports whether another try may succeed for a word that did not arrive. A program runs once for a word.
func (w *Workload) Again() bool {
	_, once := w.Teller.(program)
	return !once
}
