package receiver

import (
	"context"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// Each block that got a receipt is read back once, off the disk and not out of the page cache. So a bit that turned
// between memory and platter is found while the sender may still be there to send the block again. Everything that
// rests here is read back from time to time, more slowly.
const (
	// scrubAfter is how long a block rests before it is read back: by then a disk's own cache has written it.
	scrubAfter = 5 * time.Second
	// scrubEvery is how often everything that rests here is read back.
	scrubEvery = 24 * time.Hour
	// scrubGives is how many times slower the reading is while blocks come in, and for the daily reading of everything.
	scrubGives = 8
	// scrubStep is how many bytes are read between two pauses.
	scrubStep = 1 << 20
)

// scrub reads landed blocks back until ctx ends. Without a rate it looks only at blocks that readers found broken.
func (r *Receiver) scrub(ctx context.Context) {
	u := &r.cfg.Vault.Unread
	some := u.News()
	rested := time.Now()
	for ctx.Err() == nil {
		if id, ok := u.TakeSuspect(); ok {
			r.readBack(ctx, func(ctx context.Context, w *diskio.Work) error { r.lookAt(ctx, w, id); return nil })
			continue
		}
		next := scrubEvery
		if r.cfg.ScrubBytesPerSecond > 0 {
			now := time.Now()
			if now.Sub(rested) >= scrubEvery {
				rested = now
				if ends, err := r.cfg.Vault.Catalog.SegmentEnds(); err == nil { // else the next caller reports the error
					u.NoteAll(ends)
				}
			}
			no, stretch, soon := u.TakeSegment(now, scrubAfter)
			if no != 0 {
				r.readSegment(ctx, no, stretch)
				continue
			}
			placed, later := u.TakePlaced(now, scrubAfter)
			if !placed.Since.IsZero() {
				r.readPlaced(ctx, placed)
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

// readSegment and readPlaced read back what rests in a segment, and in place. What a disk did not answer about waits as if it had just landed.
func (r *Receiver) readSegment(ctx context.Context, no uint32, s vault.UnreadStretch) {
	if !r.readBack(ctx, func(ctx context.Context, w *diskio.Work) error { return r.scrubSegment(ctx, w, no, s) }) {
		r.cfg.Vault.Unread.AgainIn(no, s)
	}
}

func (r *Receiver) readPlaced(ctx context.Context, p vault.UnreadPlaced) {
	if !r.readBack(ctx, func(ctx context.Context, w *diskio.Work) error { return r.scrubPlaced(ctx, w, p) }) {
		r.cfg.Vault.Unread.Again(p)
	}
}

// paces waits for as long as reading so many bytes may take at the current rate.
func (r *Receiver) paces(ctx context.Context, bytes int64, urgent bool) {
	rate := r.cfg.ScrubBytesPerSecond
	if rate <= 0 {
		return // a block that a reader met: it is checked as fast as the reader read it
	}
	if !urgent || r.takesIn() {
		rate = max(1, rate/scrubGives)
	}
	diskio.Sleep(ctx, time.Duration(float64(bytes)/float64(rate)*float64(time.Second)))
}

// takesIn reports whether the disks are needed for something else: blocks come in, or this node leaves.
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
