package plan

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Plan is the ordered list of blocks to move, filled by the scan while the lanes empty it. Blocks of one rank leave in
// the order in which they were found; a lower rank leaves first. Each rank has its spool files, so a plan of ten million
// blocks costs the memory of some buffers. When the disk that holds the spools is full, the plan keeps what it can in
// memory and makes the scan wait: a full disk must not end a drain.
//
// A block on a disk that does not answer is not handed out (Bar), nor waited for once all others are settled.
type Plan struct {
	cfg Config

	mu          sync.Mutex
	worths      *worths
	racks       []*rack
	order       []queue           // the spools of all racks, in the order in which they are emptied
	barred      map[string]string // directories that do not answer, and what to say of them
	crowded     map[string]bool   // directories that enough lanes wait for already; only during a Take
	returned    []Entry           // came back from a lane, or fits no lane's room now
	gaps        int               // empty places in returned, whose blocks were handed out a moment ago
	outstanding int               // handed out, not yet done or returned
	sealed      bool              // nothing will be added any more
	closed      bool
	spoolErr    error           // the first time that a spool could not be written
	unread      inventory.Count // blocks in a spool that could not be read back
	changed     await.News      // anything above changes
}

// Config is what a plan is of, and what it may ask.
type Config struct {
	Dir    string             // of the spools
	Spools *diskio.Allowance  // what the spools may take of Dir's disk
	Stores []*inventory.Store // whose hints count

	Where func(inventory.Block) []string                // the directories that a block lies in; nil: it does not matter
	Told  func(inventory.BlockID) (value time.Duration) // what a program said of a block, 0: nothing; nil: none was asked
}

const (
	// maxReturned bounds what waits in memory for a peer with more room.
	maxReturned = 1024
	// maxUnspooled bounds what a plan keeps in memory when it cannot write its spools.
	maxUnspooled = 4 << 20
	spoolBuffer  = 64 << 10
)

// New returns a plan that is empty. Close it.
func New(cfg Config) *Plan {
	return &Plan{cfg: cfg, worths: newWorths(cfg.Stores, cfg.Told)}
}

// Add appends a block. It waits, while ctx lasts, when the spools cannot be written and memory is used up.
func (p *Plan) Add(ctx context.Context, b inventory.Block) error {
	b.Value = p.worths.said(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.unspooled() >= maxUnspooled && !p.closed && !p.relieve() {
		changed := p.changed.Next()
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if p.closed {
		return ErrSettled
	}
	dir := ""
	if dirs := p.dirs(b); len(dirs) > 0 {
		dir = dirs[0]
	}
	p.noteSpool(p.spool(b, dir).Push(b))
	p.changed.Tell()
	return nil
}

// Seal says that no more blocks come.
func (p *Plan) Seal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sealed = true
	p.changed.Tell()
}

// Again puts back a block that a peer had and has no more. It leaves before all others: nobody has it now. Again reports false once
// nothing is added any more.
func (p *Plan) Again(e Entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sealed || p.closed {
		return false
	}
	e.Value = p.worths.said(e.Block)
	p.returned = append(p.returned, e)
	p.changed.Tell()
	return true
}

// Sealed reports whether nothing is added any more.
func (p *Plan) Sealed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sealed || p.closed
}

// empty reports whether nothing is left to hand out and nothing is handed out.
func (p *Plan) empty() bool {
	for _, s := range p.order {
		if s.Left.Blocks > 0 && p.barred[s.dir] == "" {
			return false
		}
	}
	open := func(e Entry) bool { return p.barsBlock(e.Block) == "" }
	return p.outstanding == 0 && !slices.ContainsFunc(p.returned, open)
}

// Await calls try, and again whenever the plan has changed or the wait that try returned is over, until try succeeds or fails.
func (p *Plan) Await(ctx context.Context, try func() (ok bool, wait time.Duration, err error)) error {
	for {
		p.mu.Lock()
		changed := p.changed.Next()
		p.mu.Unlock()
		ok, wait, err := try()
		if ok || err != nil {
			return err
		}
		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-changed:
		case <-due:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Settle says that blocks handed out are accounted for.
func (p *Plan) Settle(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outstanding -= n
	p.changed.Tell()
}

// GiveBack returns a block that was handed out, to be tried again after the delay.
func (p *Plan) GiveBack(e Entry, delay time.Duration, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	past := e.Met()
	past.due, past.Why = time.Now().Add(delay), why
	p.returned = append(p.returned, e.After(past))
	p.outstanding--
	p.changed.Tell()
}

// PutBack returns blocks that were handed out and not begun.
func (p *Plan) PutBack(batch []Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.returned = slices.Insert(p.returned, 0, batch...)
	p.outstanding -= len(batch)
	p.changed.Tell()
}

// Idle waits until the plan is empty.
func (p *Plan) Idle(ctx context.Context) error { return p.until(ctx, p.empty) }

// First waits until there is something to hand out, or until it is certain that nothing comes.
func (p *Plan) First(ctx context.Context) error {
	return p.until(ctx, func() bool { return p.sealed || !p.empty() })
}

// until waits until something is so of the plan.
func (p *Plan) until(ctx context.Context, is func() bool) error {
	for {
		p.mu.Lock()
		so, changed := is(), p.changed.Next()
		p.mu.Unlock()
		if so {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Settled reports whether the plan is empty and no more comes.
func (p *Plan) Settled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sealed && p.empty()
}

// Rest empties the plan. It calls lost with each block that was never sent, in the order in which blocks would have left, and why the
// block's disk is not asked, if it is not. unread counts blocks that cannot be named, as their spools could not be read.
func (p *Plan) Rest(lost func(e Entry, barred string)) (unread inventory.Count) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.returned {
		lost(e, p.barsBlock(e.Block))
	}
	p.returned = nil
	for _, s := range p.order {
		for b := range p.pops(s.Spool) {
			lost(Entry{Block: b}, p.barsBlock(b))
		}
	}
	return p.unread
}

// Close removes the spools.
func (p *Plan) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.changed.Tell()
	var errs []error
	for _, s := range p.order {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
