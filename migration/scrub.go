package migration

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// What a receipt was given for is read back once, off the disk and not out of the page cache: a bit that turned between
// the memory and the platter is found while the node that the block came from may still be there to send it again. All
// that rests here is read back from time to time, more slowly.
const (
	// scrubAfter is how long what landed rests before it is read back: a disk's own cache has written it by then.
	scrubAfter = 5 * time.Second
	// scrubEvery is how often everything that rests here is read back.
	scrubEvery = 24 * time.Hour
	// scrubGives is how many times slower the reading is while blocks are coming in, and when nobody waits for it.
	scrubGives = 8
	// scrubStep is how much is read between two pauses.
	scrubStep = 1 << 20
	// maxSuspects bounds the blocks that readers found broken and that wait to be looked at.
	maxSuspects = 1024
)

// unread is what has landed and was not read back: of each segment one stretch, so it is as small as the segments are few.
// Its zero value is ready.
type unread struct {
	mu       sync.Mutex
	segments map[uint32]unreadStretch
	placed   unreadPlaced
	suspects map[inventory.BlockID]bool
	some     chan struct{} // has one when something was noted
}

type unreadStretch struct {
	from, to int64
	since    time.Time // it was noted
	urgent   bool
}

// unreadPlaced is all that lies in place and landed since an instant. The catalog names it.
type unreadPlaced struct {
	landed time.Time
	since  time.Time // it was noted; zero: there is none
	urgent bool
}

// note takes in records that were just committed.
func (u *unread) note(records []catalog.Change) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ready()
	now := time.Now()
	for _, r := range records {
		if r.Segment == 0 {
			u.notePlaced(r.Landed, now, true)
		} else {
			u.noteSegment(r.Segment, r.Offset, r.Offset+r.Length, now, true)
		}
	}
	u.wake()
}

func (u *unread) noteSegment(no uint32, from, to int64, now time.Time, urgent bool) {
	s, noted := u.segments[no]
	if !noted {
		s = unreadStretch{from: from, since: now}
	}
	s.from, s.to, s.urgent = min(s.from, from), max(s.to, to), s.urgent || urgent
	u.segments[no] = s
}

func (u *unread) notePlaced(landed, now time.Time, urgent bool) {
	p := &u.placed
	if p.since.IsZero() {
		*p = unreadPlaced{landed: landed, since: now}
	}
	if landed.Before(p.landed) {
		p.landed = landed
	}
	p.urgent = p.urgent || urgent
}

// again notes what lies in place once more: not all of it lies on the disk that hangs.
func (u *unread) again(p unreadPlaced) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.notePlaced(p.landed, time.Now(), p.urgent)
}

// noteAll takes in all that rests here. Nobody waits for it.
func (u *unread) noteAll(ends map[uint32]catalog.End) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ready()
	now := time.Now()
	for no, end := range ends {
		u.noteSegment(no, 0, end.At, now, false)
	}
	u.notePlaced(time.Time{}, now, false)
}

// suspect has a block looked at before all else, unless too many wait for that.
func (u *unread) suspect(id inventory.BlockID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ready()
	if len(u.suspects) >= maxSuspects {
		return false
	}
	u.suspects[id] = true
	u.wake()
	return true
}

func (u *unread) wake() {
	select {
	case u.some <- struct{}{}:
	default:
	}
}

func (u *unread) ready() {
	if u.some == nil {
		u.segments, u.suspects, u.some = map[uint32]unreadStretch{}, map[inventory.BlockID]bool{}, make(chan struct{}, 1)
	}
}

// news is told when something was noted.
func (u *unread) news() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ready()
	return u.some
}

// takeSuspect takes one of them out.
func (u *unread) takeSuspect() (id inventory.BlockID, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id := range u.suspects {
		delete(u.suspects, id)
		return id, true
	}
	return "", false
}

// takeSegment takes out the first segment that is due; else it says in how long one is, 0: there is none.
func (u *unread) takeSegment(now time.Time) (no uint32, s unreadStretch, wait time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var due []uint32
	for no, s := range u.segments {
		if left := scrubAfter - now.Sub(s.since); left <= 0 {
			due = append(due, no)
		} else if wait == 0 || left < wait {
			wait = left
		}
	}
	if len(due) == 0 {
		return 0, unreadStretch{}, wait
	}
	slices.SortFunc(due, func(a, b uint32) int { // what is urgent first, then in their order
		switch x, y := u.segments[a].urgent, u.segments[b].urgent; {
		case x && !y:
			return -1
		case y && !x:
			return 1
		}
		return int(int64(a) - int64(b))
	})
	no = due[0]
	s = u.segments[no]
	delete(u.segments, no)
	return no, s, 0
}

// takePlaced takes out what lies in place, if that is due; else it says in how long it is, 0: there is none.
func (u *unread) takePlaced(now time.Time) (p unreadPlaced, wait time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.placed.since.IsZero() {
		return unreadPlaced{}, 0
	}
	if left := scrubAfter - now.Sub(u.placed.since); left > 0 {
		return unreadPlaced{}, left
	}
	p, u.placed = u.placed, unreadPlaced{}
	return p, 0
}

// scrub reads back what landed until ctx ends. With no rate it looks at nothing but what readers found to be broken.
func (r *Receiver) scrub(ctx context.Context) {
	u := &r.cfg.Vault.unread
	some := u.news()
	rested := time.Now()
	for ctx.Err() == nil {
		if id, ok := u.takeSuspect(); ok {
			r.readBack(ctx, func(ctx context.Context, w *diskio.Work) { r.lookAt(ctx, w, id) })
			continue
		}
		next := scrubEvery
		if r.cfg.ScrubBytesPerSecond > 0 {
			now := time.Now()
			if now.Sub(rested) >= scrubEvery {
				rested = now
				if ends, err := r.cfg.Vault.catalog.SegmentEnds(); err == nil { // else it is named where it is asked for
					u.noteAll(ends)
				}
			}
			no, stretch, soon := u.takeSegment(now)
			if no != 0 {
				r.readBack(ctx, func(ctx context.Context, w *diskio.Work) { r.scrubSegment(ctx, w, no, stretch) })
				continue
			}
			placed, later := u.takePlaced(now)
			if !placed.since.IsZero() {
				if !r.readBack(ctx, func(ctx context.Context, w *diskio.Work) { r.scrubPlaced(ctx, w, placed) }) {
					u.again(placed)
				}
				continue
			}
			for _, wait := range []time.Duration{soon, later, scrubEvery - now.Sub(rested)} {
				if wait > 0 {
					next = min(next, wait)
				}
			}
		}
		select {
		case <-some:
		case <-time.After(next):
		case <-ctx.Done():
		}
	}
}

// paces waits as long as reading so many bytes may take.
func (r *Receiver) paces(ctx context.Context, bytes int64, urgent bool) {
	rate := r.cfg.ScrubBytesPerSecond
	if rate <= 0 {
		return // one block that a reader met: it is looked at as fast as it was read
	}
	if !urgent || r.takesIn() {
		rate = max(1, rate/scrubGives)
	}
	diskio.Sleep(ctx, time.Duration(float64(bytes)/float64(rate)*float64(time.Second)))
}

// takesIn says whether the disks are wanted for something else: blocks come in, or this node leaves itself.
func (r *Receiver) takesIn() bool {
	if r.leaving() {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owing > 0 {
		return true
	}
	for in := range r.live {
		if in.open.Load() {
			return true
		}
	}
	return false
}
