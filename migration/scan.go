package migration

import (
	"cmp"
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

// survey looks through the stores and the vault until they are quiet, and puts into the plan what it meets.
type survey struct {
	cargo
	claims *claims
	homes  *homes
	known  *inventory.Index // DrainConfig.Index
	// As in DrainConfig.
	dir     string
	adopted bool
	own     bool
	settle  func(ctx context.Context)
	late    string

	looks   *looks
	missed  atomic.Bool // some look did not meet all that is here
	inVault atomic.Bool // a look through the vault has not come back
	stirred stirred     // where files came or went since the first look

	mu     sync.Mutex
	phase  Phase
	frozen frozen
}

func newSurvey(cfg DrainConfig, c cargo, claims *claims, homes *homes) *survey {
	return &survey{
		cargo: c, claims: claims, homes: homes, known: cfg.Index, dir: cfg.Dir, adopted: cfg.Adopted, own: cfg.Own,
		settle: cfg.Settle, late: cfg.Late, looks: newLooks(cfg.Log), phase: PhaseScanning,
	}
}

// untilQuiet fills the plan. When everything found is settled it looks again for what was committed meanwhile, until
// a pass finds nothing new. It does not wait for ever: a block that no peer has room for is never settled, and what is written
// meanwhile may have a peer. What none of the looks has met by the deadline is named as lost by a last one.
func (v *survey) untilQuiet(ctx context.Context) {
	if len(v.claims.broken) > 0 {
		v.carryAgain(ctx)
		return
	}
	pause, idle := leastPause, true
	for pass := 0; pass < maxScans; {
		began := time.Now()
		found := v.scan(ctx, pass)
		took := time.Since(began)
		if err := v.plan.Trouble(); err != nil && pass == 0 {
			v.log.Warn("the plan is kept in memory", "err", err)
		}
		if pass > 0 && found > 0 {
			v.account.ledger.OnceMore()
		}
		quiet := pass > 0 && idle && found == 0
		if awaits := v.awaitsDisks(quiet); ctx.Err() != nil || pass > 0 && v.account.once || quiet && !awaits {
			return
		}
		v.setPhase(PhaseSending)
		again := pass > 0 // on a node whose engines have stopped, the second look is the last
		if idle = v.settled(ctx, max(lookAnyway, lookShare*took)); idle || !again {
			pass++
		}
		if idle && again {
			pause = v.rest(ctx, pause)
		}
		if ctx.Err() != nil {
			v.lookLast(ctx, pass)
			return
		}
	}
	v.log.Warn("the stores keep changing: what is written from now on is not carried", "passes", maxScans)
}

// settled waits until all that was found is settled, also blocks that somebody is asked about before they are planned. It returns
// false when that takes longer than another look should wait. A drain that another one follows waits on: that one looks again.
func (v *survey) settled(ctx context.Context, patience time.Duration) bool {
	if !v.account.once {
		short, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		ctx = short
	}
	return v.claims.settled(ctx) && v.homes.settled(ctx) && v.plan.Idle(ctx) == nil
}

// lookLast names what was written since the look before, now that there is no time to carry it.
func (v *survey) lookLast(ctx context.Context, pass int) {
	if !v.account.once && errors.Is(context.Cause(ctx), context.DeadlineExceeded) && v.scan(ctx, pass) > 0 {
		v.account.ledger.OnceMore()
	}
}

// scan plans the blocks that changed since the last scan and have not been handled in this version, and returns how many: one
// at least if it did not come to the end and the next scan may. Each part of a store is looked through by itself, so that a disk
// that hangs does not keep the blocks on others here. When the deadline comes first, what was not met by then is named as lost,
// as far as a moment more allows; a drain that another one follows leaves that moment to that one.
func (v *survey) scan(ctx context.Context, pass int) int {
	v.heedClock()
	naming, cancel := linger(ctx, receiptGrace)
	defer cancel()
	if v.account.once {
		naming = ctx
	}
	var found atomic.Int64
	var unended atomic.Bool
	take := func(it inventory.Item, err error) bool {
		if ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			return false
		}
		if v.take(ctx, pass, it, err) {
			found.Add(1)
		}
		return true
	}
	var reading sync.WaitGroup
	for _, s := range v.source.all {
		for part := range s.Shape.Parts(s) {
			if v.source.concernsAny(s.PartDirs(part)) {
				reading.Go(func() {
					if !v.scanPart(naming, s, part, take) {
						unended.Store(true)
					}
					v.ask()
				})
			}
		}
	}
	reading.Go(func() { v.scanVault(naming, pass, take) })
	reading.Wait()
	v.homes.planRest(ctx, &v.homes.spares)
	if ctx.Err() != nil {
		v.missed.Store(true)
	}
	if pass == 0 && !v.account.history.allMet() {
		v.stirred.everywhere()
		v.leaveOut()
	}
	if naming.Err() != nil && !v.account.once {
		v.log.Error("the deadline came before the stores were read: what was not met is lost and not named")
	}
	if unended.Load() && found.Load() == 0 {
		return 1 // nobody knows
	}
	return int(found.Load())
}

// heedClock sees to a clock that was set back since the drain began: what changed shortly before is met once more.
func (v *survey) heedClock() {
	if !v.looks.heedClock(setBack(v.account.began)) {
		return
	}
	if err := errors.Join(v.account.ledger.Written(), v.account.history.reread(v.dir)); err != nil {
		v.log.Warn("cannot read all of what was moved: the rest is carried again", "err", err)
	}
}

// scanVault looks through the vault for as long as the catalog's disk answers. A look that hangs is left behind, and no other begins before
// it comes back: the drain goes on looking through the stores.
func (v *survey) scanVault(ctx context.Context, pass int, take func(inventory.Item, error) bool) {
	dirs := v.source.vault.Paths()
	if !v.source.concernsAny(dirs) {
		return
	}
	began := time.Now()
	if pass == 0 && v.settle != nil {
		patient, cancel := context.WithTimeout(ctx, settlePatience)
		v.settle(patient)
		cancel()
	}
	var unread error
	look := func(yield func(inventory.Item, error) bool) bool {
		defer v.inVault.Store(false)
		if !v.askFor(ctx, dirs, yield) {
			return false
		}
		for it, err := range carried(v.source.vault, v.source.all) {
			if ctx.Err() != nil || !yield(it, err) {
				return false
			}
			if err != nil && it.ID == "" && v.source.vault.Count().Blocks > 0 { // its catalog says no more
				unread = err
				return false
			}
		}
		return true
	}
	whole, hung := false, true
	if v.inVault.CompareAndSwap(false, true) {
		_, whole, hung = v.lookUnlessHung(ctx, dirs, look, take)
	}
	switch {
	case hung:
		v.vaultMissed(began, diskio.Silence(v.source.vault.Dir))
	case unread != nil:
		v.vaultMissed(began, unread)
	case whole:
		v.looks.read(dirs, began) // the catalog names what lies on any of its disks
		v.ask()
	}
}

// ask makes the questions that wait be asked now.
func (v *survey) ask() {
	v.claims.flush()
	v.homes.flush()
}

// take sees to what a scan met, and reports whether that is a block to carry, or one that is lost already.
func (v *survey) take(ctx context.Context, pass int, it inventory.Item, err error) (found bool) {
	lost := func(why string) bool {
		v.account.meet(it.Block)
		v.account.lose(plan.Entry{Block: it.Block}, why)
		return true
	}
	if it.ID != "" {
		v.account.history.sees(it.ID)
	}
	if err != nil {
		v.missed.Store(true)
	}
	switch {
	case it.ID != "" && (!v.source.concerns(it.Block) || v.own && v.source.homeOf(&it.Block) != ""):
	case diskio.IsSilent(err) && it.ID == "": // scanPart tells of the directory
	case err == nil && it.ID == "": // the look goes on
		v.stirred.stir(it.Stirred)
	case err != nil:
		if dir, is := errors.AsType[*inventory.UnlistedError](err); is {
			v.looks.unlist(dir)
		} else if !diskio.IsSilent(err) { // else it is said of the disk, once
			v.log.Warn("part of a store cannot be read: what is there stays behind", "err", err)
		}
		if it.ID != "" {
			v.await(pass, it, err)
		}
	case it.Skip != "" && it.Members[0].Root == inventory.InVault && v.source.homeOf(&it.Block) == "": // it came home, and the store has what became of it
	case it.Skip != "":
		if v.account.history.meets(it.ID) || pass == 0 {
			v.account.skip(&it.Block, it.Skip)
		}
	case it.Stays != "":
		return !v.account.once && v.fresh(it.Block, it.Anew) && lost(it.Stays)
	case !v.fresh(it.Block, it.Anew):
	case v.endings.isOver(it.Block) != "":
		v.account.skip(&it.Block, v.endings.isOver(it.Block))
	case ctx.Err() != nil && !v.account.once && v.homes.leave(it.Block):
		v.account.meet(it.Block)
		return true
	case ctx.Err() != nil:
		return lost(cmp.Or(v.late, unplanned))
	default:
		if v.account.meet(it.Block); v.homes.enter(ctx, it.Block) != nil {
			v.account.lose(plan.Entry{Block: it.Block}, unplanned)
		}
		return true
	}
	return false
}

// fresh reports whether a block needs planning.
func (v *survey) fresh(b inventory.Block, anew bool) bool {
	news, recent := v.news(b, anew)
	if !news {
		return false
	}
	first, claimed := v.account.history.first(b, recent)
	if claimed {
		v.claims.add(b)
	}
	return first
}

// news asks the looks whether a block is news (looks.news).
func (v *survey) news(b inventory.Block, anew bool) (news, recent bool) {
	return v.looks.news(v.source.where(b), time.Unix(0, b.Changed()), v.account.began, anew)
}

func (v *survey) setPhase(p Phase) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.phase = p
}

// stands tells where the drain stands, and which directories it awaits.
func (v *survey) stands() (phase Phase, awaits []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.frozen.waits && v.phase != PhaseDrained {
		awaits = v.frozen.dirs
	}
	return v.phase, awaits
}
