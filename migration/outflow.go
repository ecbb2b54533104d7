package migration

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// capStep is what a lane waits for at once under a cap: little, so that the deadline finds little waiting.
const capStep = 32 << 10

// throttle is the cap on a drain. It may change at any time, also for lanes that wait for it: under a cap that was set a
// thousand times too low by mistake they would wait for hours.
type throttle struct{ now atomic.Pointer[throttled] }

// throttled is one cap. over is closed when another takes its place.
type throttled struct {
	*rate.Limiter
	over chan struct{}
}

// set changes the cap; 0: there is none.
func (t *throttle) set(bytesPerSecond int64) {
	limit := rate.Inf
	if bytesPerSecond > 0 {
		limit = rate.Limit(bytesPerSecond)
	}
	if was := t.now.Load(); was != nil && was.Limit() == limit {
		return
	}
	if was := t.now.Swap(&throttled{rate.NewLimiter(limit, capStep), make(chan struct{})}); was != nil {
		close(was.over)
	}
}

func (t *throttle) rate() rate.Limit { return t.now.Load().Limit() }

// wait returns when the cap lets so many bytes through (a capStep at most), or with ctx.
func (t *throttle) wait(ctx context.Context, bytes int) error {
	for ctx.Err() == nil {
		now := t.now.Load()
		turn := now.ReserveN(time.Now(), bytes)
		delay := turn.Delay()
		if delay == 0 {
			return nil
		}
		select {
		case <-time.After(delay):
			return nil
		case <-now.over:
		case <-ctx.Done():
			turn.Cancel() // others may have the bytes
		}
	}
	return ctx.Err()
}

// outflow is what leaves the node, to peers and to the fallback: how much has, how fast, and until when it may.
type outflow struct {
	ends  func() time.Time // DrainConfig.Until
	limit throttle
	sent  atomic.Int64 // bytes of blocks written to peers, receipted or not
	gone  atomic.Int64 // bytes that connections and the fallback have taken: under a cap, a lane has a second's bytes and more in hand

	mu     sync.Mutex
	at     time.Time // the rate was last measured
	before int64     // bytes gone then
	rate   int64
}

func newOutflow(cfg DrainConfig) *outflow {
	o := &outflow{ends: cfg.Until}
	o.limit.set(cfg.MaxBytesPerSecond)
	return o
}

// bytesPerSecond is how fast bytes have gone lately, by the second or so between two calls.
func (o *outflow) bytesPerSecond() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if took := time.Since(o.at); took >= time.Second {
		gone := o.gone.Load()
		if !o.at.IsZero() {
			o.rate = int64(float64(gone-o.before) / took.Seconds())
		}
		o.at, o.before = time.Now(), gone
	}
	return o.rate
}

// until is the end of sending, as far as is known now; the zero time: it is not.
func (o *outflow) until(ctx context.Context) time.Time {
	if o.ends != nil {
		if at := o.ends(); !at.IsZero() {
			return at
		}
	}
	at, _ := ctx.Deadline()
	return at
}
