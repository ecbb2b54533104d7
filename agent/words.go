package agent

import (
	"context"
	"errors"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

const (
	// withdrawPatience is how long the agent tries to tell a workload that the machine stays: after that the workload has
	// noticed by itself.
	withdrawPatience = 10 * time.Minute
	// The pause after a word that did not arrive; it doubles each time.
	firstAgain = time.Second
	mostAgain  = 30 * time.Second
)

// keepTold tells a workload every word that is due, until ctx ends.
func (t *attendant) keepTold(ctx context.Context, w *watched) {
	for ctx.Err() == nil {
		changed := t.incidents.Changes()
		if word, due := t.due(w); due {
			t.tellOne(ctx, w, word)
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// due returns the word that a workload must be told now, and notes that it is being told; false: the workload knows
// everything.
func (t *attendant) due(w *watched) (word workloads.Word, due bool) {
	done := t.attention.of(w.Name)
	said := done.Word
	under := !done.Arrived && !done.GivenUp // this process or an earlier one is still telling it
	believes := said.Incident != "" && said.Phase != workloads.PhaseWithdrawn
	i, leaves := t.incidents.current(), t.incidents.leaving() && !t.incidents.outlived()
	switch {
	case believes && (!leaves || said.Incident != i.ID):
		said.Phase = workloads.PhaseWithdrawn
		if !w.Hears(said) {
			t.note(w, func(d *attended) { d.Word, d.Trouble = workloads.Word{}, "" })
			return t.due(w)
		}
		word = said
	case said.Phase == workloads.PhaseWithdrawn && under && !leaves:
		return said, true
	case !leaves:
		return word, false
	case said.Incident != i.ID:
		word = t.word(i, workloads.PhaseNoticed)
	case under:
		return t.word(i, said.Phase), true
	case outdated(done, i):
		word = t.word(i, workloads.PhaseChanged)
	default:
		return word, false
	}
	if !w.Hears(word) {
		return word, false
	}
	t.note(w, func(d *attended) {
		d.Word, d.Lead, d.Arrived, d.GivenUp, d.Trouble = word, i.Lead(), false, false, ""
	})
	return word, true
}

// outdated reports whether what a workload was told is no longer true.
func outdated(d attended, i preemption.Incident) bool {
	return i.Moved(d.Lead) || d.Word.Kind != string(i.Kind()) || d.Word.Rehearsal != i.Rehearsed()
}

func (t *attendant) word(i preemption.Incident, phase workloads.Phase) workloads.Word {
	return workloads.Word{
		Phase: phase, Node: t.node, Incident: i.ID, Kind: string(i.Kind()), Source: i.Source(), Stance: string(preemption.StanceDrain),
		Reason: i.Reason(), Rehearsal: i.Rehearsed(),
	}.Before(i.Deadline())
}

// tellOne tells a workload a word until it has arrived, its time is up, or it no longer holds. When ctx ends the word stays
// due: the next process goes on with it. The drain does not wait for any of this.
func (t *attendant) tellOne(ctx context.Context, w *watched, word workloads.Word) {
	began := time.Now()
	t.log.Info("telling a workload", "workload", w.Name, "phase", word.Phase, "incident", word.Incident, preemption.Left(word.Deadline), "what", w.Teller.String())
	for pause := firstAgain; ; pause = min(2*pause, mostAgain) {
		err := t.attempt(ctx, w, word, began)
		for errors.Is(err, workloads.ErrMoved) && ctx.Err() == nil {
			err = t.attempt(ctx, w, word, began)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return
		case errors.Is(err, workloads.ErrSuperseded):
			t.log.Info("a workload is no longer told", "workload", w.Name, "phase", word.Phase)
			t.note(w, func(d *attended) { d.GivenUp = true })
			return
		case err == nil:
			t.log.Info("a workload was told", "workload", w.Name, "phase", word.Phase, "took", time.Since(began))
			t.note(w, func(d *attended) { d.Arrived, d.Trouble = true, "" })
			w.lookAgain()
			return
		}
		until, holds := t.tellUntil(word, began)
		if over := !time.Now().Add(pause).Before(until); over || !w.Again() {
			t.log.Error("a workload was not told, and it is not tried again", "workload", w.Name, "phase", word.Phase, "took", time.Since(began), "err", err)
			t.note(w, func(d *attended) { d.GivenUp, d.Trouble = true, err.Error() })
			return
		}
		if holds {
			t.hindered(w, word, err)
		}
		changed := t.incidents.Changes()
		select {
		case <-time.After(pause):
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// hindered notes and logs why a word was not told. It is called once a reason, since the word is tried again.
func (t *attendant) hindered(w *watched, word workloads.Word, err error) {
	if t.attention.of(w.Name).Trouble == err.Error() {
		return
	}
	t.log.Warn("a workload was not told; it is tried again", "workload", w.Name, "phase", word.Phase, "err", err)
	t.note(w, func(d *attended) { d.Trouble = err.Error() })
}

// attempt tells a word once.
func (t *attendant) attempt(ctx context.Context, w *watched, word workloads.Word, began time.Time) error {
	until := func() (time.Time, bool) { return t.tellUntil(word, began) }
	return workloads.Attempt(ctx, w.Teller, word, t.incidents.Changes, until, func(err error) { t.hindered(w, word, err) })
}

// tellUntil is when telling a word must end; false: the word no longer holds.
func (t *attendant) tellUntil(word workloads.Word, began time.Time) (time.Time, bool) {
	i, leaves := t.incidents.current(), t.incidents.leaving() && !t.incidents.outlived()
	if word.Phase == workloads.PhaseWithdrawn {
		return began.Add(withdrawPatience), !leaves
	}
	until := began.Add(maxDrain)
	if !i.Deadline().IsZero() {
		until = t.limits.sendUntil(i)
		if least := began.Add(leastSending); until.Before(least) {
			until = least
		}
	}
	return until, leaves && i.ID == word.Incident
}
