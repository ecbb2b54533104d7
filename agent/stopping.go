package agent

import (
	"context"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

const (
	// leastGrace is the time between SIGTERM and SIGKILL for a workload on a notice that leaves no time.
	leastGrace = time.Second
	// killLead is how long before the last pass SIGKILL is sent: the first look of that pass must find what the workload
	// wrote until then.
	killLead = 500 * time.Millisecond
	// strikeAgain is the pause between attempts to stop a workload.
	strikeAgain = time.Second
)

// stop stops, when it is time, the workloads that are configured to be stopped and still run, until ctx ends. In a rehearsal
// it stops none.
func (t *attendant) stop(ctx context.Context) {
	var stopping sync.WaitGroup
	for _, w := range t.all {
		if w.Stops {
			stopping.Go(func() { t.stopInTime(ctx, w) })
		}
	}
	stopping.Wait()
}

// stopAt is when a workload gets SIGTERM: its grace before the last pass begins, so that the pass carries what it wrote
// until its end. Zero: never, because no deadline is known.
func (t *attendant) stopAt(i preemption.Incident, w *watched) time.Time {
	last := t.limits.lastPassAt(i)
	if last.IsZero() || i.Rehearsed() {
		return time.Time{}
	}
	return last.Add(-killLead - w.Grace)
}

// stopInTime waits until it is time, and stops the workload. It stops one at once that an earlier process had begun to stop.
func (t *attendant) stopInTime(ctx context.Context, w *watched) {
	for ctx.Err() == nil {
		changed, stirred := t.incidents.Changes(), t.attention.stirred.Next()
		p, _ := t.incidents.Open()
		i := p.Incident
		at := t.stopAt(i, w)
		over, _ := w.finished(i.ID)
		var due <-chan time.Time // nil: nothing is due by itself
		switch done := t.attention.of(w.Name); {
		case p.Work.Drained != nil || over || at.IsZero(): // nothing to stop now; the drain of a rehearsal may begin anew in earnest
		case done.Incident == i.ID && done.Stopping || !time.Now().Before(at):
			t.stopWorkload(ctx, w, i)
			continue
		default:
			due = time.After(time.Until(at))
		}
		select {
		case <-due:
		case <-changed:
		case <-stirred:
		case <-ctx.Done():
		}
	}
}

// stopWorkload asks the workload to end, and kills it when it has not ended after its grace. It returns once the workload is
// gone, or with ctx: after a withdrawal nothing more is stopped.
func (t *attendant) stopWorkload(ctx context.Context, w *watched, i preemption.Incident) {
	began := time.Now()
	killAt := func() time.Time { return t.killAt(t.incidents.current(), w, began) }
	done := t.attention.of(w.Name)
	switch {
	case done.Incident != i.ID:
		done = attended{}
	case done.Killed:
		killAt = func() time.Time { return began } // its grace was over before a restart
	}
	for !done.Stopping {
		asked, err := w.Terminate(ctx, done.Processes)
		if err != nil {
			t.log.Warn("a workload cannot be stopped", "workload", w.Name, "err", err)
		}
		if err == nil || len(asked) > 0 || !time.Now().Before(killAt()) {
			t.log.Info("stopping a workload", "workload", w.Name, "incident", i.ID, "processes", len(asked), "grace", time.Until(killAt()).Round(time.Millisecond))
			done = t.note(w, func(d *attended) {
				if d.Incident != i.ID {
					d.Incident, d.Processes, d.Killed = i.ID, nil, false
				}
				d.Stopping, d.Asked = true, asked
			})
			break
		}
		if !t.untilFinished(ctx, w, i.ID, after(strikeAgain)) {
			return
		}
	}
	w.lookAgain()
	if !t.untilFinished(ctx, w, i.ID, killAt) {
		return
	}
	t.log.Warn("killing a workload that outlived its grace", "workload", w.Name, "incident", i.ID, "took", time.Since(began).Round(time.Millisecond))
	t.note(w, func(d *attended) { d.Killed = true })
	for said := ""; ; {
		if err := w.Kill(ctx, done.Asked); err != nil && err.Error() != said {
			said = err.Error()
			t.log.Error("a workload cannot be killed", "workload", w.Name, "err", err)
		}
		w.lookAgain()
		if !t.untilFinished(ctx, w, i.ID, after(strikeAgain)) {
			return
		}
	}
}

// killAt is when a workload that got SIGTERM at began gets SIGKILL: after its grace, and sooner if the last pass begins before that.
func (t *attendant) killAt(i preemption.Incident, w *watched, began time.Time) time.Time {
	at := began.Add(w.Grace)
	if last := t.limits.lastPassAt(i); !last.IsZero() && last.Add(-killLead).Before(at) {
		at = last.Add(-killLead)
	}
	if least := began.Add(leastGrace); at.Before(least) {
		return least
	}
	return at
}

func after(pause time.Duration) func() time.Time {
	at := time.Now().Add(pause)
	return func() time.Time { return at }
}

// untilFinished waits until the time that until returns, which notices and settings may move. It returns false when the workload or ctx
// ends first.
func (t *attendant) untilFinished(ctx context.Context, w *watched, incident string, until func() time.Time) (still bool) {
	for {
		changed, stirred := t.incidents.Changes(), t.attention.stirred.Next()
		if over, _ := w.finished(incident); over {
			return false
		}
		select {
		case <-changed:
		case <-stirred:
		case <-time.After(time.Until(until())):
			return ctx.Err() == nil
		case <-ctx.Done():
			return false
		}
	}
}

// plans describes, one line a workload, what an incident would mean for the workloads.
func (t *attendant) plans(i preemption.Incident) (lines []string) {
	for _, w := range t.all {
		line := w.Name + ": watched, " + w.String()
		if word := t.word(i, workloads.PhaseNoticed); w.Hears(word) {
			line += "; told at once: " + w.Teller.String()
		} else if w.Teller != nil {
			line += "; not told at a rehearsal: " + w.Teller.String()
		}
		if w.Await {
			line += "; waited for"
			if last := t.limits.lastPassAt(i); !last.IsZero() {
				line += " until " + spanBefore(i, last) + " before the deadline"
			}
		}
		if w.Stops {
			line += "; " + t.stopPlan(i, w)
		}
		lines = append(lines, line)
	}
	return lines
}

func (t *attendant) stopPlan(i preemption.Incident, w *watched) string {
	last := t.limits.lastPassAt(i)
	if last.IsZero() {
		return "stopped by nobody, as no deadline is known"
	}
	at := last.Add(-killLead - w.Grace)
	if at.Before(i.LeftAt()) {
		at = i.LeftAt()
	}
	line := "SIGTERM " + spanBefore(i, at) + " before the deadline, SIGKILL " + spanBefore(i, last) + " before it"
	if i.Rehearsed() {
		line += " (not at a rehearsal)"
	}
	return line
}

func spanBefore(i preemption.Incident, at time.Time) string {
	return i.Deadline().Sub(at).Round(time.Second).String()
}
