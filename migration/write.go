package migration

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// errWithdrawn says that the peer answered for the block before all of it was sent.
var errWithdrawn = errors.New("refused while it was being sent")

// sendBlock returns an error only when the lane is of no more use.
func (l *lane) sendBlock(ctx context.Context, e plan.Entry) error {
	if why := l.endings.isOver(e.Block); why != "" {
		if _, ok := l.books.forget(l.last); ok {
			l.account.carryOut(ruling{Entry: e, outcome: manifest.Skipped, why: why})
		}
		return nil
	}
	l.flow.begin(l.now, e.Bytes())
	l.partly = true
	l.sums, l.keeps = l.sums[:0], e.Bytes() > wire.ResumeLeast
	err := l.writeBlock(ctx, e)
	local, isLocal := errors.AsType[*localError](err)
	switch {
	case isLocal:
		l.buf = wire.AppendFrame(l.buf, wire.FrameAbort, l.last, nil) // space for it is always kept
		l.work.Begin(&l.source.where(e.Block)[0])
		ruling := l.account.judge(e, local.err)
		l.work.End()
		if _, ok := l.books.forget(l.last); ok {
			l.account.carryOut(ruling)
		}
	case errors.Is(err, errWithdrawn):
		l.buf = wire.AppendFrame(l.buf, wire.FrameAbort, l.last, nil)
	case errors.Is(err, plan.ErrNoTime):
		l.buf = wire.AppendFrame(l.buf, wire.FrameAbort, l.last, nil)
		if _, ok := l.books.forget(l.last); ok {
			l.plan.GiveBack(e, 0, describe(e.ID, l.peer.Node, plan.ErrNoTime).Error())
		}
	case err != nil:
		return err
	}
	l.partly = false
	return nil
}

func (l *lane) writeBlock(ctx context.Context, e plan.Entry) error {
	o := wire.Opening{
		ID: string(e.ID), Kind: e.Kind, Layout: e.Layout, Origin: l.source.origin(&e.Block), ModTime: e.Modified().UnixNano(),
		Value: e.Value.Milliseconds(), Members: wire.AppendSizes(l.members[:0], e.Members),
	}
	payload := o.Append(l.payload[:0])
	l.members, l.payload = o.Members, payload
	if err := l.space(ctx, wire.HeaderBytes+len(payload)+wire.HeaderBytes); err != nil {
		return err
	}
	there, typ, before := int64(0), wire.FrameOpen, l.part
	if l.part = nil; before != nil && bytes.Equal(before.open, payload) && l.asItWas(e) {
		typ = wire.FrameAgain
	}
	l.buf, l.held = wire.AppendFrame(l.buf, typ, l.last, payload), true
	if typ == wire.FrameAgain {
		var err error
		l.sums = append(l.sums, before.sums...) // for keepPart, should the lane break now
		if there, err = l.ask(ctx, before); err != nil {
			return err
		}
		l.sums = l.sums[:0]
		l.flow.goOn(there)
	}
	l.sum.Reset()
	for i, m := range e.Members {
		l.sum.Member(m.Bytes)
		skips := min(there, m.Bytes)
		if skips > 0 {
			if err := l.skip(before, m, skips); err != nil {
				return err
			}
		}
		if there -= skips; skips > 0 && skips == m.Bytes {
			continue
		}
		if err := l.writeMember(ctx, e, i, skips); err != nil {
			return err
		}
	}
	l.whole = l.sum.Total()
	if err := l.space(ctx, wire.HeaderBytes+len(l.whole)+wire.HeaderBytes); err != nil {
		return err
	}
	l.buf = wire.AppendFrame(l.buf, wire.FrameClose, l.last, l.whole[:])
	return nil
}

// writeMember sends a member from at on.
func (l *lane) writeMember(ctx context.Context, e plan.Entry, i int, at int64) error {
	m, dir := e.Members[i], l.source.dirOf(e.Block, i)
	var behind int64 // of the block, with this member
	for _, m := range e.Members[i:] {
		behind += m.Bytes
	}
	behind -= at
	if m.Bytes <= wire.ChunkBytes {
		return l.writeChunk(ctx, e, int(m.Bytes), behind, dir, func(p []byte) error { return l.source.readWhole(e.Block, i, p, &l.files, &l.segments) })
	}
	var r io.ReadCloser
	err := l.onDisk(dir, func() (err error) { r, err = l.source.openMember(e.Block, i); return err })
	if err != nil {
		return err
	}
	defer r.Close()
	if at > 0 {
		if err := l.onDisk(dir, func() error { return forward(r, at) }); err != nil {
			return err
		}
	}
	for left := m.Bytes - at; left > 0; {
		n := min(left, wire.ChunkBytes)
		if err := l.writeChunk(ctx, e, int(n), behind, dir, func(p []byte) error { return l.files.Fill(r, p) }); err != nil {
			return err
		}
		left, behind = left-n, behind-n
	}
	return l.onDisk(dir, func() error { return l.source.same(e.Block, inventory.StillSame(r, m)) })
}

// writeChunk reads n bytes of a block into the buffer. behind is how much of the block is not sent yet, with these.
func (l *lane) writeChunk(ctx context.Context, e plan.Entry, n int, behind int64, dir *string, read func(p []byte) error) error {
	if err := l.space(ctx, wire.HeaderBytes+n+wire.HeaderBytes); err != nil {
		return err
	}
	at := len(l.buf)
	l.buf = l.buf[:at+wire.HeaderBytes+n]
	payload := l.buf[at+wire.HeaderBytes:]
	if err := l.onDisk(dir, func() error { return read(payload) }); err != nil || n == 0 {
		l.buf = l.buf[:at]
		return err
	}
	l.fetched.bytes += int64(n)
	sum := crc32.Checksum(payload, wire.Castagnoli)
	wire.PutHeader(l.buf[at:at+wire.HeaderBytes], wire.FrameData, l.last, n, sum)
	l.note(sum)
	if e.Met().Attempts == 0 { // a block that is refused again and again is no sign of a peer that takes any
		l.peers.took(l.now)
	}
	if err := l.mayGoOn(ctx, e.Bytes(), behind-int64(n)); err != nil {
		if at < len(l.buf) { // nothing more is sent of a block that is given up: others need the link
			l.buf = l.buf[:at]
		}
		return err
	}
	l.out.sent.Add(int64(n))
	return nil
}

// mayGoOn waits until a block's turn comes to be sent on.
func (l *lane) mayGoOn(ctx context.Context, whole, left int64) error {
	for silent := l.now.Add(wire.SenderTimeout / 4); ; {
		if !l.wanted() {
			return errWithdrawn
		}
		switch l.flow.prospect(l.now, whole, left) {
		case breakOff:
			return plan.ErrNoTime
		case holdBack:
			if err := l.hold(ctx); err != nil {
				return err
			}
			if l.now.Before(silent) {
				continue // else the peer would give up a sender that says nothing
			}
		}
		return nil
	}
}

// onDisk does work on the disk under a directory, so that others see when it does not come back.
func (l *lane) onDisk(dir *string, work func() error) error {
	if *dir != l.fetched.dir {
		l.fetched.tell(l.source.disks)
		l.fetched.dir = *dir
	}
	began := l.now
	l.work.BeginAt(dir, began)
	err := work()
	l.work.End()
	l.now = time.Now()
	l.fetched.took += l.now.Sub(began)
	if err != nil {
		return l.source.local(*dir, err)
	}
	return nil
}

// fetched is what was read from a disk, and how long that took.
type fetched struct {
	dir   string
	bytes int64
	took  time.Duration
}

func (f *fetched) tell(disks diskio.Disks) {
	if f.bytes > 0 {
		disks.Fetched(f.dir, f.bytes, f.took)
	}
	f.bytes, f.took = 0, 0
}
