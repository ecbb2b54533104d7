package migration

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// plan is the ordered list of blocks to move, filled by the scan while the lanes empty it. Blocks of one rank leave in
// the order in which they were found; a lower rank leaves first. Each rank has its spool files, so a plan of ten million
// blocks costs the memory of some buffers. When the disk that holds the spools is full, the plan keeps what it can in
// memory and makes the scan wait: a full disk must not end a drain.
//
// What lies on a disk that does not answer is not handed out (bar), nor waited for once all else is settled.
type blockPlan struct {
	cfg planConfig

	mu          sync.Mutex
	worths      *worths
	racks       []*rack
	order       []queue           // the spools of all racks, in the order in which they are emptied
	barred      map[string]string // directories that do not answer, and what to say of them
	crowded     map[string]bool   // directories that enough lanes wait for, while another is handed out blocks
	alone       time.Time         // since when nothing is left but what lies there
	returned    []entry           // came back from a lane, or fits no lane's room now
	gaps        int               // in returned, where some were handed out of it a moment ago
	outstanding int               // handed out, not yet done or returned
	sealed      bool              // nothing will be added any more
	closed      bool
	spoolErr    error           // the first time that a spool could not be written
	unread      inventory.Count // blocks in a spool that could not be read back
	watched     bool            // somebody waits for changed
	changed     chan struct{}   // closed when anything above changes, if somebody waits for it
}

// planConfig is what a plan is of, and what it may ask.
type planConfig struct {
	Dir    string             // of the spools
	Spools *diskio.Allowance  // for them
	Stores []*inventory.Store // whose hints count

	Where func(inventory.Block) []string                // the directories that a block lies in; nil: it does not matter
	Told  func(inventory.BlockID) (value time.Duration) // what a program said of a block, 0: nothing; nil: none was asked
}

// entry is a block on its way.
type entry struct {
	inventory.Block
	past *setbacks // nil: it has met with none
}

// setbacks are what a block has met with. They lie apart from it, since thousands of blocks are on their way at once and
// nearly none has met with any. Those that are there are never changed: several may hold the block.
type setbacks struct {
	attempts int       // that failed at a peer
	misreads int       // attempts that failed here, on the block's own files
	due      time.Time // not before
	shun     string    // the peer that failed it last
	shunned  time.Time // not to that one before
	why      string    // what went wrong last

	unanswered bool // by that peer, which may have it: its room is not asked
}

// met is what the block has met with.
func (e entry) met() (s setbacks) {
	if e.past != nil {
		s = *e.past
	}
	return s
}

// after is the block when it has met with those.
func (e entry) after(s setbacks) entry { return entry{e.Block, &s} }

const (
	// maxReturned bounds what waits in memory for a peer with more room.
	maxReturned = 1024
	// maxUnspooled bounds what a plan keeps in memory when it cannot write its spools.
	maxUnspooled = 4 << 20
	spoolBuffer  = 64 << 10
)

// Answers of take and next: blocks are left but none is small enough for the peer; all that would have room there would be
// there too late; none is left and no more come.
var (
	errNoRoom  = errors.New("no block fits")
	errNoTime  = errors.New("no block that is left would be there in time")
	errSettled = errors.New("every block is settled")
)

func newPlan(cfg planConfig) *blockPlan {
	return &blockPlan{cfg: cfg, worths: newWorths(cfg.Stores, cfg.Told), changed: make(chan struct{})}
}

func (p *blockPlan) wake() {
	if p.watched {
		close(p.changed)
		p.changed, p.watched = make(chan struct{}), false
	}
}

func (p *blockPlan) watch() <-chan struct{} {
	p.watched = true
	return p.changed
}

// add appends a block. It waits, while ctx lasts, when the spools cannot be written and memory is used up.
func (p *blockPlan) add(ctx context.Context, b inventory.Block) error {
	b.Value = p.worths.said(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.unspooled() >= maxUnspooled && !p.closed && !p.relieve() {
		changed := p.watch()
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
		return errSettled
	}
	dir := ""
	if dirs := p.dirs(b); len(dirs) > 0 {
		dir = dirs[0]
	}
	p.noteSpool(p.spool(b, dir).push(b))
	p.wake()
	return nil
}

// seal says that no more blocks come.
func (p *blockPlan) seal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sealed = true
	p.wake()
}

// again puts back what a peer had. It comes before all else: nobody has it now.
func (p *blockPlan) again(e entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sealed || p.closed {
		return false
	}
	e.Value = p.worths.said(e.Block)
	p.returned = append(p.returned, e)
	p.wake()
	return true
}

func (p *blockPlan) isSealed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sealed || p.closed
}

// takeSome appends up to so many blocks to a batch, and none once they have so many bytes: each is what would be handed out
// when those before it are on their way. What lies in crowded directories is left alone.
func (p *blockPlan) takeSome(batch []entry, blocks int, bytes int64, peer string, room room, affordable int64, crowded map[string]bool) (_ []entry, wait time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.closeGaps()
	p.crowded = crowded
	defer func() { p.crowded = nil }()
	now, passed := time.Now(), 0
	for range blocks {
		e, ok, wait, err := p.one(now, &passed, peer, room, affordable)
		switch {
		case !ok && len(batch) == 0:
			return nil, wait, err
		case !ok:
			return batch, 0, nil
		}
		batch = append(batch, e)
		n := e.Bytes()
		room.add(&e.Block, -n)
		affordable, bytes = affordable-n, bytes-n
		if bytes <= 0 {
			break
		}
	}
	return batch, 0, nil
}

// one hands out a block. Of those that returned it looks at none before passed, which were not to be had a moment before for
// the same peer with no less room: thousands return at once from a peer that failed, and are not looked at for each block.
func (p *blockPlan) one(now time.Time, passed *int, peer string, room room, affordable int64) (e entry, ok bool, wait time.Duration, err error) {
	tooBig, tooLate := false, false
	leave := func(bytes, room int64) (why string) {
		if bytes > room {
			tooBig = true
			return "no peer has room"
		}
		tooLate = true
		return errNoTime.Error()
	}
	for ; *passed < len(p.returned); *passed++ {
		e := &p.returned[*passed]
		if e.ID == "" {
			continue
		}
		if _, is := p.shut(e.Block); is {
			continue
		}
		there := false
		if past := e.past; past != nil {
			due := past.due
			if past.shun == peer && past.shunned.After(due) {
				due = past.shunned
			}
			if d := due.Sub(now); d > 0 {
				if wait == 0 || d < wait {
					wait = d
				}
				continue
			}
			there = past.unanswered && past.shun == peer
		}
		if n, left := e.Bytes(), room.left(e.ID.Store()); n <= room.larger.of(e.ID.Store()) {
			continue
		} else if n > affordable || n > left && !there {
			leave(n, left)
			continue
		}
		taken := *e
		*e = entry{}
		p.gaps++
		p.outstanding++
		return taken, true, 0, nil
	}
	for i := 0; i < len(p.order); i++ { // what is set aside comes behind
		s := p.order[i]
		if s.left.Blocks == 0 || p.shuts(s.dir) {
			continue
		}
		left, larger := room.left(s.store), room.larger.of(s.store)
		most := min(left, affordable)
		if s.most <= larger {
			continue
		}
		if least := s.least(); least > most {
			leave(least, left)
			continue
		}
		if s.most > most && len(p.returned) >= maxReturned {
			leave(s.most, left)
			continue
		}
		if s.least() <= larger && len(p.returned) >= maxReturned {
			continue
		}
		for b := range p.pops(s.spool) {
			p.wake() // there is room in memory, should the scan wait for it
			if p.setAside(b) {
				continue
			}
			switch n := b.Bytes(); {
			case n <= larger:
				p.returned = append(p.returned, entry{Block: b})
			case n <= most:
				p.outstanding++
				return entry{Block: b}, true, 0, nil
			default:
				p.returned = append(p.returned, entry{Block: b}.after(setbacks{why: leave(n, left)}))
			}
			if len(p.returned) >= maxReturned {
				break // the next class may have some that fit for certain
			}
		}
	}
	switch {
	case tooLate:
		return entry{}, false, wait, errNoTime
	case tooBig:
		return entry{}, false, wait, errNoRoom
	case p.sealed && p.empty():
		if wait := p.forThaw(now); wait > 0 {
			return entry{}, false, wait, nil
		}
		return entry{}, false, 0, errSettled
	}
	return entry{}, false, wait, nil
}

// holds reports whether a block of a store waits that is larger than that.
func (p *blockPlan) holds(store string, larger int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.order, func(s queue) bool { return s.store == store && s.left.Blocks > 0 && s.most > larger }) ||
		slices.ContainsFunc(p.returned, func(e entry) bool { return e.ID != "" && e.ID.Store() == store && e.Bytes() > larger })
}

// waiting is how many bytes wait of each store.
func (p *blockPlan) waiting() map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := map[string]int64{}
	for _, s := range p.order {
		if s.left.Blocks > 0 {
			of[s.store] += s.left.Bytes
		}
	}
	for _, e := range p.returned {
		if e.ID != "" {
			of[e.ID.Store()] += e.Bytes()
		}
	}
	return of
}

// closeGaps takes out of what returned what was handed out of it.
func (p *blockPlan) closeGaps() {
	for p.gaps > 0 && p.returned[0].ID == "" {
		p.returned = p.returned[1:]
		p.gaps--
	}
	if p.gaps > 0 {
		p.returned = slices.DeleteFunc(p.returned, func(e entry) bool { return e.ID == "" })
		p.gaps = 0
	}
}

// pops takes blocks off a spool. One that cannot be read is given up, and its blocks are counted.
func (p *blockPlan) pops(s *spool) iter.Seq[inventory.Block] {
	return func(yield func(inventory.Block) bool) {
		for s.left.Blocks > 0 {
			b, err := s.pop()
			if err != nil {
				p.unread.Blocks += s.left.Blocks
				p.unread.Bytes += s.left.Bytes
				s.left = inventory.Count{}
				return
			}
			if !yield(b) {
				return
			}
		}
	}
}

// empty reports whether nothing is left to hand out and nothing is handed out.
func (p *blockPlan) empty() bool {
	for _, s := range p.order {
		if s.left.Blocks > 0 && p.barred[s.dir] == "" {
			return false
		}
	}
	open := func(e entry) bool { return p.barsBlock(e.Block) == "" }
	return p.outstanding == 0 && !slices.ContainsFunc(p.returned, open)
}

// await tries, whenever the plan has changed or something has become due, until the try succeeds or fails.
func (p *blockPlan) await(ctx context.Context, try func() (ok bool, wait time.Duration, err error)) error {
	for {
		p.mu.Lock()
		changed := p.watch()
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

// settle says that blocks handed out are accounted for.
func (p *blockPlan) settle(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outstanding -= n
	p.wake()
}

// giveBack returns a block that was handed out, to be tried again after the delay.
func (p *blockPlan) giveBack(e entry, delay time.Duration, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	past := e.met()
	past.due, past.why = time.Now().Add(delay), why
	p.returned = append(p.returned, e.after(past))
	p.outstanding--
	p.wake()
}

// putBack returns blocks that were handed out and not begun.
func (p *blockPlan) putBack(batch []entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.returned = slices.Insert(p.returned, 0, batch...)
	p.outstanding -= len(batch)
	p.wake()
}

// idle waits until the plan is empty.
func (p *blockPlan) idle(ctx context.Context) error { return p.until(ctx, p.empty) }

// first waits until there is something to hand out, or until it is certain that nothing comes.
func (p *blockPlan) first(ctx context.Context) error {
	return p.until(ctx, func() bool { return p.sealed || !p.empty() })
}

// until waits until something is so of the plan.
func (p *blockPlan) until(ctx context.Context, is func() bool) error {
	for {
		p.mu.Lock()
		so, changed := is(), p.watch()
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

// settled reports whether the plan is empty and no more comes.
func (p *blockPlan) settled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sealed && p.empty() && p.forThaw(time.Now()) == 0
}

// rest empties the plan: what was never sent, in the order in which it would have been, and why its disk is not asked, if it
// is not. unread counts what is in it and cannot be named.
func (p *blockPlan) rest(lost func(e entry, barred string)) (unread inventory.Count) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.returned {
		lost(e, p.barsBlock(e.Block))
	}
	p.returned = nil
	for _, s := range p.order {
		for b := range p.pops(s.spool) {
			lost(entry{Block: b}, p.barsBlock(b))
		}
	}
	return p.unread
}

// close removes the spools.
func (p *blockPlan) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.wake()
	var errs []error
	for _, s := range p.order {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}
