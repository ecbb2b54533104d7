package receiver

import (
	"context"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
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
)

// scrub reads back what landed until ctx ends. With no rate it looks at nothing but what readers found to be broken.
func (r *Receiver) scrub(ctx context.Context) {
	u := &r.cfg.Vault.Unread
	some := u.News()
	rested := time.Now()
	for ctx.Err() == nil {
		if id, ok := u.TakeSuspect(); ok {
			r.readBack(ctx, func(ctx context.Context, w *diskio.Work) { r.lookAt(ctx, w, id) })
			continue
		}
		next := scrubEvery
		if r.cfg.ScrubBytesPerSecond > 0 {
			now := time.Now()
			if now.Sub(rested) >= scrubEvery {
				rested = now
				if ends, err := r.cfg.Vault.Catalog.SegmentEnds(); err == nil { // else it is named where it is asked for
					u.NoteAll(ends)
				}
			}
			no, stretch, soon := u.TakeSegment(now, scrubAfter)
			if no != 0 {
				r.readBack(ctx, func(ctx context.Context, w *diskio.Work) { r.scrubSegment(ctx, w, no, stretch) })
				continue
			}
			placed, later := u.TakePlaced(now, scrubAfter)
			if !placed.Since.IsZero() {
				if !r.readBack(ctx, func(ctx context.Context, w *diskio.Work) { r.scrubPlaced(ctx, w, placed) }) {
					u.Again(placed)
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
