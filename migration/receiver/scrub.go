package receiver

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/await"
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

// scrubber reads back what landed.
type scrubber struct {
	cfg *Config
	*volumes
	door    *door
	streams *streams
	removal *removal

	mu    sync.Mutex
	backs map[*diskio.Work]bool // reads under way

	scrubbed, broken atomic.Int64 // bytes that were read back, blocks that were found broken
}

// run reads landed blocks back until ctx ends. Without a rate it looks only at blocks that readers found broken.
func (sc *scrubber) run(ctx context.Context) {
	u := &sc.cfg.Vault.Unread
	some := u.News()
	rested := time.Now()
	for ctx.Err() == nil {
		if id, ok := u.TakeSuspect(); ok {
			sc.readBack(ctx, func(ctx context.Context, w *diskio.Work) error { sc.lookAt(ctx, w, id); return nil })
			continue
		}
		next := scrubEvery
		if sc.cfg.ScrubBytesPerSecond > 0 {
			now := time.Now()
			if now.Sub(rested) >= scrubEvery {
				rested = now
				if ends, err := sc.cfg.Vault.Catalog.SegmentEnds(); err == nil { // else the next caller reports the error
					u.NoteAll(ends)
				}
			}
			no, stretch, soon := u.TakeSegment(now, scrubAfter)
			if no != 0 {
				sc.readSegment(ctx, no, stretch)
				continue
			}
			placed, later := u.TakePlaced(now, scrubAfter)
			if !placed.Since.IsZero() {
				sc.readPlaced(ctx, placed)
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
func (sc *scrubber) readSegment(ctx context.Context, no uint32, s vault.UnreadStretch) {
	if !sc.readBack(ctx, func(ctx context.Context, w *diskio.Work) error { return sc.scrubSegment(ctx, w, no, s) }) {
		sc.cfg.Vault.Unread.AgainIn(no, s)
	}
}

func (sc *scrubber) readPlaced(ctx context.Context, p vault.UnreadPlaced) {
	if !sc.readBack(ctx, func(ctx context.Context, w *diskio.Work) error { return sc.scrubPlaced(ctx, w, p) }) {
		sc.cfg.Vault.Unread.Again(p)
	}
}

// paces waits for as long as reading so many bytes may take at the current rate.
func (sc *scrubber) paces(ctx context.Context, bytes int64, urgent bool) {
	rate := sc.cfg.ScrubBytesPerSecond
	if rate <= 0 {
		return // a block that a reader met: it is checked as fast as the reader read it
	}
	if !urgent || sc.takesIn() {
		rate = max(1, rate/scrubGives)
	}
	await.Sleep(ctx, time.Duration(float64(bytes)/float64(rate)*float64(time.Second)))
}

// takesIn reports whether the disks are needed for something else: blocks come in, or this node leaves.
func (sc *scrubber) takesIn() bool {
	return sc.door.leaving() || sc.door.owes() || sc.streams.any(func(in *inbound) bool { return in.open.Load() })
}
