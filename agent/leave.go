package agent

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/preemption"
)

const (
	// retryCall is the pause between attempts to tell the coordinator something that it has not heard.
	retryCall = time.Second
	// callTimeout bounds one attempt; goodbyeTimeout one that carries a manifest, which may have a million entries.
	callTimeout    = 5 * time.Second
	goodbyeTimeout = time.Minute
	// leastSending is what a drain gets whose notice leaves no time at all (EC2's hibernation): the machine may yet live
	// for some seconds, and each carries blocks.
	leastSending = 5 * time.Second
	// outliveAfter: a cloud that has not taken the machine ten minutes after it said it would has changed its mind without
	// a word (an EC2 notice is known to stay, in the past, when a reclaim fails).
	outliveAfter = 10 * time.Minute
)

// drain empties the node, unless this incident's drain is over already.
func (a *Agent) drain(ctx context.Context) {
	p, _ := a.news.read()
	if p.Drained != nil {
		return
	}
	sum, ended := a.empty(ctx, p.Incident.ID)
	if !ended {
		return // stopped or withdrawn; a restart or another notice goes on
	}
	err := a.news.amend(a.journal, func(p *page) { p.Drained = &sum })
	if err != nil {
		a.log.Error("the end of the drain is not on disk: a restart would look again", "err", err)
	}
	a.beat.Nudge()
}

// tell keeps the coordinator told: that the node leaves, and, once it is empty, what became of its blocks. The drain does
// not wait for it.
func (a *Agent) tell(ctx context.Context) {
	a.announce(ctx)
	for ctx.Err() == nil {
		changed := a.news.changes()
		if p, _ := a.news.read(); p.Drained != nil {
			a.goodbye(ctx)
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// empty runs the drain of an incident until it is done, its time is up (both: ended), or ctx ends.
func (a *Agent) empty(ctx context.Context, incident string) (sum migration.Summary, ended bool) {
	d, err := migration.NewDrain(migration.DrainConfig{
		Node: a.cfg.Node.Name, Incident: incident, Dir: a.journal.incidentDir(incident), Stores: a.stores, Vault: a.vault,
		Settle: a.receiver.Settle, Peers: a.peers, Dial: a.dialPeer, Connections: a.limits.Load().Drain.ConnectionsPerPeer,
		MaxBytesPerSecond: int64(a.limits.Load().Drain.MaxBytesPerSecond), Log: a.log,
	})
	if err != nil {
		a.log.Error("the drain cannot begin", "err", err)
		return migration.Summary{}, false
	}
	a.news.setDrain(d)
	began := time.Now()
	sending, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var clock sync.WaitGroup
	clock.Go(func() { a.untilTimeIsUp(sending, stop) })
	sum, err = d.Run(sending)
	stop(nil)
	clock.Wait()
	if err != nil {
		a.log.Error("the account of the drain has gaps", "err", err)
	}
	if ctx.Err() != nil {
		return sum, false
	}
	i, _ := a.news.incident()
	level := slog.LevelInfo
	if sum.Lost.Blocks > 0 {
		level = slog.LevelError // we gave something up
	}
	a.log.Log(ctx, level, "drained", "incident", incident, "blocks", sum.Moved.Blocks, "bytes", sum.Moved.Bytes, "lost", sum.Lost.Blocks,
		"lost_bytes", sum.Lost.Bytes, "skipped", sum.Skipped.Blocks, "took", time.Since(began).Round(time.Millisecond), "left", left(i.Deadline()))
	return sum, true
}

// untilTimeIsUp ends sending when the time for it is over. A notice that changes the deadline meanwhile moves that.
func (a *Agent) untilTimeIsUp(ctx context.Context, stop context.CancelCauseFunc) {
	for {
		changed := a.news.changes()
		i, _ := a.news.incident()
		timer := time.NewTimer(time.Until(a.sendUntil(i)))
		select {
		case <-timer.C:
			stop(context.DeadlineExceeded)
			return
		case <-changed:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// sendUntil is when sending must stop: the deadline less the tail, or, where no deadline is known, the configured limit.
// When a notice leaves less than two tails, half of what it leaves is sent in.
func (a *Agent) sendUntil(i preemption.Incident) time.Time {
	deadline := i.Deadline()
	if deadline.IsZero() {
		return i.NoticedAt().Add(a.limits.Load().Drain.Timeout)
	}
	tail := a.limits.Load().Drain.Tail
	if tail == 0 {
		tail = i.Tail()
	}
	lead := deadline.Sub(i.NoticedAt())
	if lead <= 0 {
		return i.NoticedAt().Add(leastSending)
	}
	return deadline.Add(-min(tail, lead/2))
}

// announce says WorkerDecommission until the coordinator has heard it.
func (a *Agent) announce(ctx context.Context) {
	a.insist(ctx, callTimeout, func(ctx context.Context) error {
		notice := a.apiNotice()
		if notice == nil {
			return nil
		}
		return a.beat.WorkerDecommission(ctx, notice)
	})
}

// goodbye gives the coordinator the manifest, once.
func (a *Agent) goodbye(ctx context.Context) {
	p, _ := a.news.read()
	if p.Told || p.Drained == nil {
		return
	}
	a.insist(ctx, goodbyeTimeout, func(ctx context.Context) error {
		p, _ := a.news.read()
		return a.beat.Goodbye(ctx, a.summary(p), a.legible(a.manifest(p.Incident.ID)))
	})
	if ctx.Err() != nil {
		return
	}
	if err := a.news.amend(a.journal, func(p *page) { p.Told = true }); err != nil {
		a.log.Warn("the coordinator will be told of the drain again after a restart", "err", err)
	}
}

// insist repeats a call until it succeeds or ctx ends. The heartbeat logs that the coordinator is away; saying it here
// again would be noise.
func (a *Agent) insist(ctx context.Context, patience time.Duration, call func(context.Context) error) {
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, patience)
		err := call(attempt)
		cancel()
		if err == nil {
			return
		}
		a.log.Debug("the coordinator was not told", "err", err)
		select {
		case <-time.After(retryCall):
		case <-ctx.Done():
		}
	}
}

// outlived waits for the machine to go. It returns true when a cloud's deadline has passed and the machine still lives.
func (a *Agent) outlived(ctx context.Context) bool {
	for {
		changed := a.news.changes()
		i, _ := a.news.incident()
		var over <-chan time.Time
		if d := i.Deadline(); !d.IsZero() && i.Source() == preemption.SourceEC2 {
			over = time.After(time.Until(d.Add(outliveAfter)))
		}
		select {
		case <-over:
			a.log.Warn("the machine outlived its deadline: it is taken back into service", "incident", i.ID, "deadline", i.Deadline())
			return true
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// recommission ends the incident: the node stays. Notices that stand but ask for less than a drain stay in force, as an
// incident of their own.
func (a *Agent) recommission(ctx context.Context, why error) {
	p, open := a.news.read()
	if !open {
		return
	}
	p.Closed = why.Error()
	if err := a.journal.close(p); err != nil {
		a.log.Error("the end of the incident is not on disk: a restart would begin it again", "incident", p.Incident.ID, "err", err)
	}
	a.news.update(false, page{})
	a.news.setDrain(nil)
	a.log.Info("recommissioned", "incident", p.Incident.ID, "why", why)
	if errors.Is(why, errWithdrawn) {
		for _, n := range p.Incident.Notices {
			if !n.Withdrawn {
				a.join(ctx, n)
			}
		}
	}
	if p.leftBehind() {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if err := a.beat.Withdraw(call, p.Incident.ID); err != nil {
			a.log.Debug("the coordinator was not told; the next beats tell it", "err", err)
		}
	}
	a.beat.Nudge()
}

// farewell tells the coordinator that the agent stops while the node stays. It has its own clock: the context that ends
// the agent is over by now.
func (a *Agent) farewell(ctx context.Context) {
	if a.news.leaving() {
		return // the coordinator knows that this node leaves; a restart goes on with it
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := a.beat.Unavailable(last); err != nil {
		a.log.Debug("the coordinator was not told of the restart; the lease will tell", "err", err)
	}
}

// manifest reads the account of an incident's drain as it goes to the coordinator.
func (a *Agent) manifest(incident string) iter.Seq2[*api.ManifestEntry, error] {
	return func(yield func(*api.ManifestEntry, error) bool) {
		for e, err := range migration.Entries(a.journal.incidentDir(incident)) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(apiEntry(e), nil) {
				return
			}
		}
	}
}

// legible ends an account where its disk does. The figures in the summary, which are not read from there, say how much is
// missing: that is better than no goodbye.
func (a *Agent) legible(account iter.Seq2[*api.ManifestEntry, error]) iter.Seq2[*api.ManifestEntry, error] {
	return func(yield func(*api.ManifestEntry, error) bool) {
		for e, err := range account {
			if err != nil {
				a.log.Error("the account of the drain cannot be read to its end: the coordinator gets its figures", "err", err)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// left is the time to a deadline, for logs and the wire.
func left(deadline time.Time) time.Duration {
	if deadline.IsZero() {
		return 0
	}
	return time.Until(deadline).Round(time.Millisecond)
}
