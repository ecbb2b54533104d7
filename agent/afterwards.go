package agent

import (
	"context"
	"time"

	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

const (
	// firstLook is how long after a drain that is over the node looks whether there is something to carry again. The pauses between looks
	// double, since what each of them finds has the whole account told anew, and a look takes no more than one part in lookShare of the time.
	firstLook     = 5 * time.Second
	mostLookPause = 10 * time.Minute
	lookShare     = 10
	// leastLook is what is left at least for carrying what the last look before a deadline finds.
	leastLook = 5 * time.Second
)

// watchWrites says on written, once the drain is over and the machine still there, that there is something to carry of which the account of
// that drain says nothing: engines go on writing. Whoever hears it carries that before it hears it again.
func (a *Agent) watchWrites(ctx context.Context) {
	var next time.Time // zero: no drain is over
	pause, took := firstLook, time.Duration(0)
	for ctx.Err() == nil {
		changed := a.incidents.Changes()
		p, open := a.incidents.Open()
		switch over := open && p.Work.Drained != nil && !p.Work.Again && !p.Incident.Rehearsed(); {
		case !over && !p.Work.Again:
			next, pause = time.Time{}, firstLook
		case over && next.IsZero():
			next = time.Now().Add(pause)
		}
		var due <-chan time.Time
		if at := a.lookAt(p, next, took); !at.IsZero() && !p.Work.Again {
			due = time.After(time.Until(at))
		}
		select {
		case <-due:
		case <-changed:
			continue
		case <-ctx.Done():
			return
		}
		began := time.Now()
		some := a.anyLeft(ctx, p, manifest.Skipped, manifest.Lost) // what is named as lost stays so
		took = time.Since(began)
		if some {
			select {
			case a.written <- p:
			case <-ctx.Done():
			}
		}
		pause = min(max(2*pause, lookShare*took), mostLookPause)
		next = time.Now().Add(pause)
	}
}

// lookAt is when to look that would look at next: earlier where there would be no time then to carry what it finds. Zero: not any more.
func (a *Agent) lookAt(p page, next time.Time, took time.Duration) time.Time {
	if next.IsZero() || p.Incident.Deadline().IsZero() {
		return next
	}
	last := a.sendUntil(p.Incident).Add(-max(leastLook, lookShare*took/2))
	if !time.Now().Before(last) {
		return time.Time{}
	}
	if last.Before(next) {
		return last
	}
	return next
}

// saidSince is when somebody last said that the machine goes, if that was since the drain ended and since the node looked for what was
// written in between. Zero: nobody did.
func (a *Agent) saidSince(p page) (last time.Time) {
	if p.Work.Drained == nil || p.Work.Again || p.Incident.Rehearsed() {
		return time.Time{}
	}
	for _, n := range p.Incident.InForce() {
		if n.SeenAt.After(p.Work.Drained.Finished) && n.SeenAt.After(a.drains.lookedFor()) && n.SeenAt.After(last) {
			last = n.SeenAt
		}
	}
	return last
}

// wroteSince looks before a machine is let go whose drain was over when that was said: the pauses between looks may have grown long. It
// says whether there is something, once whoever carries it has heard so.
func (a *Agent) wroteSince(ctx context.Context) bool {
	p, _ := a.incidents.Open()
	said := a.saidSince(p)
	if said.IsZero() {
		return false
	}
	if time.Until(a.againUntil(p.Incident, time.Now())) >= leastLook && a.anyLeft(ctx, p, manifest.Skipped, manifest.Lost) {
		select {
		case a.written <- p:
		case <-ctx.Done():
		}
		return true
	}
	a.drains.look(said)
	return false
}

// anyLeft looks whether there is something to carry of which the account of a drain says neither that it was moved nor one of those.
func (a *Agent) anyLeft(ctx context.Context, p page, nor ...manifest.Outcome) bool {
	look, cancel := context.WithTimeout(ctx, leftTimeout)
	defer cancel()
	some, err := migration.AnyLeft(look, a.drainConfig(p.Incident.ID, a.accountDir(p.Incident.ID), 0), nor...)
	if err != nil && ctx.Err() == nil {
		a.log.Warn("cannot tell whether there are blocks here that the drain has not carried", "incident", p.Incident.ID, "err", err)
	}
	return some
}
