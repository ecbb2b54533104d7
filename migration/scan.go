package migration

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/plan"
)

const (
	// maxScans bounds the passes over stores that an engine goes on writing to. With the pauses between them it is a quarter
	// of an hour, as long as any cloud's notice; an operator's decommission of a node that is never quiet must end too.
	// Passes that do not wait for what was found before are not counted: the deadline ends them.
	maxScans = 180
	// lookAnyway is how long a pass waits for what was found before to be settled. A look takes from the lanes what it costs: looks
	// take no more than one part in lookShare of the time.
	lookAnyway = 10 * time.Second
	lookShare  = 10

	leastPause = 250 * time.Millisecond
	mostPause  = 5 * time.Second
	// settlePatience is how long the first look waits for blocks that others have just sent here to rest in the vault. A disk that
	// takes longer would not give its blocks to the drain either.
	settlePatience = 5 * time.Second
)

// scanUntilQuiet fills the plan. When everything found is settled it looks again for what was committed meanwhile, until
// a pass finds nothing new. It does not wait for ever: a block that no peer has room for is never settled, and what is written
// meanwhile may have a peer. What none of the looks has met by the deadline is named as lost by a last one.
func (d *Drain) scanUntilQuiet(ctx context.Context) {
	if len(d.cfg.Again) > 0 {
		d.carryAgain(ctx)
		return
	}
	pause, idle := leastPause, true
	for pass := 0; pass < maxScans; {
		began := time.Now()
		found := d.scan(ctx, pass)
		took := time.Since(began)
		if err := d.plan.Trouble(); err != nil && pass == 0 {
			d.cfg.Log.Warn("the plan is kept in memory", "err", err)
		}
		if pass > 0 && found > 0 {
			d.account.ledger.OnceMore()
		}
		quiet := pass > 0 && idle && found == 0
		if awaits := d.awaitsDisks(quiet); ctx.Err() != nil || pass > 0 && d.cfg.Once || quiet && !awaits {
			return
		}
		d.setPhase(PhaseSending)
		again := pass > 0 // on a node whose engines have stopped, the second look is the last
		if idle = d.settled(ctx, max(lookAnyway, lookShare*took)); idle || !again {
			pass++
		}
		if idle && again {
			pause = d.rest(ctx, pause)
		}
		if ctx.Err() != nil {
			d.lookLast(ctx, pass)
			return
		}
	}
	d.cfg.Log.Warn("the stores keep changing: what is written from now on is not carried", "passes", maxScans)
}

// settled waits until all that was found is settled, also blocks that somebody is asked about before they are planned. It returns
// false when that takes longer than another look should wait. A drain that another one follows waits on: that one looks again.
func (d *Drain) settled(ctx context.Context, patience time.Duration) bool {
	if !d.cfg.Once {
		short, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		ctx = short
	}
	return d.claims.settled(ctx) && d.homes.settled(ctx) && d.plan.Idle(ctx) == nil
}

// lookLast names what was written since the look before, now that there is no time to carry it.
func (d *Drain) lookLast(ctx context.Context, pass int) {
	if !d.cfg.Once && errors.Is(context.Cause(ctx), context.DeadlineExceeded) && d.scan(ctx, pass) > 0 {
		d.account.ledger.OnceMore()
	}
}

// scan plans the blocks that changed since the last scan and have not been handled in this version, and returns how many: one
// at least if it did not come to the end and the next scan may. Each part of a store is looked through by itself, so that a disk
// that hangs does not keep the blocks on others here. When the deadline comes first, what was not met by then is named as lost,
// as far as a moment more allows.
func (d *Drain) scan(ctx context.Context, pass int) int {
	d.looks.heedClock(setBack(d.account.began))
	naming, cancel := linger(ctx, receiptGrace)
	defer cancel()
	var found atomic.Int64
	var unended atomic.Bool
	take := func(it inventory.Item, err error) bool {
		if ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			return false
		}
		if d.take(ctx, pass, it, err) {
			found.Add(1)
		}
		return true
	}
	var reading sync.WaitGroup
	for _, s := range d.cfg.Stores {
		for part := range s.Shape.Parts(s) {
			if d.source.concernsAny(s.PartDirs(part)) {
				reading.Go(func() {
					if !d.scanPart(naming, s, part, take) {
						unended.Store(true)
					}
					d.ask()
				})
			}
		}
	}
	reading.Go(func() { d.scanVault(naming, pass, take) })
	reading.Wait()
	d.homes.planRest(ctx, &d.homes.spares)
	if pass == 0 && !d.account.history.allMet() {
		d.stirred.everywhere()
	}
	if ctx.Err() != nil {
		d.missed.Store(true)
	}
	if naming.Err() != nil {
		d.cfg.Log.Error("the deadline came before the stores were read: what was not met is lost and not named")
	}
	if unended.Load() && found.Load() == 0 {
		return 1 // nobody knows
	}
	return int(found.Load())
}

// scanVault looks through the vault for as long as the catalog's disk answers. A look that hangs is left behind, and no other begins before
// it comes back: the drain goes on looking through the stores.
func (d *Drain) scanVault(ctx context.Context, pass int, take func(inventory.Item, error) bool) {
	dirs := d.cfg.Vault.Paths()
	if !d.source.concernsAny(dirs) {
		return
	}
	began := time.Now()
	if pass == 0 && d.cfg.Settle != nil {
		patient, cancel := context.WithTimeout(ctx, settlePatience)
		d.cfg.Settle(patient)
		cancel()
	}
	var unread error
	look := func(yield func(inventory.Item, error) bool) bool {
		defer d.inVault.Store(false)
		if !d.askFor(ctx, dirs, yield) {
			return false
		}
		for it, err := range carried(d.cfg.Vault, d.cfg.Stores) {
			if ctx.Err() != nil || !yield(it, err) {
				return false
			}
			if err != nil && it.ID == "" && d.cfg.Vault.Count().Blocks > 0 { // its catalog says no more
				unread = err
				return false
			}
		}
		return true
	}
	whole, hung := false, true
	if d.inVault.CompareAndSwap(false, true) {
		_, whole, hung = d.lookUnlessHung(ctx, dirs, look, take)
	}
	switch {
	case hung:
		d.vaultMissed(began, diskio.Silence(d.cfg.Vault.Dir))
	case unread != nil:
		d.vaultMissed(began, unread)
	case whole:
		d.looks.read(dirs, began) // the catalog names what lies on any of its disks
		d.ask()
	}
}

// ask makes the questions that wait be asked now.
func (d *Drain) ask() {
	d.claims.flush()
	d.homes.flush()
}

// take sees to what a scan met, and reports whether that is a block to carry, or one that is lost already.
func (d *Drain) take(ctx context.Context, pass int, it inventory.Item, err error) (found bool) {
	lost := func(why string) bool {
		d.account.meet(it.Block)
		d.account.lose(plan.Entry{Block: it.Block}, why)
		return true
	}
	if it.ID != "" {
		d.account.history.sees(it.ID)
	}
	if err != nil {
		d.missed.Store(true)
	}
	switch {
	case it.ID != "" && (!d.source.concerns(it.Block) || d.cfg.Own && d.source.homeOf(&it.Block) != ""):
	case diskio.IsSilent(err) && it.ID == "": // scanPart tells of the directory
	case err == nil && it.ID == "": // the look goes on
		d.stirred.stir(it.Stirred)
	case err != nil:
		if dir, is := errors.AsType[*inventory.UnlistedError](err); is {
			d.looks.unlist(dir)
		} else {
			d.cfg.Log.Warn("part of a store cannot be read: what is there stays behind", "err", err)
		}
		if it.ID != "" {
			d.await(pass, it, err)
		}
	case it.Skip != "" && it.Members[0].Root == inventory.InVault && d.source.homeOf(&it.Block) == "": // it came home, and the store has what became of it
	case it.Skip != "":
		if d.account.history.meets(it.ID) || pass == 0 {
			d.account.skip(&it.Block, it.Skip)
		}
	case it.Stays != "":
		return !d.cfg.Once && d.fresh(it.Block, it.Anew) && lost(it.Stays)
	case !d.fresh(it.Block, it.Anew):
	case d.endings.isOver(it.Block) != "":
		d.account.skip(&it.Block, d.endings.isOver(it.Block))
	case ctx.Err() != nil:
		return lost(unplanned)
	default:
		if d.account.meet(it.Block); d.homes.enter(ctx, it.Block) != nil {
			d.account.lose(plan.Entry{Block: it.Block}, unplanned)
		}
		return true
	}
	return false
}

// fresh reports whether a block needs planning.
func (d *Drain) fresh(b inventory.Block, anew bool) bool {
	news, recent := d.news(b, anew)
	if !news {
		return false
	}
	first, claimed := d.account.history.first(b, recent)
	if claimed {
		d.claims.add(b)
	}
	return first
}

// news asks the looks whether a block is news (looks.news).
func (d *Drain) news(b inventory.Block, anew bool) (news, recent bool) {
	return d.looks.news(d.source.where(b), time.Unix(0, b.Changed()), d.account.began, anew)
}
