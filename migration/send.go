package migration

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/plan"
)

// send writes blocks until none is left (ErrSettled), the peer has no room, or ctx ends.
func (l *lane) send(ctx context.Context) error {
	for found := false; ctx.Err() == nil; {
		if err := l.wait(ctx, l.books.open); err != nil {
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
			l.batch = []plan.Entry{l.part.Entry}
			l.books.handed(l.batch)
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
			settled := l.books.idle()
			if err := l.settle(ctx); err != nil {
				return err
			}
			if !settled { // a refusal gives room back
				continue
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
	if l.books.onTrial() {
		blocks = 1
	}
	try := func() (ok bool, wait time.Duration, err error) {
		affordable := l.flow.affordable(ctx, l.books.bytes(), l.peers.typical)
		l.batch, wait, err = l.takeShare(blocks, affordable)
		l.books.handed(l.batch)
		return len(l.batch) > 0, wait, err
	}
	ok, _, err := try()
	if ok || err != nil {
		return err
	}
	if err := l.flush(ctx); err != nil {
		return err
	}
	defer l.flow.rest()()
	return l.plan.Await(ctx, try)
}

// takeShare takes blocks from the plan that would be there in time beside what all lanes have begun: in time at the rate that the
// lane has now; else, as there is nothing better to try, in time if the lane had all that the others leave. Blocks on disks that
// enough lanes wait for come last.
func (l *lane) takeShare(blocks int, affordable int64) (batch []plan.Entry, wait time.Duration, err error) {
	t, room := l.traffic, l.books.roomLeft()
	room.Larger = l.peers.leftInPlace(&room)
	begun := int64(len(l.buf)) + l.flow.inKernel()
	t.taking.Lock()
	defer t.taking.Unlock()
	most, alone := l.flow.share(begun, affordable)
	bytes := int64(laneBuffer)
	if l.cold { // a disk is asked for all of it at once
		bytes = diskio.Window
	}
	l.carriers.handOut(func(crowded map[string]bool) (some bool) {
		batch, wait, err = l.plan.Take(l.batch[:0], blocks, bytes, l.peer.Node, room, most, crowded)
		if err == plan.ErrNoTime && alone > most {
			batch, wait, err = l.plan.Take(l.batch[:0], blocks, bytes, l.peer.Node, room, alone, crowded)
		}
		return len(batch) > 0
	})
	for _, e := range batch {
		begun += e.Bytes()
	}
	t.pledge(&l.flow.load, begun)
	return batch, wait, err
}

// sendBatch sends what the plan handed out. When that takes long, the plan has the rest back: what is best to send next may
// be something else by now, or nothing.
func (l *lane) sendBatch(ctx context.Context) error {
	defer l.files.Leave()
	defer l.segments.Leave()
	l.now, l.cold, l.ahead = time.Now(), false, maxBatch
	sent := 0
	for stale := l.now.Add(paceStep); ctx.Err() == nil && l.now.Before(stale); sent++ {
		e, transfer, ok := l.books.begin()
		if !ok {
			l.bulk = min(2*l.bulk, maxBatch)
			return nil
		}
		l.last = transfer
		if err := l.sendBlock(ctx, e); err != nil {
			return err
		}
	}
	l.plan.PutBack(l.books.takeRest())
	l.bulk = max(sent, 1)
	return nil
}

// settle waits for the receipts of what is on its way, before the lane ends in order: a narrow link or a slow disk may take longer
// for it than a connection's farewell lasts.
func (l *lane) settle(ctx context.Context) error {
	if err := l.flush(ctx); err != nil {
		return err
	}
	defer l.flow.rest()()
	return l.wait(ctx, l.books.idle)
}

// wait sends what is in the buffer and waits until the receipts have caught up.
func (l *lane) wait(ctx context.Context, enough func() bool) error {
	for !enough() {
		if err := l.flush(ctx); err != nil {
			return err
		}
		select {
		case <-l.books.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
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
		l.signs.beat.Add(1)
		if err != nil {
			return err
		}
		l.out.gone.Add(int64(ready - sent))
		if l.now = time.Now(); l.flow.carried(ctx, l.now, ready-sent) {
			l.peers.measured(l.peer, l.flow.pace.rate)
		}
		sent = ready
	}
	whole := l.last
	if l.partly {
		whole--
	}
	l.books.written(whole)
	l.buf, l.held = l.buf[:0], false
	l.fetched.tell(l.source.disks)
	return nil
}

// lookAgain waits when no block that is left would be there in time: for the blocks on their way, which take up the time, or for a
// smaller block. If what was measured may be wrong (flow.forget), a block is tried all the same: there is nothing else to do.
func (l *lane) lookAgain(ctx context.Context) error {
	if err := l.flush(ctx); err != nil {
		return err
	}
	defer l.flow.rest()()
	if !l.books.idle() {
		return l.wait(ctx, l.books.idle)
	}
	if !l.flow.forget() {
		await.Sleep(ctx, paceStep)
	}
	return ctx.Err()
}

// hold leaves the link to others for a moment.
func (l *lane) hold(ctx context.Context) error {
	if err := l.flush(ctx); err != nil {
		return err
	}
	l.now = l.flow.hold(ctx)
	return ctx.Err()
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
		if l.out.limit.rate() != rate.Inf || ready-sent >= l.flow.stride(l.now) {
			break
		}
	}
	return ready, nil
}

// space makes sure that n more bytes fit into the buffer.
func (l *lane) space(ctx context.Context, n int) error {
	if len(l.buf)+n <= cap(l.buf) {
		return nil
	}
	return l.flush(ctx)
}
