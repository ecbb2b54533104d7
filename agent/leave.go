package agent

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/preemption"
)

const (
	// retryCall is the pause between attempts to tell the coordinator something that it has not heard.
	retryCall = time.Second
	// callTimeout bounds one attempt; goodbyeTimeout one that carries a manifest, which may have a million entries.
	callTimeout    = 5 * time.Second
	goodbyeTimeout = time.Minute
	// leastSending is how long a drain sends whose notice leaves no time at all (EC2's hibernation): the machine may still
	// live for some seconds, and each of them carries blocks.
	leastSending = 5 * time.Second
	// releaseTimeout bounds the call that tells the sources that the node is empty. Nothing waits for it.
	releaseTimeout = time.Minute
)

// drain empties the node, unless this incident's drain is over already. It reports whether it is over now.
func (c *course) drain(ctx context.Context) (over bool) {
	p, open := c.incidents.Open()
	if !open || p.Work.Drained != nil {
		return open
	}
	sum, unfinished, cut, ended := c.empty(ctx, p.Incident.ID)
	for ended && cut && c.timeLeft() { // a later deadline came while the lost blocks were being named
		sum, unfinished, cut, ended = c.empty(ctx, p.Incident.ID)
	}
	if !ended {
		return false // stopped or withdrawn; a restart or another notice resumes it
	}
	if len(unfinished) > 0 {
		c.log.Warn("the drain ended while workloads or apps that it waits for still ran", "incident", p.Incident.ID, "unfinished", unfinished)
	}
	if err := c.incidents.Amend(func(w *work) { w.Drained, w.Unfinished = &sum, unfinished }); err != nil {
		c.log.Error("cannot write to the journal that the drain is over: a restart would look through the stores again", "err", err)
	}
	c.fleet.Nudge()
	return true
}

// untilNews waits while an empty node has nothing to do: until its drain no longer counts, because it was a rehearsal's (see
// undoRehearsed), or until a new notice comes, as when the empty machine is shut down. The source of that notice must be
// told, and the node looks for new writes first.
func (c *course) untilNews(ctx context.Context, released map[string]bool) {
	c.incidents.until(ctx, func(p page, open bool) bool {
		return open && (p.Work.Drained == nil || len(unreleased(p, released)) > 0 || !c.saidSince(p).IsZero())
	})
}

// tell tells the coordinator that the node leaves and, once it is empty, what became of its blocks; after another pass it
// tells that again. The drain does not wait for it.
func (c *course) tell(ctx context.Context) {
	announced := false
	var told time.Time // when the drain ended that the coordinator knows of
	for ctx.Err() == nil {
		changed := c.incidents.Changes()
		switch p, _ := c.incidents.Open(); {
		case p.Work.Undone:
			announced, told = false, time.Time{}
			c.takeBack(ctx, p.Incident.ID)
			continue
		case !announced:
			announced = true
			c.announce(ctx)
			continue
		case p.Work.Drained != nil && !p.Work.Drained.Finished.Equal(told):
			told = p.Work.Drained.Finished
			c.goodbye(ctx)
			continue
		}
		select {
		case <-changed:
		case <-c.fleet.Unaccounted():
			told = time.Time{}
			c.log.Warn("the coordinator has lost the manifest of the drain: it is sent again")
			if err := c.incidents.Amend(func(w *work) { w.Told = false }); err != nil {
				c.log.Warn("cannot write to the journal that the coordinator lacks the manifest: after a restart it would have to ask again", "err", err)
			}
		case <-ctx.Done():
		}
	}
}

// takeBack tells the coordinator that the node is still there after a drain that counts for nothing: the coordinator may
// have seen its end.
func (c *course) takeBack(ctx context.Context, incident string) {
	c.insist(ctx, callTimeout, func(ctx context.Context) error { return c.fleet.Withdraw(ctx, incident) })
	if ctx.Err() != nil {
		return
	}
	if err := c.incidents.Amend(func(w *work) { w.Undone = false }); err != nil {
		c.log.Warn("cannot write to the journal that the coordinator knows the node is still here: a restart would tell it again", "err", err)
	}
}

// timeLeft reports whether there is still time to send.
func (c *course) timeLeft() bool {
	limit := c.sendLimit(c.incidents.current())
	return limit.IsZero() || time.Now().Before(limit)
}

// empty runs the drain of an incident until it is done, its time is up, or ctx ends. ended is false only if ctx ended; cut
// says that time was up. While the node waits for its workloads, pass follows pass, each for what was written since the one
// before. The last pass begins when nothing is waited for any more, or when it must begin to be over in time: then what
// still goes on is unfinished.
func (c *course) empty(ctx context.Context, incident string) (sum manifest.Summary, unfinished []string, cut, ended bool) {
	began := time.Now()
	sending, stop := context.WithCancelCause(ctx)
	var clock sync.WaitGroup
	defer clock.Wait()
	defer stop(nil)
	limit := func() time.Time { return c.sendLimit(c.incidents.current()) }
	clock.Go(func() { c.untilTimeIsUp(sending, stop, limit) })
	for waited := false; ; waited = true {
		last := sending.Err() != nil || c.isLast() // asked before the pass: what is written while it runs is for the next pass
		if last && waited {
			c.drains.free(time.Now())
		}
		late := last && len(c.unfinished()) > 0
		pass := time.Now()
		if sum = c.pass(sending, incident, last); ctx.Err() != nil {
			return sum, nil, false, false
		}
		if late {
			unfinished = c.unfinished() // asked again: a workload may have ended during the pass
		}
		if last {
			break
		}
		// When time is up during the pause, one more pass names what was not met.
		c.untilNextPass(sending, min(max(time.Since(pass), leastPassPause), mostPassPause))
	}
	i := c.incidents.current()
	if left := i.FirstLeftAt(); left.Before(began) { // an earlier process began this drain
		began = left
	}
	sum.Started, cut = byClockAt(sum.Finished, began), sending.Err() != nil
	end := c.log.With("incident", incident, "blocks", sum.Moved.Blocks, "bytes", sum.Moved.Bytes, "lost", sum.Lost.Blocks,
		"lost_bytes", sum.Lost.Bytes, "skipped", sum.Skipped.Blocks, "took", time.Since(began).Round(time.Millisecond), preemption.Left(i.Deadline()))
	if sum.Lost.Blocks > 0 { // we gave something up
		end.Error("drained", "why", c.whyLost(ctx, incident), "see", "lifeboat manifest "+c.fleet.node)
	} else {
		end.Info("drained")
	}
	return sum, unfinished, cut, true
}

// pass carries every block that is here and not in the incident's ledger.
func (c *course) pass(ctx context.Context, incident string, last bool) manifest.Summary {
	c.passing <- struct{}{} // a pass of a drain that no longer counts may be about to end (see undoRehearsed)
	defer func() { <-c.passing }()
	if !last {
		bounded, cut := context.WithCancel(ctx)
		defer cut()
		defer time.AfterFunc(mostPass, cut).Stop()
		ctx = bounded
	}
	sum, err := c.refuge.carry(ctx, incident, false, func(ctx context.Context, dir string) (manifest.Summary, error) {
		cfg := c.passConfig(incident, dir, last)
		if before := c.drains.of(dir); ctx.Err() != nil && before != nil { // this pass only names what that one had in its plan
			cfg.Late, cfg.Unwritten = before.TimeUp(), before.Unwritten()
		}
		q := c.vigil.before(ctx, incident, dir)
		c.vigil.put(q, &cfg)
		d := c.newDrain(ctx, cfg, false, !last)
		if d == nil {
			return manifest.Summary{}, errLeft
		}
		sum, err := d.Run(ctx)
		if !isLeft(ctx) {
			c.vigil.after(q)
		}
		return sum, err
	})
	if err != nil {
		c.log.Error("the manifest of the drain is not complete", "err", err)
	}
	return sum
}

// newDrain makes a drain and makes it the current one. Nil: that took so long, on a hanging disk, that the drain was left
// behind.
func (c *course) newDrain(ctx context.Context, cfg migration.DrainConfig, ahead, more bool) *migration.Drain {
	d := migration.NewDrain(cfg)
	if isLeft(ctx) {
		return nil
	}
	c.drains.set(d, ahead, more)
	c.drains.limit(c.limits.Load().Drain) // it may have changed while the drain was made
	return d
}

// passConfig is for one pass of a drain: its plan goes by the deadline, and its cap is that of leaving nodes.
func (c *course) passConfig(incident, dir string, last bool) migration.DrainConfig {
	cfg := c.accountConfig(incident, dir, c.limits.Load().Drain.MaxBytesPerSecond)
	if last && !c.refuge.has(incident) { // earlier accounts lie on the disk that hangs
		cfg.Earlier = append(c.incidents.earlier(incident, time.Time{}), c.evacuations.moved(time.Time{})...)
	}
	cfg.Once, cfg.Until = !last, func() time.Time { return c.sendLimit(c.incidents.current()) }
	return cfg
}

// accountConfig is for a drain of an incident whose account is in dir.
func (c *course) accountConfig(incident, dir string, cap config.Bytes) migration.DrainConfig {
	cfg := c.drainConfig(incident, dir, cap)
	cfg.Ballast = c.ballast
	if c.refuge.has(incident) {
		cfg.Ballast, cfg.Index, cfg.MostBytes, cfg.Wary = nil, nil, mostRefuge, true
	}
	return cfg
}

// untilTimeIsUp stops the sending once limit is reached. It asks limit again and again, since notices, settings and what the
// node waits for move it. Where no deadline is known, time spent waiting does not count.
func (c *course) untilTimeIsUp(ctx context.Context, stop context.CancelCauseFunc, limit func() time.Time) {
	for ctx.Err() == nil {
		changed := c.incidents.Changes()
		pause := lookAround
		if at := limit(); at.IsZero() {
			c.drains.free(time.Now())
		} else {
			pause = min(pause, time.Until(at))
		}
		if pause <= 0 {
			stop(context.DeadlineExceeded)
			return
		}
		select {
		case <-time.After(pause):
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// sendUntil is when sending must stop: the deadline less the tail, or, where no deadline is known, the configured timeout
// after the node began to leave. When a notice leaves less than two tails, sending gets half of what it leaves.
func (r *rules) sendUntil(i preemption.Incident) time.Time {
	deadline := i.Deadline()
	if deadline.IsZero() {
		return i.LeftAt().Add(r.Load().Drain.Timeout)
	}
	tail := cmp.Or(r.Load().Drain.Tail, i.Tail())
	lead := deadline.Sub(i.LeftAt())
	if lead <= 0 {
		return i.LeftAt().Add(leastSending)
	}
	return deadline.Add(-min(tail, lead/2))
}

// announce says WorkerDecommission until the coordinator has heard it.
func (c *course) announce(ctx context.Context) {
	c.insist(ctx, callTimeout, func(ctx context.Context) error {
		notice := c.incidents.notice()
		if notice == nil {
			return nil
		}
		return c.fleet.WorkerDecommission(ctx, notice)
	})
}

// goodbye sends the manifest to the coordinator, unless it has it.
func (c *course) goodbye(ctx context.Context) {
	p, _ := c.incidents.Open()
	if p.Work.Told || p.Work.Drained == nil {
		return
	}
	var said time.Time
	var before <-chan struct{} // closed when the attempt before is over: it may hang at the account
	c.insist(ctx, goodbyeTimeout, func(ctx context.Context) error {
		if before != nil && !isClosed(before) {
			return errLeft
		}
		p, _ := c.incidents.Open()
		if p.Work.Drained == nil {
			return nil // the drain no longer counts (see undoRehearsed)
		}
		said = p.Work.Drained.Finished
		summary, account := c.summary(p), c.legible(c.manifest(p.Incident.ID))
		var refused error
		attempt := await.Beside(func() { refused = c.fleet.Goodbye(ctx, summary, account) })
		before = attempt
		select {
		case <-attempt:
			return refused
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if ctx.Err() != nil {
		return
	}
	if err := c.incidents.Amend(func(w *work) { w.Told = w.stands(said) }); err != nil {
		c.log.Warn("cannot write to the journal that the coordinator has the manifest: a restart would send it again", "err", err)
	}
}

// insist repeats a call until it succeeds or ctx ends. It logs only at debug level: the heartbeat logs that the coordinator
// is away.
func (c *course) insist(ctx context.Context, patience time.Duration, call func(context.Context) error) {
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, patience)
		err := call(attempt)
		cancel()
		if err == nil {
			return
		}
		c.log.Debug("the coordinator was not told", "err", err)
		await.Sleep(ctx, retryCall)
	}
}

// release tells the sources of the notices that the node is empty, so that the machine may go sooner than it must. Each
// source is told once: if that fails, the machine goes when it must.
func (c *course) release(ctx context.Context, released map[string]bool) {
	p, _ := c.incidents.Open()
	notices := unreleased(p, released)
	if len(notices) == 0 {
		return
	}
	for _, n := range notices {
		released[n.Name()] = true
	}
	limited, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if err := c.notices.Release(limited, notices...); err != nil && ctx.Err() == nil { // else the node stays, or a restart tells them
		c.log.Warn("not everybody could be told that the node is empty: the machine goes when its time is up", "err", err)
	}
}

// unreleased lists the notices whose sources do not know yet that the node is empty. A notice that comes back after a
// withdrawal is a new one. None is listed while the node carries more, when it could not save everything (its blocks stay
// readable for as long as the machine is let live), when workloads go on (they run as long), and in a rehearsal, which takes
// no machine.
func unreleased(p page, released map[string]bool) []preemption.Notice {
	inForce := p.Incident.InForce()
	maps.DeleteFunc(released, func(name string, _ bool) bool {
		return !slices.ContainsFunc(inForce, func(n preemption.Notice) bool { return n.Name() == name })
	})
	if w := p.Work; w.Drained == nil || w.Again || w.Drained.Lost.Blocks > 0 || len(w.Unfinished) > 0 || p.Incident.Rehearsed() {
		return nil
	}
	return slices.DeleteFunc(inForce, func(n preemption.Notice) bool { return released[n.Name()] })
}

// recommission ends the incident: the node stays. Notices still in force, which ask for less than a drain, become an
// incident of their own, except those that the machine has outlived.
func (c *course) recommission(ctx context.Context, why error) {
	p, open := c.incidents.Open()
	if !open {
		return
	}
	if err := c.incidents.Close(why.Error()); err != nil {
		c.log.Error("cannot write the end of the incident to the journal: a restart would begin it again", "incident", p.Incident.ID, "err", err)
	}
	c.drains.set(nil, false, false)
	c.counts.ended(why)
	c.log.Info("recommissioned", "incident", p.Incident.ID, "why", why)
	for _, n := range p.Incident.InForce() {
		if errors.Is(why, errOutlived) && n.Outlived() {
			c.manual.Forget(n)
		} else {
			c.join(ctx, n)
		}
	}
	if p.Begun {
		c.aside.Go(func() { // a coordinator that hangs must not delay the next notice
			call, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			if err := c.fleet.Withdraw(call, p.Incident.ID); err != nil {
				c.log.Debug("the coordinator was not told; the next beats tell it", "err", err)
			}
		})
	}
	c.fleet.Nudge()
}

// farewell tells the coordinator that the agent stops while the node stays. It has its own clock: the context that ends
// the agent is over by now.
func (c *course) farewell(ctx context.Context) {
	if c.incidents.leaving() {
		return // the coordinator knows that this node leaves; a restart goes on with it
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := c.fleet.Unavailable(last); err != nil {
		c.log.Debug("the coordinator was not told of the restart; the lease will tell", "err", err)
	}
}

// manifest reads the account of an incident's drain.
func (c *course) manifest(incident string) iter.Seq2[manifest.Entry, error] {
	dir := c.refuge.accountDir(incident)
	if d := c.drains.of(dir); d != nil {
		return d.Entries()
	}
	return manifest.Entries(dir)
}

// legible converts an account for the coordinator; each entry is valid until the next. It ends at the first unreadable
// entry: the summary, whose figures do not come from that disk, says how much is missing, and a goodbye in part is better
// than none.
func (c *course) legible(account iter.Seq2[manifest.Entry, error]) iter.Seq2[*api.ManifestEntry, error] {
	return func(yield func(*api.ManifestEntry, error) bool) {
		said := new(api.ManifestEntry)
		for e, err := range account {
			if err != nil {
				c.log.Error("the manifest of the drain cannot be read to its end: the coordinator gets its totals", "err", err)
				return
			}
			said.Id, said.Bytes, said.Outcome, said.Peer, said.Reason = e.ID, e.Bytes, string(e.Outcome), e.Peer, short(e.Reason, longestReason)
			if !yield(said, nil) {
				return
			}
		}
	}
}
