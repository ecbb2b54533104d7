package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/heartbeat"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/preemption"
)

// mostBroken bounds how many blocks one reply may ask this node to carry again.
const mostBroken = 64

// carryAgain carries blocks again that were moved and then broke at their peer, as the coordinator asks, until ctx ends. It
// hands them to the drain that runs; when the node is drained and still there, it runs another pass. It also keeps the vigil
// (lookout): peers that took blocks may be gone before this node is.
func (c *course) carryAgain(ctx context.Context) {
	vigil := lookout{vigil: &c.vigil}
	var looking sync.WaitGroup
	defer looking.Wait()
	looking.Go(func() { c.watchWrites(ctx) })
	done := map[migration.Broken]bool{} // which blocks of the newest reply are dealt with: every reply repeats them
	if vigil.lapsed == nil {
		vigil.lapsed, vigil.overs = c.fleet.Lapsed(), c.fleet.AppsChanged()
	}
	for ctx.Err() == nil {
		incidents := c.incidents.Changes()
		asked, changed := c.fleet.Again()
		wanted := brokenFrom(asked)
		maps.DeleteFunc(done, func(b migration.Broken, _ bool) bool { return !slices.Contains(wanted, b) })
		left := slices.DeleteFunc(wanted, func(b migration.Broken) bool { return done[b] })
		var look <-chan time.Time
		if len(left) > 0 {
			rest := c.carryOnce(ctx, left)
			for _, b := range left {
				done[b] = !slices.Contains(rest, b)
			}
			if len(rest) > 0 {
				look = time.After(lookAround)
			}
		}
		var ask, behind <-chan time.Time
		p, open := c.incidents.Open()
		if open && p.Work.Drained != nil && p.Work.Again { // a pass was left behind, or cut off with an earlier process
			behind = time.After(lookAround)
		}
		if open && c.incidents.leaving() {
			ask = time.After(time.Until(vigil.due(p)))
		}
		select {
		case <-changed:
		case <-vigil.lapsed:
			vigil.lapsed = c.fleet.Lapsed()
			vigil.doubt()
		case <-vigil.overs:
			vigil.overs, vigil.ends = c.fleet.AppsChanged(), true
		case was := <-c.written:
			if p.Work.stands(was.Work.Drained.Finished) { // else it may have been met since
				c.passAgain(ctx, p, nil, func(*migration.DrainConfig) {})
			}
		case <-incidents:
		case <-look:
		case <-behind:
			if !c.refuge.waits() {
				c.passAgain(ctx, p, nil, func(*migration.DrainConfig) {})
			}
		case <-ask:
			if p.Work.Drained == nil {
				vigil.amid(ctx, p)
			} else if q := vigil.finds(ctx, p); q != nil {
				if !c.passAgain(ctx, p, nil, func(cfg *migration.DrainConfig) { vigil.put(q, cfg) }) {
					q.answered(heartbeat.Held{}, errCutShort)
				}
				vigil.after(q)
			}
		case <-ctx.Done():
		}
	}
}

// errCutShort says that a pass ended before it had asked about all blocks.
var errCutShort = errors.New("the pass was cut short")

// leastAgain is the least time that must be left to begin another pass over all stores: a pass that is cut short names the
// blocks that it has not met as lost.
const leastAgain = 10 * time.Second

// againUntil is when another pass must end that begins at began. A deadline that had passed by then does not count: an operator's order
// has one, and its machine may be there for days after.
func (r *rules) againUntil(i preemption.Incident, began time.Time) time.Time {
	if i = i.Ahead(began); !i.Deadline().IsZero() {
		return r.sendUntil(i)
	}
	return began.Add(r.Load().Drain.Timeout)
}

// brokenFrom converts what the coordinator asks for, and drops ids that do not parse.
func brokenFrom(asked []*api.BrokenBlock) (all []migration.Broken) {
	for _, b := range asked[:min(len(asked), mostBroken)] {
		if id, err := inventory.ParseBlockID(b.GetId()); err == nil {
			all = append(all, migration.Broken{ID: id, Peer: b.GetPeer(), Heir: b.GetHeir()})
		}
	}
	return all
}

// carryOnce carries broken blocks again, in another pass if the drain is over, and returns those that have to wait.
func (c *course) carryOnce(ctx context.Context, broken []migration.Broken) (rest []migration.Broken) {
	if p, open := c.incidents.Open(); open && p.Work.Drained != nil {
		if c.passAgain(ctx, p, broken, func(cfg *migration.DrainConfig) { cfg.Again = broken }) {
			return nil
		}
		return broken
	}
	rest, err := c.drains.again(ctx, broken)
	if err != nil {
		c.log.Warn("cannot read what was moved before: what is broken is carried again", "err", err)
	}
	return rest
}

// again hands broken blocks to the drain that runs, and returns those that it cannot take any more.
func (s *drains) again(ctx context.Context, broken []migration.Broken) (rest []migration.Broken, err error) {
	s.mu.Lock()
	d := s.last
	s.mu.Unlock()
	if d == nil {
		return broken, nil
	}
	return d.CarryAgain(ctx, broken)
}

// passAgain runs another pass of a drain that was over: for blocks that broke, that nobody has any more, or that were
// written since. Once the pass is over, the coordinator is told anew; until then it keeps the manifest of that drain, which
// still names what was lost: the account does not, while the pass carries it. passAgain reports false when the pass was cut short.
func (c *course) passAgain(ctx context.Context, p page, broken []migration.Broken, about func(*migration.DrainConfig)) (done bool) {
	ended := p.Work.Drained.Finished
	if !c.passes(ctx, ended) {
		return false // another drain runs
	}
	over := sync.OnceFunc(func() { <-c.passing })
	defer over()
	again := func(w *work) {
		if w.stands(ended) {
			w.Again = true
		}
	}
	if err := c.incidents.Amend(again); err != nil {
		c.log.Warn("cannot write to the journal that blocks are carried again: a restart would not know", "err", err)
	}
	began := time.Now()
	limit := func() time.Time { return c.limits.againUntil(c.incidents.current(), began) }
	sending, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop(nil)
	watching.Go(func() { c.untilTimeIsUp(sending, stop, limit) })
	watching.Go(func() { c.incidents.untilUndone(sending, ended); stop(nil) })
	sum, err := c.refuge.carry(sending, p.Incident.ID, true, func(ctx context.Context, dir string) (manifest.Summary, error) {
		cfg := c.accountConfig(p.Incident.ID, dir, c.limits.Load().Drain.MaxBytesPerSecond)
		cfg.Until = limit
		about(&cfg)
		if before := c.drains.of(dir); before != nil {
			cfg.Unwritten = before.Unwritten()
		}
		d := c.newDrain(ctx, cfg, false, false)
		if d == nil {
			return manifest.Summary{}, errLeft
		}
		return d.Run(ctx)
	})
	stop(nil)
	watching.Wait()
	if errors.Is(err, errLeft) {
		return false // it waits for the disk, and carryAgain tries again
	}
	if err != nil {
		c.log.Error("the manifest of the drain is not complete", "err", err)
	}
	if now, _ := c.incidents.Open(); ctx.Err() != nil || !now.Work.stands(ended) {
		return false // stopped, withdrawn or undone; after a restart the coordinator asks again
	}
	sum.Started = p.Work.Drained.Started
	account := func(w *work) {
		if w.stands(ended) {
			w.Drained, w.Told, w.Kept, w.Again = &sum, false, false, false
		}
	}
	if err := c.incidents.Amend(account); err != nil {
		c.log.Error("cannot write to the journal that another pass is over: a restart would tell the coordinator of the one before", "err", err)
	}
	c.log.Info("another pass of the drain", "incident", p.Incident.ID, "broken", len(broken), "moved", sum.Moved.Blocks-p.Work.Drained.Moved.Blocks, "lost", sum.Lost.Blocks,
		"took", time.Since(began).Round(time.Millisecond), preemption.Left(p.Incident.Deadline()))
	c.fleet.Nudge()
	over()
	c.leaveAccount(ctx)
	return true
}

// passes waits for its turn to run a pass, which the caller must give back. It reports false once the drain that ended at
// that time counts for nothing: then another drain runs, which may take its time.
func (c *course) passes(ctx context.Context, ended time.Time) bool {
	for {
		changed := c.incidents.Changes()
		if p, _ := c.incidents.Open(); !p.Work.stands(ended) {
			return false
		}
		select {
		case c.passing <- struct{}{}:
			if p, _ := c.incidents.Open(); p.Work.stands(ended) {
				return true
			}
			<-c.passing
			return false
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// untilUndone waits until the drain that ended at that time counts for nothing: another drain carries all then.
func (in *incidents) untilUndone(ctx context.Context, ended time.Time) {
	in.until(ctx, func(p page, _ bool) bool { return !p.Work.stands(ended) })
}
