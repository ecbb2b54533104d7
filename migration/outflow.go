package migration

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

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
