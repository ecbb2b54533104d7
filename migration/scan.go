package migration

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxScans bounds the passes over stores that an engine goes on writing to. With the pauses between them it is a quarter
	// of an hour, as long as any cloud's notice; an operator's decommission of a node that is never quiet must end too.
	maxScans   = 180
	leastPause = 250 * time.Millisecond
	mostPause  = 5 * time.Second
	// settlePatience is for what others have just sent here. A disk that takes longer keeps what is on it, too.
	settlePatience = 5 * time.Second
)

// scanUntilQuiet fills the plan. When everything found is settled it looks again for what was committed meanwhile, until
// a pass finds nothing new.
func (d *Drain) scanUntilQuiet(ctx context.Context) {
	if len(d.cfg.Again) > 0 {
		d.carryAgain(ctx)
		return
	}
	pause := leastPause
	for pass := range maxScans {
		found := d.scan(ctx, pass)
		if err := d.plan.trouble(); err != nil && pass == 0 {
			d.cfg.Log.Warn("the plan is kept in memory", "err", err)
		}
		if ctx.Err() != nil || pass > 0 && (found == 0 || d.cfg.Once) {
			return
		}
		if pass > 0 {
			d.ledger.onceMore()
		}
		d.setPhase(PhaseSending)
		if err := d.plan.idle(ctx); err != nil {
			return
		}
		if pass == 0 {
			continue // on a node whose engines have stopped, the second look is the last
		}
		if !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, mostPause)
	}
	d.cfg.Log.Warn("the stores keep changing: what is written from now on is not carried", "passes", maxScans)
}

// scan plans the blocks that changed since the last scan and have not been handled in this version, and counts them. What
// a disk may hold up is read by itself: one that hangs does not keep the others' blocks here. When the deadline comes
// first, what was not met by then is named as lost, as far as a moment more allows.
func (d *Drain) scan(ctx context.Context, pass int) int {
	d.heedClock(setBack(d.ledger.summary.Started))
	naming, cancel := linger(ctx, receiptGrace)
	defer cancel()
	var found atomic.Int64
	take := func(it Item, err error) bool {
		switch {
		case ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
			return false
		case it.ID != "" && !d.concerns(it.Block):
		case silent(err) && it.ID == "": // told by who reads the store
		case err == nil && it.ID == "": // it goes on
			d.stirred.stir(it.Stirred)
		case err != nil:
			if dir, is := errors.AsType[*unlistedError](err); is {
				d.unlist(dir)
			} else {
				d.cfg.Log.Warn("part of a store cannot be read: what is there stays behind", "err", err)
			}
			if it.ID != "" && pass == 0 {
				found.Add(1)
				d.meet(it.Block)
				d.giveUp(it.ID)
				d.lose(entry{Block: it.Block}, err.Error())
			}
		case it.Skip != "":
			if pass == 0 {
				d.ledger.add(Entry{ID: string(it.ID), Bytes: it.Bytes(), Outcome: Skipped, Reason: it.Skip})
			}
		case it.Stays != "":
			if !d.cfg.Once && d.fresh(it.Block, it.Anew) {
				found.Add(1)
				d.meet(it.Block)
				d.lose(entry{Block: it.Block}, it.Stays)
			}
		case d.fresh(it.Block, it.Anew):
			found.Add(1)
			d.meet(it.Block)
			if ctx.Err() != nil || d.plan.add(ctx, it.Block) != nil {
				d.lose(entry{Block: it.Block}, "the deadline came before it was planned")
			}
		}
		return true
	}
	var reading sync.WaitGroup
	for _, s := range d.cfg.Stores {
		for part := range s.layout.parts(s) {
			if d.concernsAny(s.partDirs(part)) {
				reading.Go(func() { d.scanPart(naming, s, part, take) })
			}
		}
	}
	reading.Go(func() {
		if !d.concernsAny(d.cfg.Vault.all()) {
			return
		}
		began := time.Now()
		if pass == 0 && d.cfg.Settle != nil {
			patient, cancel := context.WithTimeout(naming, settlePatience)
			d.cfg.Settle(patient)
			cancel()
		}
		for it, err := range d.cfg.Vault.carried(d.cfg.Stores) {
			if naming.Err() != nil || !take(it, err) {
				return
			}
		}
		d.read(d.cfg.Vault.all(), began) // the catalog names what lies on any of its disks
	})
	reading.Wait()
	if pass == 0 {
		d.miss()
	}
	if naming.Err() != nil {
		d.cfg.Log.Error("the deadline came before the stores were read: what was not met is lost and not named")
	}
	return int(found.Load())
}

// miss notes that not all is here any more that earlier runs of this drain have moved.
func (d *Drain) miss() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.met < d.recalled {
		d.stirred.everywhere()
	}
}

// meet counts a block in.
func (d *Drain) meet(b Block) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found.Blocks++
	d.found.Bytes += b.Bytes()
}

// fresh reports whether a block needs planning. Only what changed after the drain began, or the index that it has, is
// remembered, so memory stays flat on a node whose engines have stopped. What is in a directory that was not looked through before
// where it is, counts as changed (anew).
func (d *Drain) fresh(b Block, anew bool) bool {
	changed := time.Unix(0, b.changed())
	d.mu.Lock()
	defer d.mu.Unlock()
	began := d.ledger.summary.Started
	for _, dir := range d.where(b) {
		if since, ok := d.since[dir]; ok && !anew && changed.Before(since.Add(-clockGrain-d.back)) {
			return false
		}
		if asOf, ok := d.asOf[dir]; ok && asOf.Before(began) {
			began = asOf
		}
	}
	recent := anew || changed.After(began.Add(-clockGrain-d.back))
	if !recent && len(d.handled.of)+len(d.givenUp) == 0 {
		return true
	}
	v := b.version()
	known := d.handled.is(b.ID, v)
	if known {
		d.met++
	}
	if known || d.givenUp[b.ID] {
		return false
	}
	if recent {
		d.handled.set(b.ID, v)
	}
	return true
}

// heedClock has scans look for what changed since the machine's clock was set back, which bears times of before that.
func (d *Drain) heedClock(back time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if back > d.back+clockGrain/2 {
		d.cfg.Log.Warn("the clock was set back: what changed in that time is carried again", "took", back)
		d.back = back
	}
}

// setBack is how much less the machine's clock has gone since then than time has, if it has.
func setBack(then time.Time) time.Duration {
	now := time.Now()
	return now.Sub(then) - now.Round(0).Sub(then.Round(0)) // Round(0) takes the monotonic reading off
}

// remember notes a version that came into the plan otherwise than by a scan.
func (d *Drain) remember(b Block) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handled.set(b.ID, b.version())
}

// became notes what a planned block has become.
func (d *Drain) became(planned, now Block) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found.Bytes += now.Bytes() - planned.Bytes()
	d.handled.set(now.ID, now.version())
}

// before reports whether a block last changed before the drain began.
func (d *Drain) before(b Block) bool {
	return time.Unix(0, b.changed()).Before(d.ledger.summary.Started.Add(-clockGrain))
}

// elsewhere reports whether what a planned block has become is another entry of the plan, or was moved by an earlier run.
// Then the block is not counted any more.
func (d *Drain) elsewhere(planned, now Block) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := now.version()
	if !d.handled.is(now.ID, v) || v == planned.version() {
		return false
	}
	d.found = d.found.plus(Count{-1, -planned.Bytes()})
	return true
}

// giveUp has later scans pass a block by: it is lost, and once is enough.
func (d *Drain) giveUp(id BlockID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.givenUp[id] = true
}

// clockGrain is more than a file system's time stamps lag behind the clock (a kernel tick, 10 ms at most).
const clockGrain = 50 * time.Millisecond
