package migration

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// account is what became of the blocks that a drain met: each is moved, lost, skipped, or still in the plan.
type account struct {
	log     *slog.Logger
	once    bool        // DrainConfig.Once
	late    atomic.Bool // time is up: the next pass can try nothing any more
	source  *source
	plan    *plan.Plan
	ledger  *manifest.Ledger
	history *history
	began   time.Time     // the first of the runs that share the account
	age     time.Duration // of the newest block that earlier runs moved, at least

	mu      sync.Mutex
	found   inventory.Count
	earlier int64 // bytes of these that earlier runs moved
}

// openAccount goes on with the account in cfg.Dir, or begins one. most is what it and the plan may take there; nil: there is no bound.
func openAccount(cfg DrainConfig, source *source) (a *account, most *diskio.Allowance) {
	var age time.Duration
	if info, err := os.Stat(manifest.Path(cfg.Dir, manifest.Moved)); err == nil {
		age = max(0, time.Since(info.ModTime()))
	}
	history, earlier, err := recall(cfg.Dir, cfg.doubt())
	if err != nil {
		cfg.Log.Warn("cannot read what was moved before; sending it again", "err", err)
	}
	if cfg.Once && history.recalled > leastPast {
		history.here = manifest.NewMetIDs(32 * int64(history.recalled))
	}
	var keeps []manifest.Outcome
	switch {
	case len(cfg.Again) > 0:
		keeps = []manifest.Outcome{manifest.Lost, manifest.Skipped}
	case cfg.Late != "":
		keeps = []manifest.Outcome{manifest.Lost}
	}
	l, err := manifest.Open(cfg.Dir, keeps, cfg.Once, cfg.Ballast)
	if err != nil {
		// A full or read-only disk: the blocks matter more than the account of them.
		cfg.Log.Error("cannot write the manifest: its totals are kept, and the names of lost blocks as long as there is memory", "err", err)
	}
	if cfg.MostBytes > 0 {
		most = diskio.Allow(cfg.MostBytes - manifest.Bytes(cfg.Dir))
		l.Within(most)
	}
	l.GoOn(earlier, len(cfg.Again) > 0)
	a = &account{log: cfg.Log, once: cfg.Once, source: source, ledger: l, history: history, began: l.Counts().Started, age: age, found: earlier, earlier: earlier.Bytes}
	if len(keeps) > 0 {
		a.goOn(cfg.Dir, cfg.Unwritten, keeps, cfg.Late != "")
	}
	return a, most
}

// goOn begins the account with what the drain before came to. named says that a scan is not to name again what is lost.
func (a *account) goOn(dir string, unwritten []byte, keeps []manifest.Outcome, named bool) {
	goesOn := func(e manifest.Entry) {
		if named && e.Outcome == manifest.Lost {
			a.history.giveUp(inventory.BlockID(e.ID))
		}
	}
	for _, o := range keeps {
		for e, err := range manifest.Read(manifest.Path(dir, o)) {
			if err != nil {
				a.log.Warn("cannot read the account of the drain: its figures are too low", "err", err)
				break
			}
			a.ledger.Count(e)
			goesOn(e)
		}
	}
	for line := range bytes.Lines(unwritten) {
		if e, err := manifest.ParseLine(line); err == nil {
			a.ledger.Add(e)
			goesOn(e)
		}
	}
	sum := a.ledger.Counts()
	a.found = cmp.Or(sum.Moved.Plus(sum.Lost), a.found)
}

// skip says why a block is not carried, though that is no loss.
func (a *account) skip(b *inventory.Block, why string) {
	a.ledger.Add(manifest.Entry{ID: string(b.ID), Bytes: b.Bytes(), Outcome: manifest.Skipped, Reason: why})
}

// moved books blocks that rest at a peer, or in the fallback.
func (a *account) moved(at string, blocks []plan.Entry) inventory.Count {
	blocks, old := a.history.overtaken(blocks)
	if len(old) > 0 {
		gone := a.ledger.AddPast(at, blocksOf(old))
		a.finds(inventory.Count{Blocks: -gone.Blocks, Bytes: -gone.Bytes})
		a.restore(at, old)
	}
	n := a.ledger.AddMoved(at, blocksOf(blocks))
	a.history.landed(at, blocks)
	return n
}

// restore plans blocks again whose older version was received by a peer that has given a receipt for the newer one already: they went by two
// connections, of which one was held up, and what came last stays. That the peer has the newer one after all, it says without its bytes.
func (a *account) restore(at string, old []plan.Entry) {
	for _, e := range old {
		if !a.history.restsAt(at, e.ID) {
			continue
		}
		b, err := a.findSoon(e.ID)
		if errors.Is(err, context.DeadlineExceeded) {
			return // others would take as long
		}
		if err != nil {
			continue // the next look meets it, or it is deleted
		}
		if _, anew := a.history.lapse(b); !anew {
			continue
		}
		a.ledger.Void(manifest.Entry{ID: string(b.ID), Bytes: b.Bytes(), Version: string(manifest.AppendVersion(b, nil))})
		if again := (plan.Entry{Block: b}); !a.plan.Again(again) {
			a.lose(again, unplanned)
		}
	}
}

// findSoon looks a block up again. It waits no longer than a disk that is well may take: the receipts of others wait for it.
func (a *account) findSoon(id inventory.BlockID) (inventory.Block, error) {
	ctx, cancel := context.WithTimeout(context.Background(), diskio.Suspect)
	defer cancel()
	return diskio.UnlessHung(ctx, func() (inventory.Block, error) { return a.source.findAgain(id) })
}

// progress tells how far the drain is with the blocks that it met.
func (a *account) progress() Progress {
	sum := a.ledger.Counts()
	a.mu.Lock()
	defer a.mu.Unlock()
	return Progress{Found: a.found, Moved: sum.Moved, Lost: sum.Lost, Skipped: sum.Skipped}
}

// close ends the account, and returns what it came to.
func (a *account) close() (manifest.Summary, error) {
	sum, err := a.ledger.Close()
	if !a.once {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.found = sum.Moved.Plus(sum.Lost) // a block that changed was found as often
	}
	return sum, err
}

func (a *account) lose(e plan.Entry, why string) {
	if a.once && !a.late.Load() {
		return // the next pass tries again
	}
	if e.Spare {
		a.skip(&e.Block, a.source.origin(&e.Block)+", which it came from, has it: "+why)
		return
	}
	a.ledger.Add(manifest.Entry{ID: string(e.ID), Bytes: e.Bytes(), Outcome: manifest.Lost, Reason: why})
	a.history.lost(e.Block)
}

// meet counts a block in.
func (a *account) meet(b inventory.Block) { a.finds(inventory.Count{Blocks: 1, Bytes: b.Bytes()}) }

func (a *account) finds(more inventory.Count) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.found = a.found.Plus(more)
}

// disown takes out a block that an earlier drain moved and that this one does not meet.
func (a *account) disown(bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.found = a.found.Plus(inventory.Count{Blocks: -1, Bytes: -bytes})
	a.earlier -= bytes
}

// toCarry returns how many bytes this run found that earlier runs had not moved.
func (a *account) toCarry() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.found.Bytes - a.earlier
}

// before reports whether a block last changed before the drain began.
func (a *account) before(b inventory.Block) bool {
	return time.Unix(0, b.Changed()).Before(a.began.Add(-inventory.ClockGrain))
}

// Local trouble with one block's files is tried again so often; trouble with peers as long as time remains.
const (
	maxReadFailures = 3
	maxChanges      = 10 // with the pauses between them, half a minute of quiet that did not come
)

// itIsDeleted is the reason for skipping a block that was there, or what is left of it. A block of its name may be written again.
const itIsDeleted = "deleted while the node was draining"

// tooLate is why a block is lost that would have been moved with more time; unplanned is for one that no plan had by then. With more time
// that one would have been moved, too.
const (
	timeWasUp = "the deadline came "
	tooLate   = timeWasUp + "first"
	unplanned = timeWasUp + "before it was planned"
)

// ruling is what is to become of a block that could not be read here as planned: its outcome, or another attempt.
type ruling struct {
	plan.Entry
	outcome manifest.Outcome // "": try again
	why     string
	later   bool             // left to the drain that follows this one, or to another entry of the plan
	stale   bool             // what was planned is from an index, and old
	now     *inventory.Block // what the block has become; nil: nothing else
}

// judge looks again at the files of a block that could not be read as planned.
func (a *account) judge(e plan.Entry, err error) ruling {
	if diskio.IsSilent(err) {
		return ruling{Entry: e, why: err.Error()} // the plan keeps it until its disk answers
	}
	past := e.Met()
	past.Misreads++
	e = e.After(past)
	most, stale, is := maxReadFailures, false, (*inventory.Block)(nil)
	now, found := a.source.find(e.Block)
	gone := errors.Is(found, fs.ErrNotExist) || errors.Is(found, fs.ErrInvalid) // a link or a directory has its name
	if errors.Is(err, inventory.ErrChanged) || errors.Is(err, fs.ErrNotExist) || gone && !errors.Is(err, wire.ErrCorrupt) {
		most = maxChanges
		stale = found == nil && errors.Is(err, inventory.ErrChanged) && a.before(now)
		if errors.Is(found, inventory.ErrNoData) {
			err = found
		}
		switch {
		case gone:
			return ruling{Entry: e, outcome: manifest.Skipped, why: itIsDeleted}
		case errors.Is(found, inventory.ErrNoData) && past.Misreads > 1: // nobody is about to give the data its name
			return ruling{Entry: e, outcome: manifest.Skipped, why: "its data file was " + itIsDeleted + ": only the index is left"}
		case found == nil && a.history.elsewhere(e.Block, now):
			return ruling{Entry: e, now: &now}
		case a.once: // it is being written to, and will be for as long as its writer lives
			return ruling{Entry: e, later: true}
		case found == nil:
			now.Value = e.Value // or what is left of it: engines remove a map output's checksums first
			is = &now
		}
	}
	if past.Misreads >= most || errors.Is(err, wire.ErrCorrupt) {
		return ruling{Entry: e, outcome: manifest.Lost, why: err.Error(), now: is}
	}
	return ruling{Entry: e, why: err.Error(), stale: stale, now: is}
}

func (a *account) carryOut(r ruling) {
	if r.now != nil && !a.history.becomes(r.Block, *r.now) {
		a.finds(inventory.Count{Blocks: -1, Bytes: -r.Bytes()}) // the block is counted as the other entry
		r.later = true
	} else if r.now != nil {
		a.finds(inventory.Count{Blocks: 0, Bytes: r.now.Bytes() - r.Bytes()})
		r.Block = *r.now
	}
	switch {
	case r.later:
	case r.outcome == "" && r.stale: // nobody is writing to it
		a.plan.GiveBack(r.Entry, 0, r.why)
		return
	case r.outcome == "":
		a.plan.GiveBack(r.Entry, backOff(r.Met().Misreads), r.why)
		return
	case r.outcome == manifest.Skipped:
		a.skip(&r.Block, r.why)
		a.finds(inventory.Count{Blocks: -1, Bytes: -r.Bytes()})
	case r.outcome == manifest.Lost && a.once: // the next pass tries again
		a.log.Debug("block not moved in this pass", "block", r.ID, "err", r.why)
	case r.outcome == manifest.Lost:
		a.log.Error("block lost", "block", r.ID, "err", r.why)
		a.history.giveUp(r.ID)
		a.lose(r.Entry, r.why)
	}
	a.plan.Settle(1)
}

func blocksOf(entries []plan.Entry) iter.Seq[*inventory.Block] {
	return func(yield func(*inventory.Block) bool) {
		for i := range entries {
			if !yield(&entries[i].Block) {
				return
			}
		}
	}
}
