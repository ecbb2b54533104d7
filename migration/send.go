package migration

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"time"

	"golang.org/x/time/rate"
)

// send writes blocks until none is left (errSettled), the peer has no room, or ctx ends.
func (l *lane) send(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := l.wait(ctx, l.open); err != nil {
			return err
		}
		if l.d.unwanted(l.peer) {
			return errSurplus
		}
		affordable := func() int64 { return l.affordable(ctx) }
		e, ok, _, err := l.d.plan.takeInTime(l.peer.Node, l.roomLeft(), affordable())
		if err == nil && !ok {
			if err := l.flush(ctx); err != nil {
				return err
			}
			l.pace.rest()
			e, err = l.d.plan.nextInTime(ctx, l.peer.Node, l.roomLeft(), affordable)
		}
		if err == errNoTime {
			if err := l.lookAgain(ctx); err != nil {
				return err
			}
			continue
		}
		if err == errNoRoom {
			// What is on its way may take a slow disk longer than a connection's farewell lasts.
			if err := l.wait(ctx, func() bool { return len(l.inflight) == 0 }); err != nil {
				return err
			}
			return errPeerFull
		}
		if err != nil {
			return err
		}
		if err := l.sendBlock(ctx, e); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// open reports whether another block may be on its way.
func (l *lane) open() bool {
	if l.onProbation {
		return len(l.inflight) == 0
	}
	return l.bytes < maxInflightBytes && len(l.inflight) < maxInflightBlocks
}

func (l *lane) roomLeft() int64 {
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
		l.measure(ctx, ready-sent)
		sent = ready
	}
	l.mu.Lock()
	l.given = l.last - l.current
	l.mu.Unlock()
	l.buf = l.buf[:0]
	return nil
}

// measure notes that the connection has taken so many bytes.
func (l *lane) measure(ctx context.Context, n int) {
	before := l.pace.rate
	l.pace.carried(time.Now(), int64(n))
	if l.pace.rate != before {
		l.until = l.d.until(ctx)
		l.d.mu.Lock()
		l.peer.speed = l.pace.rate
		l.d.mu.Unlock()
	}
}

// affordable is how large a block may be that is begun now.
func (l *lane) affordable(ctx context.Context) int64 {
	l.until = l.d.until(ctx)
	if l.until.IsZero() {
		return math.MaxInt64
	}
	l.mu.Lock()
	ahead := l.bytes
	l.mu.Unlock()
	assumed := 0.
	if l.pace.rate == 0 {
		assumed = l.d.typical()
	}
	return l.pace.affordable(time.Now(), l.until, ahead, assumed)
}

// lookAgain waits, when no block that is left would be there in time: for what is on its way, which is in the way, or for
// a smaller block.
func (l *lane) lookAgain(ctx context.Context) error {
	l.mu.Lock()
	idle := len(l.inflight) == 0
	l.mu.Unlock()
	if !idle {
		return l.wait(ctx, func() bool { return len(l.inflight) == 0 })
	}
	if err := l.flush(ctx); err != nil {
		return err
	}
	l.pace.rest()
	select {
	case <-time.After(paceStep):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// until is the end of sending, as far as is known now; the zero time: it is not.
func (d *Drain) until(ctx context.Context) time.Time {
	if d.cfg.Until != nil {
		if at := d.cfg.Until(); !at.IsZero() {
			return at
		}
	}
	at, _ := ctx.Deadline()
	return at
}

// typical is how fast a lane of this drain usually is; 0: none was measured.
func (d *Drain) typical() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fan.typical()
}

// unwanted reports whether the lanes to a peer are to end.
func (d *Drain) unwanted(p *peerState) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return p.surplus
}

// capStep is what a lane waits for at once under a cap: little, so that a cap that is lifted is felt soon, and that the
// deadline finds little waiting.
const capStep = 32 << 10

// allowed waits until the cap lets more of the buffer through than was sent, and says how much: without a cap all of it.
func (l *lane) allowed(ctx context.Context, sent int) (ready int, err error) {
	for ready = sent; ready < len(l.buf); {
		n := min(len(l.buf)-ready, capStep)
		if err := l.d.limit.WaitN(ctx, n); err != nil {
			<-ctx.Done() // the cap on the drain does not let so much through before the deadline
			return ready, ctx.Err()
		}
		ready += n
		if l.d.limit.Limit() != rate.Inf {
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

// errWithdrawn says that the peer answered for the block before all of it was sent.
var errWithdrawn = errors.New("refused while it was being sent")

// sendBlock returns an error only when the lane is of no more use.
func (l *lane) sendBlock(ctx context.Context, e entry) error {
	l.last++
	l.begin(e)
	err := l.writeBlock(ctx, e)
	local, isLocal := errors.AsType[*localError](err)
	switch {
	case isLocal:
		l.buf = appendFrame(l.buf, frameAbort, l.last, nil) // space for it is always kept
		l.work.begin(&l.d.where(e.Block)[0])
		ruling := l.d.judge(e, local.err)
		l.work.end()
		if l.forget(l.last) {
			l.d.carryOut(ruling)
		}
	case errors.Is(err, errWithdrawn):
		l.buf = appendFrame(l.buf, frameAbort, l.last, nil)
	case errors.Is(err, errNoTime):
		l.buf = appendFrame(l.buf, frameAbort, l.last, nil)
		if l.forget(l.last) {
			l.mu.Lock()
			l.room += e.Bytes()
			l.mu.Unlock()
			l.d.plan.giveBack(e, 0, describe(e.ID, l.peer.Node, errNoTime).Error())
		}
	case err != nil:
		return err
	}
	l.complete()
	return nil
}

func (l *lane) begin(e entry) {
	l.pace.start(time.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inflight[l.last] = e
	l.bytes += e.Bytes()
	l.room -= e.Bytes()
	l.current = 1
}

func (l *lane) complete() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = 0
}

func (l *lane) writeBlock(ctx context.Context, e entry) error {
	o := opening{ID: string(e.ID), Kind: e.Kind, Layout: e.Layout, Origin: l.d.origin(e.Block), ModTime: e.modified().UnixNano(), Value: e.value.Milliseconds(), Members: l.members[:0]}
	for _, m := range e.Members {
		o.Members = append(o.Members, memberSize{m.Name, m.Bytes})
	}
	payload := o.append(l.payload[:0])
	l.members, l.payload = o.Members, payload
	if err := l.space(ctx, headerBytes+len(payload)+headerBytes); err != nil {
		return err
	}
	l.buf = appendFrame(l.buf, frameOpen, l.last, payload)
	l.sum.reset()
	for i, m := range e.Members {
		l.sum.member(m.Bytes)
		if err := l.writeMember(ctx, e, i); err != nil {
			return err
		}
	}
	sum := l.sum.sum()
	if err := l.space(ctx, headerBytes+len(sum)+headerBytes); err != nil {
		return err
	}
	l.buf = appendFrame(l.buf, frameClose, l.last, sum[:])
	return nil
}

func (l *lane) writeMember(ctx context.Context, e entry, i int) error {
	m := e.Members[i]
	dir := l.d.dirOf(e.Block, i)
	began := time.Now()
	l.work.begin(&dir)
	r, err := l.d.openMember(e.Block, i)
	l.work.end()
	if err != nil {
		return l.d.local(dir, err)
	}
	defer r.Close()
	took := time.Since(began)
	var behind int64 // of the block, with this member
	for _, m := range e.Members[i:] {
		behind += m.Bytes
	}
	for left := m.Bytes; left > 0; {
		n := int(min(left, ChunkBytes))
		if err := l.space(ctx, headerBytes+n+headerBytes); err != nil {
			return err
		}
		at := len(l.buf)
		l.buf = l.buf[:at+headerBytes+n]
		payload := l.buf[at+headerBytes:]
		began := time.Now()
		l.work.begin(&dir)
		_, err := io.ReadFull(r, payload)
		l.work.end()
		took += time.Since(began)
		if err != nil {
			l.buf = l.buf[:at]
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = errChanged
			}
			return l.d.local(dir, err)
		}
		sum := crc32.Checksum(payload, castagnoli)
		putHeader(l.buf[at:at+headerBytes], frameData, l.last, n, sum)
		l.sum.chunk(sum)
		left -= int64(n)
		l.d.sent.Add(int64(n))
		if e.attempts == 0 { // a block that is refused again and again is no sign of a peer that takes any
			l.d.peerTook()
		}
		if !l.wanted(l.last) {
			return errWithdrawn
		}
		if behind -= int64(n); l.pace.hopeless(time.Now(), l.until, behind) {
			return errNoTime
		}
	}
	if err := stillSame(r, m); err != nil {
		return &localError{err}
	}
	if m.Bytes > 0 {
		l.d.disks.Fetched(dir, m.Bytes, took)
	}
	return nil
}

// local is trouble with a block's own files; the disk's share in it is told.
func (d *Drain) local(dir string, err error) error {
	if diskFault(err) {
		d.disks.Fault(dir, err)
	}
	return &localError{err}
}
