package agent

import (
	"context"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

const (
	// firstLook is how long after the end of a drain the node first looks for new writes. The pauses between looks double,
	// because after each look that finds something the whole account goes to the coordinator again. A look takes no more
	// than one part in lookShare of the time.
	firstLook     = 5 * time.Second
	mostLookPause = 10 * time.Minute
	lookShare     = 10
	// leastLook is the least time that the last look before a deadline leaves for carrying what it finds.
	leastLook = 5 * time.Second
)

// watchWrites looks for new writes once the drain is over and the machine is still there: engines write until they are
// killed. When it finds something that the account says nothing of, it sends the page to a.written. carryAgain runs another
// pass before it receives again.
func (c *course) watchWrites(ctx context.Context) {
	var next time.Time // zero: no drain is over
	pause, took := firstLook, time.Duration(0)
	for ctx.Err() == nil {
		changed, health := c.incidents.Changes(), c.disks.Changed()
		p, open := c.incidents.Open()
		switch over := open && p.Work.Drained != nil && !p.Work.Again && !p.Incident.Rehearsed(); {
		case !over && !p.Work.Again:
			next, pause = time.Time{}, firstLook
		case over && next.IsZero():
			next = time.Now().Add(pause)
		}
		var due <-chan time.Time
		if at := c.lookAt(p, next, took); !at.IsZero() && !p.Work.Again {
			due = time.After(time.Until(at))
		}
		select {
		case <-due:
		case <-changed:
			continue
		case <-health: // a disk may answer again, and there may be little time for what was lost there
			if soon := time.Now().Add(max(firstLook, lookShare*took)); soon.Before(next) {
				next = soon
			}
			continue
		case <-ctx.Done():
			return
		}
		began := time.Now()
		timely := p.Incident.OutlivedAt().IsZero() || began.Before(c.limits.sendUntil(p.Incident))
		some, _ := c.anyLeft(ctx, p, c.findsRoom(timely)) // the next look may tell
		took = time.Since(began)
		if some {
			select {
			case c.written <- p:
			case <-ctx.Done():
			}
		}
		pause = min(max(2*pause, lookShare*took), mostLookPause)
		next = time.Now().Add(pause)
	}
}

// lookAt moves a look that is due at next to an earlier time if at next there were no time left to carry what it finds. If it is too late
// for that, the next look is when the deadline has passed, for a machine that is still there. Zero: no look is due.
func (c *course) lookAt(p page, next time.Time, took time.Duration) time.Time {
	i := p.Incident.Ahead(time.Now())
	if next.IsZero() || i.Deadline().IsZero() {
		return next
	}
	last := c.limits.sendUntil(i).Add(-max(leastLook, lookShare*took/2))
	if time.Now().Before(last) {
		if last.Before(next) {
			return last
		}
	} else if next.Before(i.Deadline()) {
		return i.Deadline()
	}
	return next
}

// saidSince is when a source last said that the machine goes, if it said so after the drain ended and the node has not
// looked for new writes since (wroteSince). Zero: no source did. A notice that was taken back and came again, or whose deadline
// moved closer, was said anew when the node began to leave for it.
func (c *course) saidSince(p page) (last time.Time) {
	if p.Work.Drained == nil || p.Work.Again || p.Incident.Rehearsed() {
		return time.Time{}
	}
	for _, n := range p.Incident.InForce() {
		for _, said := range []time.Time{n.SeenAt, n.LeftAt} {
			if said.After(p.Work.Drained.Finished) && said.After(c.drains.lookedFor()) && said.After(last) {
				last = said
			}
		}
	}
	return last
}

// wroteSince looks for new writes before it lets a machine go whose end was announced after its drain: by then the pauses of
// watchWrites may be long. It reports whether there are any, once carryAgain has taken them on. While a disk does not answer
// that may have some, it looks again, for as long as there is time to carry what it finds, or for drain.timeout where no
// deadline is known: the machine does not go sooner than it must because nobody could look. A drain that has lost something
// lets no machine go sooner anyway.
func (c *course) wroteSince(ctx context.Context) bool {
	began := time.Now()
	for pause := firstLook; ; pause = min(2*pause, mostLookPause) {
		answers, changed := c.disks.Changed(), c.incidents.Changes()
		p, _ := c.incidents.Open()
		said := c.saidSince(p)
		if said.IsZero() {
			return false
		}
		some, known := false, true
		if time.Until(c.limits.againUntil(p.Incident, began)) >= leastLook {
			some, known = c.anyLeft(ctx, p, c.findsRoom(true))
		}
		switch {
		case some:
			select {
			case c.written <- p:
			case <-ctx.Done():
			}
			return true
		case known, p.Work.Drained.Lost.Blocks > 0:
			c.drains.look(said)
			return false
		}
		select {
		case <-answers:
		case <-changed:
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
	}
}

// anyLeft reports whether there is something to carry that the account does not name, or names as lost, but again says that it
// is to be tried again (see migration.AnyLeft). known is false if that cannot be told because a disk does not answer. Where
// something else is in the way, as more blocks than can be looked through in leftTimeout, another look would tell no more.
func (c *course) anyLeft(ctx context.Context, p page, again func(b *inventory.Block, late bool) bool) (some, known bool) {
	look, cancel := context.WithTimeout(ctx, leftTimeout)
	defer cancel()
	cfg := c.drainConfig(p.Incident.ID, c.refuge.accountDir(p.Incident.ID), 0)
	some, err := migration.AnyLeft(look, cfg, again)
	if err == nil {
		return some, true
	}
	if ctx.Err() == nil {
		c.log.Warn("cannot tell whether there are blocks here that the drain has not carried", "incident", p.Incident.ID, "err", err)
	}
	dirs := cfg.Vault.Paths()
	for _, s := range cfg.Stores {
		dirs = append(dirs, s.Paths...)
	}
	return false, !diskio.IsSilent(err) && !slices.ContainsFunc(dirs, func(dir string) bool { return !c.disks.Readable(dir) })
}

// findsRoom returns what says of lost blocks that they are tried again: those that may well leave now (migration.AnyLeft), if there is time
// for that, and somebody is known to have room for them. What the coordinator tells of a peer may be off by a quarter.
func (c *course) findsRoom(timely bool) (again func(b *inventory.Block, late bool) bool) {
	most := mostOf(c.fleet.peers())
	return func(b *inventory.Block, late bool) bool {
		takes := b.Takes()
		return timely && late && (takes+takes/4 <= most(b.ID.Store()) || c.fallback.takes(takes))
	}
}
