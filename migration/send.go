package migration

import (
	"context"
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// send writes blocks until none is left (ErrSettled), the peer has no room, or ctx ends.
func (l *lane) send(ctx context.Context) error {
	for found := false; ctx.Err() == nil; {
		if err := l.wait(ctx, l.open); err != nil {
			return err
		}
		if ends := l.ends(); ends != nil {
			if err := l.settle(ctx); err != nil {
				return err
			}
			if ends == errAskAgain {
				l.peers.asks(l.peer)
			}
			return ends
		}
		if l.part = l.peers.takePart(l.peer); l.part != nil {
			l.mu.Lock()
			l.next = []plan.Entry{l.part.Entry}
			l.batch = l.next
			l.mu.Unlock()
			if err := l.sendBatch(ctx); err != nil {
				return err
			}
			continue
		}
		err := l.take(ctx)
		if err == plan.ErrNoTime {
			if err := l.lookAgain(ctx); err != nil {
				return err
			}
			continue
		}
		if err == plan.ErrNoRoom {
			if err := l.settle(ctx); err != nil {
				return err
			}
			return errPeerFull
		}
		if err != nil {
			return err
		}
		if !found {
			found = true
			l.peers.fits(l.peer)
		}
		if err := l.sendBatch(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// ends returns why the lane is to end though it could go on; nil: it is not.
func (l *lane) ends() error {
	switch {
	case l.peers.unwanted(l.peer):
		return errSurplus
	case l.asksAgain.Load():
		return errAskAgain
	}
	return nil
}

// take takes the blocks to send next from the plan, and waits when there are none. It takes as many as are written at once, for
// asking for a block can cost as much as sending it, but no more than are sent in a moment.
func (l *lane) take(ctx context.Context) error {
	blocks := l.bulk
	if l.onTrial() {
		blocks = 1
	}
	try := func() (ok bool, wait time.Duration, err error) {
		affordable := l.affordable(ctx)
		l.batch, wait, err = l.takeShare(blocks, affordable)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.next = l.batch
		return len(l.next) > 0, wait, err
	}
	ok, _, err := try()
	if ok || err != nil {
		return err
	}
	if err := l.flush(ctx); err != nil {
		return err
	}
	defer l.rest()()
	return l.plan.Await(ctx, try)
}

// sendBatch sends what the plan handed out. When that takes long, the plan has the rest back: what is best to send next may
// be something else by now, or nothing.
func (l *lane) sendBatch(ctx context.Context) error {
	defer l.files.Leave()
	defer l.segments.Leave()
	l.now, l.cold, l.ahead = time.Now(), false, maxBatch
	sent := 0
	for stale := l.now.Add(paceStep); ctx.Err() == nil && l.now.Before(stale); sent++ {
		e, ok := l.begin()
		if !ok {
			l.bulk = min(2*l.bulk, maxBatch)
			return nil
		}
		if err := l.sendBlock(ctx, e); err != nil {
			return err
		}
	}
	l.mu.Lock()
	rest := l.next
	l.next = nil
	l.mu.Unlock()
	l.plan.PutBack(rest)
	l.bulk = max(sent, 1)
	return nil
}

// settle waits for the receipts of what is on its way, before the lane ends in order: a narrow link or a slow disk may take longer
// for it than a connection's farewell lasts.
func (l *lane) settle(ctx context.Context) error {
	if err := l.flush(ctx); err != nil {
		return err
	}
	defer l.rest()()
	return l.wait(ctx, l.idle)
}

// open reports whether another block may be on its way. A second block always may, beside one that waits for its receipt and however
// large the two are, or the link would rest at the end of each large block while the peer makes it durable.
func (l *lane) open() bool {
	if l.onProbation {
		return l.idle()
	}
	return l.inflight.blocks < 2 || l.inflight.bytes < wire.MaxInflightBytes && l.inflight.span()+maxBatch <= wire.MaxInflightBlocks
}

func (l *lane) idle() bool { return l.inflight.blocks == 0 }

func (l *lane) onTrial() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.onProbation
}

func (l *lane) roomLeft() plan.Room {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.room
}

// wait sends what is in the buffer and waits until the receipts have caught up.
func (l *lane) wait(ctx context.Context, enough func() bool) error {
	for {
		l.mu.Lock()
		done := enough()
		l.mu.Unlock()
		if done {
			return nil
		}
		if err := l.flush(ctx); err != nil {
			return err
		}
		select {
		case <-l.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *lane) flush(ctx context.Context) error {
	if len(l.buf) == 0 {
		return ctx.Err()
	}
	for sent := 0; sent < len(l.buf); {
		ready, err := l.allowed(ctx, sent)
		if err != nil {
			return err
		}
		l.writing.Store(true)
		_, err = l.conn.Write(l.buf[sent:ready])
		l.writing.Store(false)
		l.beat.Add(1)
		if err != nil {
			return err
		}
		l.out.gone.Add(int64(ready - sent))
		l.measure(ctx, ready-sent)
		sent = ready
	}
	l.mu.Lock()
	l.given = l.last
	if l.partly {
		l.given--
	}
	l.mu.Unlock()
	l.buf, l.held = l.buf[:0], false
	l.fetched.tell(l.source.disks)
	return nil
}

// measure notes that the connection has taken so many bytes.
func (l *lane) measure(ctx context.Context, n int) {
	before := l.pace.rate
	l.now = time.Now()
	gone := l.gone(n)
	l.pace.carried(l.now, gone)
	slack := l.traffic.carried(&l.load, l.now, gone)
	if l.pace.rate != before {
		l.streamed, l.tries, l.rated = l.size > laneBuffer, false, l.now
		l.slack, l.until = slack, l.out.until(ctx)
		l.bufferAsCarried()
		l.peers.measured(l.peer, l.pace.rate)
	}
}

// gone is how many bytes have left since it was last asked, with n more in the kernel.
func (l *lane) gone(n int) int64 {
	before := l.queue
	l.queue = l.queued()
	return max(int64(n)+before-l.queue, 0)
}

// affordable is how large a block may be that is begun now.
func (l *lane) affordable(ctx context.Context) int64 {
	l.until = l.out.until(ctx)
	if l.until.IsZero() {
		return math.MaxInt64
	}
	l.mu.Lock()
	ahead := l.inflight.bytes
	l.mu.Unlock()
	assumed := 0.
	if l.pace.rate == 0 && !l.tries {
		assumed = l.peers.typical()
	}
	return l.pace.affordable(time.Now(), l.until, ahead, assumed)
}

const (
	// tryBefore is how much time must be left for a block that is begun though it seems too large: it takes a second to know better.
	tryBefore = 3 * paceMemory
	// stillSlow is how long the rate counts that was measured while a link stood still for a second or more: it may be well again.
	stillSlow = 5 * paceMemory
)

// lookAgain waits when no block that is left would be there in time: for the blocks on their way, which take up the time, or for a
// smaller block. If nothing is on its way on any lane, and what was measured were small blocks or a link that stood still, a block is
// tried all the same: how fast small blocks are found on a disk says little of how fast a large one is carried, and there is nothing
// else to do.
func (l *lane) lookAgain(ctx context.Context) error {
	if err := l.flush(ctx); err != nil {
		return err
	}
	defer l.rest()()
	l.mu.Lock()
	idle := l.idle()
	l.mu.Unlock()
	if !idle {
		return l.wait(ctx, l.idle)
	}
	if (!l.streamed || l.pace.stood && time.Since(l.rated) >= stillSlow) && !l.tries && time.Until(l.until) > tryBefore && l.traffic.forget() {
		l.pace, l.tries = pace{}, true
		return ctx.Err()
	}
	diskio.Sleep(ctx, paceStep)
	return ctx.Err()
}

// hold leaves the link to others for a moment.
func (l *lane) hold(ctx context.Context) error {
	if err := l.flush(ctx); err != nil {
		return err
	}
	l.pace = pace{} // what it had beside others is not what it will have
	l.traffic.hold(1)
	defer l.traffic.hold(-1)
	diskio.Sleep(ctx, paceStep/4)
	l.now, l.until = time.Now(), l.out.until(ctx)
	l.slack = l.traffic.carried(&l.load, l.now, l.gone(0))
	return ctx.Err()
}

// rest says that the lane has nothing to send until it goes on.
func (l *lane) rest() (goOn func()) {
	l.pace.rest()
	l.traffic.work(&l.load, false)
	return func() { l.traffic.work(&l.load, true) }
}

// typical is how fast a lane of this drain usually is; 0: none was measured.
func (ps *peers) typical() float64 {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.fan.typical()
}

// unwanted reports whether the lanes to a peer are to end.
func (ps *peers) unwanted(p *peerState) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return p.surplus
}

// allowed waits until the cap lets more of the buffer through than was sent, and says how much: without a cap all of it.
func (l *lane) allowed(ctx context.Context, sent int) (ready int, err error) {
	for ready = sent; ready < len(l.buf); {
		n := min(len(l.buf)-ready, capStep)
		if err := l.out.limit.wait(ctx, n); err != nil {
			return ready, err
		}
		ready += n
		if l.out.limit.rate() != rate.Inf || ready-sent >= l.stride() {
			break
		}
	}
	return ready, nil
}

// stride is how much is written at once without a cap (a capStep at least): on a slow link, what it takes in a moment, so
// that what lanes carry is known as it goes.
func (l *lane) stride() int {
	return int(min(l.pace.soFar(l.now)*paceStep.Seconds()/4, laneBuffer))
}

// space makes sure that n more bytes fit into the buffer.
func (l *lane) space(ctx context.Context, n int) error {
	if len(l.buf)+n <= cap(l.buf) {
		return nil
	}
	return l.flush(ctx)
}
