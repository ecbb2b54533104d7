package agent

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/workloads"
)

// watched is a workload and what was last seen of it.
type watched struct {
	*workloads.Workload
	again chan struct{} // full: the workload must be looked at now

	mu    sync.Mutex // guards what follows
	last  workloads.Look
	state workloads.State
	since time.Time
	about string // the incident of the last look; empty: the node was not leaving
}

// endgame is the pause between looks while a workload is being stopped: a pass must still carry what it wrote last.
const endgame = 200 * time.Millisecond

// attendant looks at the workloads, tells them what is due, and stops those that must end in time.
type attendant struct {
	node      string
	log       *slog.Logger
	incidents *incidents
	limits    *rules
	nudge     func() // has the coordinator told of the workloads now

	all       []*watched
	attention *attention
}

func (a *Agent) openWorkloads() (err error) {
	units := a.deps.Units
	if units == nil {
		units = workloads.Systemd{}
	}
	a.workloads = attendant{node: a.cfg.Node.Name, log: a.log, incidents: &a.incidents, limits: &a.limits, nudge: a.fleet.Nudge}
	// A running hook survives a restart of the agent but not a boot, like the directory of the socket. So its state lies
	// there.
	state := filepath.Join(filepath.Dir(a.cfg.Listen.Socket), "hooks")
	for _, s := range a.cfg.Workloads {
		w, err := s.Open(units, state)
		if err != nil {
			return err
		}
		a.workloads.all = append(a.workloads.all, &watched{Workload: w, again: make(chan struct{}, 1), state: workloads.Unknown, since: time.Now(),
			last: workloads.Look{State: workloads.Unknown, Trouble: "not looked at yet"}})
	}
	if a.workloads.attention, err = openAttention(filepath.Join(a.cfg.DataDir, "workloads.json"), a.boot(), a.disk.Beside); err != nil {
		a.log.Error("cannot read what workloads were told: they may be told again", "err", err)
	}
	return nil
}

// Run looks at the workloads and tells them what is due, until ctx ends. Each has goroutines of its own, so one that hangs
// holds up no other.
func (t *attendant) Run(ctx context.Context) error {
	var attending sync.WaitGroup
	for _, w := range t.all {
		attending.Go(func() { t.watch(ctx, w) })
		if w.Teller != nil {
			attending.Go(func() { t.keepTold(ctx, w) })
		}
	}
	attending.Wait()
	return nil
}

// watch looks at a workload again and again: seldom while there is no notice, at once when the node begins to leave.
func (t *attendant) watch(ctx context.Context, w *watched) {
	for ctx.Err() == nil {
		changed := t.incidents.Changes()
		incident := t.incidents.leavingFor()
		t.look(ctx, w, incident)
		pause := w.Idle
		if incident != "" {
			pause = w.Every
		}
		if done := t.attention.of(w.Name); incident != "" && done.Incident == incident && done.Stopping {
			pause = min(pause, endgame)
		}
		select {
		case <-time.After(pause):
		case <-changed:
		case <-w.again:
		case <-ctx.Done():
		}
	}
}

// leavingFor is the incident for which the node leaves now, or "".
func (in *incidents) leavingFor() string {
	if !in.leaving() {
		return ""
	}
	return in.current().ID
}

// look looks at a workload once. The processes that it had when the node began to leave are kept: these are waited for and
// stopped, whatever becomes of its pid file or its name.
func (t *attendant) look(ctx context.Context, w *watched, incident string) {
	done := t.attention.of(w.Name)
	var known []workloads.Identity
	if done.Incident == incident {
		known = append(known, done.Processes...)
		known = append(known, done.Asked...)
	}
	seen := w.Look(ctx, known, incident != "")
	if ctx.Err() != nil {
		return // the look was cut short
	}
	if incident != "" && done.Incident != incident && seen.State != workloads.Unknown {
		done = t.note(w, func(d *attended) {
			if d.Incident != incident { // else it was asked to end while this look lasted
				d.Incident, d.Processes, d.Asked, d.Stopping, d.Killed = incident, seen.Processes, nil, false, false
			}
		})
	}
	state := done.state(seen.State, incident)
	w.mu.Lock()
	was, first := w.state, w.about != incident
	w.last, w.about = seen, incident
	if state != was {
		w.state, w.since = state, time.Now()
	}
	w.mu.Unlock()
	if incident != "" && (state != was || first) {
		t.log.Info("workload", "workload", w.Name, "state", state, "processes", seen.Count, "trouble", seen.Trouble)
		t.stir()
	}
}

// state combines what was seen of a workload with what was done about it.
func (d attended) state(seen workloads.State, incident string) workloads.State {
	ours := incident != "" && d.Incident == incident
	switch {
	case seen == workloads.Done && ours && d.Killed:
		return workloads.Killed
	case seen != workloads.Running:
		return seen
	case ours && d.Stopping:
		return workloads.Stopping
	case incident != "" && d.Word.Incident == incident && d.Arrived:
		return workloads.Told
	}
	return workloads.Running
}

// lookAgain has a workload looked at now.
func (w *watched) lookAgain() {
	await.Mark(w.again)
}

// finished reports whether a workload has been seen to be over since the node began to leave.
func (w *watched) finished(incident string) (over bool, state workloads.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.about != incident {
		return false, workloads.Unknown
	}
	return w.state == workloads.Done || w.state == workloads.Killed, w.state
}

// awaited names, a sentence each, the workloads that an incident waits for.
func (t *attendant) awaited(incident string) (all []string) {
	for _, w := range t.all {
		if over, state := w.finished(incident); w.Await && !over {
			all = append(all, fmt.Sprintf("workload %s (%s, %s)", w.Name, state, w))
		}
	}
	return all
}

// stir wakes everything that waits for workloads.
func (t *attendant) stir() {
	t.attention.stirred.Tell()
	t.nudge()
}

func (t *attendant) wire() (all []*api.Workload) {
	for _, w := range t.all {
		done := t.attention.of(w.Name)
		w.mu.Lock()
		s := &api.Workload{
			Name: w.Name, Type: w.Type, State: string(w.state), Since: durationpb.New(time.Since(w.since)), Processes: int64(w.last.Count),
			Apps: w.last.Apps, Trouble: w.last.Trouble, Awaited: w.Await,
		}
		for _, e := range w.last.Executors {
			s.Executors = append(s.Executors, &api.Executor{App: e.App, Id: e.ID})
		}
		w.mu.Unlock()
		if done.Trouble != "" {
			s.Trouble = done.Trouble
		}
		s.Trouble = short(s.Trouble, longestTrouble)
		all = append(all, s)
	}
	return all
}

// longestTrouble bounds a message in bytes, to keep a heartbeat small: a program may have printed anything, or a peer have
// said it.
const longestTrouble = 400

// short makes a message fit to be sent: valid UTF-8 that prints on one line, cut after most bytes.
func short(s string, most int) string {
	s = strings.ToValidUTF8(s, "?") // a message with anything else in it would not be sent at all
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// note writes down what was done about a workload.
func (t *attendant) note(w *watched, change func(*attended)) attended {
	d, err := t.attention.amend(w.Name, change)
	if err != nil {
		t.log.Error("cannot write what was done about a workload: a restart would do it again", "workload", w.Name, "err", err)
	}
	return d
}

// inUse reports whether an app runs on this machine, as far as its workloads tell. Blocks of the app that landed here stay
// for as long.
func (t *attendant) inUse(app string) bool {
	for _, w := range t.all {
		w.mu.Lock()
		runs := w.state != workloads.Done && w.state != workloads.Killed && slices.Contains(w.last.Apps, app)
		w.mu.Unlock()
		if runs {
			return true
		}
	}
	return false
}
