package migration

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// lane is one connection to a peer: blocks go out one behind the other without waiting for receipts, receipts come back
// and settle them.
type lane struct {
	d    *Drain
	peer *peerState
	conn net.Conn
	buf  []byte
	sum  summer
	last uint32 // transfer number

	mu       sync.Mutex
	inflight map[uint32]entry
	bytes    int64 // of inflight
	room     int64 // that the peer granted and that is not used up
	changed  chan struct{}
}

const (
	// laneBuffer is written at once: two chunks with their headers.
	laneBuffer = 2*(ChunkBytes+headerBytes) + 64<<10
	// A lane waits for receipts when so much is on its way. It must cover what a link carries between two commits:
	// 64 MiB are 50 ms at 10 Gbit/s.
	maxInflightBytes  = 64 << 20
	maxInflightBlocks = 8192
)

// Local trouble with one block's files is tried again so often; trouble with peers as long as time remains.
const (
	maxReadFailures = 3
	maxChanges      = 5
)

var errPeerFull = errors.New("full: no room for any block that is left")

// connectAndSend returns io.EOF when every block is settled.
func (d *Drain) connectAndSend(ctx context.Context, p *peerState) error {
	d.mu.Lock()
	peer := p.Peer
	d.mu.Unlock()
	conn, err := d.cfg.Dial(ctx, peer)
	if err != nil {
		return err
	}
	defer conn.Close()
	l := &lane{d: d, peer: p, conn: conn, buf: make([]byte, 0, laneBuffer), sum: newSummer(), inflight: map[uint32]entry{}, changed: make(chan struct{}, 1)}
	undo := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now().Add(receiptGrace)) })
	defer undo()
	frames := newFrameReader(conn)
	if err := l.handshake(frames); err != nil {
		return err
	}
	d.note(p, nil)

	sending, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	received := make(chan error, 1)
	go func() {
		err := l.receive(frames)
		stop(err) // the writer must not wait for receipts that will not come
		conn.SetWriteDeadline(time.Now())
		received <- err
	}()
	err = l.send(sending)
	l.wait(received, err)
	if cause := context.Cause(sending); cause != nil && !errors.Is(cause, context.Canceled) && ctx.Err() == nil && !errors.Is(err, io.EOF) {
		err = cause
	}
	l.returnInflight(ctx, err)
	return err
}

// wait closes the sending side and takes receipts for what is still on its way.
func (l *lane) wait(received <-chan error, err error) {
	healthy := err == nil || errors.Is(err, io.EOF) || errors.Is(err, errPeerFull) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	if c, ok := l.conn.(interface{ CloseWrite() error }); ok && healthy {
		if c.CloseWrite() == nil {
			l.conn.SetReadDeadline(time.Now().Add(receiptGrace))
			<-received
			return
		}
	}
	l.conn.Close()
	<-received
}

func (l *lane) handshake(frames *frameReader) error {
	l.conn.SetDeadline(time.Now().Add(5 * time.Second))
	defer l.conn.SetDeadline(time.Time{})
	hi := hello{Node: l.d.cfg.Node, Incident: l.d.cfg.Incident}
	if _, err := l.conn.Write(appendFrame(nil, frameHello, 0, hi.append(nil))); err != nil {
		return fmt.Errorf("greet %s: %w", l.peer.Node, err)
	}
	f, err := frames.next()
	if err != nil {
		return fmt.Errorf("greet %s: %w", l.peer.Node, err)
	}
	switch f.typ {
	case frameGrant:
		g, err := parseGrant(f.payload)
		l.room = g.RoomBytes
		return err
	case frameRefuse:
		r, err := parseRefuse(f.payload)
		if err != nil {
			return err
		}
		return &refusedError{r.Reason, time.Duration(r.RetryMillis) * time.Millisecond}
	default:
		return fmt.Errorf("greet %s: frame of type %d in reply", l.peer.Node, f.typ)
	}
}

// send writes blocks until none is left (io.EOF), the peer has no room, or ctx ends.
func (l *lane) send(ctx context.Context) error {
	for {
		if err := l.window(ctx); err != nil {
			return err
		}
		e, ok, _, err := l.d.plan.take(l.roomLeft())
		if err == nil && !ok {
			if err := l.flush(ctx); err != nil {
				return err
			}
			e, err = l.d.plan.next(ctx, l.roomLeft())
		}
		switch {
		case errors.Is(err, errNoRoom):
			if err := l.flush(ctx); err != nil {
				return err
			}
			return errPeerFull
		case err != nil:
			return err
		}
		if err := l.sendBlock(ctx, e); err != nil {
			return err
		}
	}
}

func (l *lane) roomLeft() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.room
}

// window waits until the receipts have caught up.
func (l *lane) window(ctx context.Context) error {
	for {
		l.mu.Lock()
		open := l.bytes < maxInflightBytes && len(l.inflight) < maxInflightBlocks
		l.mu.Unlock()
		if open {
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
	if err := l.d.limit.WaitN(ctx, len(l.buf)); err != nil {
		return context.Cause(ctx)
	}
	_, err := l.conn.Write(l.buf)
	l.buf = l.buf[:0]
	return err
}

// space makes sure that n more bytes fit into the buffer.
func (l *lane) space(ctx context.Context, n int) error {
	if len(l.buf)+n <= cap(l.buf) {
		return nil
	}
	return l.flush(ctx)
}

// localError is trouble with a block's own files, not with the peer.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }
func (e *localError) Unwrap() error { return e.err }

var errChanged = errors.New("changed while it was being sent")

// errWithdrawn says that the peer answered for the block before all of it was sent.
var errWithdrawn = errors.New("refused while it was being sent")

// sendBlock returns an error only when the lane is of no more use.
func (l *lane) sendBlock(ctx context.Context, e entry) error {
	l.last++
	l.mu.Lock()
	l.inflight[l.last] = e
	l.bytes += e.Bytes()
	l.room -= e.Bytes()
	l.mu.Unlock()
	err := l.writeBlock(ctx, e)
	local, ok := errors.AsType[*localError](err)
	if !ok && !errors.Is(err, errWithdrawn) {
		return err
	}
	l.buf = appendFrame(l.buf, frameAbort, l.last, nil) // space for it is always kept
	if ok && l.forget(l.last) {
		l.d.localTrouble(e, local.err)
	}
	return nil
}

func (l *lane) writeBlock(ctx context.Context, e entry) error {
	o := opening{ID: string(e.ID), Kind: e.Kind, Layout: e.Layout, ModTime: e.modified().UnixNano()}
	for _, m := range e.Members {
		o.Members = append(o.Members, memberSize{m.Name, m.Bytes})
	}
	payload := o.append(nil)
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
	r, err := l.d.openMember(e.Block, i)
	if err != nil {
		return &localError{err}
	}
	defer r.Close()
	for left := m.Bytes; left > 0; {
		n := int(min(left, ChunkBytes))
		if err := l.space(ctx, headerBytes+n+headerBytes); err != nil {
			return err
		}
		at := len(l.buf)
		l.buf = l.buf[:at+headerBytes+n]
		payload := l.buf[at+headerBytes:]
		if _, err := io.ReadFull(r, payload); err != nil {
			l.buf = l.buf[:at]
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = errChanged
			}
			return &localError{err}
		}
		sum := crc32.Checksum(payload, castagnoli)
		putHeader(l.buf[at:at+headerBytes], frameData, l.last, n, sum)
		l.sum.chunk(sum)
		left -= int64(n)
		l.d.sent.Add(int64(n))
		if !l.wanted(l.last) {
			return errWithdrawn
		}
	}
	return stillSame(r, m)
}

// stillSame tells whether a file is what it was when it was planned. A copy of a file that changed under the reader's
// hands would be a mixture of two contents.
func stillSame(r io.Reader, m Member) error {
	f, ok := r.(*os.File)
	if !ok {
		return nil // the vault's blocks do not change
	}
	info, err := f.Stat()
	if err != nil {
		return &localError{err}
	}
	if info.Size() != m.Bytes || !info.ModTime().Equal(m.ModTime) {
		return &localError{errChanged}
	}
	return nil
}

// openMember opens a member where it lies now: in its store, or in this node's vault.
func (d *Drain) openMember(b Block, i int) (io.ReadCloser, error) {
	m := b.Members[i]
	if m.root < 0 {
		r, err := d.cfg.Vault.catalog.get(b.ID)
		if err != nil {
			return nil, err
		}
		return d.cfg.Vault.reader(r, i)
	}
	s := d.stores[b.ID.Store()]
	if r, err := d.cfg.Vault.catalog.get(b.ID); err == nil && i < len(r.Placed) {
		// It came from a peer: its checksums are known, so what is carried on is what came.
		if c, err := s.openPlaced(r, i); !errors.Is(err, fs.ErrNotExist) {
			return c, err
		}
	}
	f, err := s.open(m)
	if err != nil {
		return nil, err
	}
	if err := stillSame(f, m); err != nil {
		f.Close()
		if local, ok := errors.AsType[*localError](err); ok {
			err = local.err
		}
		return nil, err
	}
	return f, nil
}

// localTrouble decides about a block whose own files stood in the way.
func (d *Drain) localTrouble(e entry, err error) {
	e.attempts++
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.ledger.add(Entry{ID: string(e.ID), Bytes: e.Bytes(), Outcome: Skipped, Reason: "deleted while the node was draining"})
		d.plan.settle(1)
	case errors.Is(err, errChanged) && e.attempts < maxChanges:
		now, found := d.stores[e.ID.Store()].Find(e.ID)
		if errors.Is(found, fs.ErrNotExist) {
			d.localTrouble(e, found)
			return
		}
		if found == nil {
			e.Block = now
		}
		d.plan.giveBack(e, backOff(e.attempts), err.Error())
	case !errors.Is(err, errChanged) && !errors.Is(err, errCorrupt) && e.attempts < maxReadFailures:
		d.plan.giveBack(e, backOff(e.attempts), err.Error())
	default:
		d.cfg.Log.Error("block lost", "block", e.ID, "err", err)
		d.lose(e, err.Error())
		d.plan.settle(1)
	}
}

// wanted reports whether a transfer has not been answered.
func (l *lane) wanted(transfer uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.inflight[transfer]
	return ok
}

// forget takes a transfer off the books; false when it was answered already.
func (l *lane) forget(transfer uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.inflight[transfer]
	if !ok {
		return false
	}
	delete(l.inflight, transfer)
	l.bytes -= e.Bytes()
	select {
	case l.changed <- struct{}{}:
	default:
	}
	return true
}

// receive settles blocks as their verdicts come, until the peer closes the stream.
func (l *lane) receive(frames *frameReader) error {
	for {
		f, err := frames.next()
		if err != nil {
			return fmt.Errorf("receipts from %s: %w", l.peer.Node, err)
		}
		if f.typ != frameReceipts {
			return fmt.Errorf("receipts from %s: frame of type %d", l.peer.Node, f.typ)
		}
		verdicts, err := parseVerdicts(f.payload)
		if err != nil {
			return fmt.Errorf("receipts from %s: %w", l.peer.Node, err)
		}
		var moved []entry
		for _, v := range verdicts {
			l.mu.Lock()
			e, ok := l.inflight[v.Transfer]
			l.mu.Unlock()
			if !ok || !l.forget(v.Transfer) {
				continue
			}
			switch v.Code {
			case verdictDurable:
				moved = append(moved, e)
			case verdictFull:
				l.mu.Lock()
				l.room = min(l.room, e.Bytes()-1)
				l.mu.Unlock()
				l.d.plan.giveBack(e, 0, describe(e.ID, l.peer.Node, errors.New(v.Reason)).Error())
			default:
				e.attempts++
				l.d.plan.giveBack(e, backOff(e.attempts), describe(e.ID, l.peer.Node, errors.New(v.Reason)).Error())
			}
		}
		if len(moved) > 0 {
			l.d.moved(l.peer, moved...)
		}
	}
}

// returnInflight gives back what the peer never answered for. After the deadline there is nobody to give it to: the plan
// keeps it until the account is closed.
func (l *lane) returnInflight(ctx context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	why := "no receipt"
	if err != nil && ctx.Err() == nil {
		why = err.Error()
	}
	transfers := make([]uint32, 0, len(l.inflight))
	for t := range l.inflight {
		transfers = append(transfers, t)
	}
	slices.Sort(transfers) // map order must not become send order
	for _, t := range transfers {
		e := l.inflight[t]
		l.d.plan.giveBack(e, 0, fmt.Sprintf("sent to %s: %s", l.peer.Node, why))
	}
	clear(l.inflight)
	l.bytes = 0
}
