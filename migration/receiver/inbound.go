package receiver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// inbound is one stream being received.
type inbound struct {
	r      *Receiver
	node   string
	alone  bool // its coordinator does not answer
	last   bool // it offers its blocks even to a node that is advised to go
	frames *wire.Reader
	out    *outbox
	beat   atomic.Int64 // rises with every frame, and amid long work on a disk

	changed <-chan struct{}     // closed when a disk's health changes
	work    diskio.Work         // which disk it is at, if any
	lost    chan struct{}       // closed when that disk hangs
	why     *diskio.SilentError // of lost

	mu       sync.Mutex // guards pending and flushing for those that answer in this stream's stead
	pending  []*landed  // complete, and not yet written to the kernel
	flushing []*landed

	seg    *vault.Segment
	ahead  *allotment // on its disk
	broken bool       // the segment failed to take bytes
	again  bool       // blocks that come are likely to be here already
	bytes  int64      // of pending
	comeback
	owed    sync.WaitGroup
	waiting atomic.Int64  // blocks without a receipt, of those in owed
	named   atomic.Int64  // bytes of their openings
	fewer   chan struct{} // gets one when named or waiting falls
	kept    atomicCount   // durable, with a receipt

	// The block under way:
	transfer uint32
	naming   int64 // bytes of its opening
	opening  wire.Opening
	landing  landing      // nil: none, or the block was refused and its frames are passed over
	packed   vaultLanding // the landing of a block for a segment
	room     *allotment
	promised func() // gives back its part of the quota
	dirs     []string
	member   int
	left     int64  // of the member
	has      int64  // bytes received
	covered  int64  // bytes that room has been set aside for
	beside   int64  // room for what it takes beside its bytes
	written  uint32 // the transfer number of its frames where they are written: that of the stream that brought the first of them
	cutOff   bool   // the stream ended amid the block, and its frames until then were sound
	sum      wire.Summer
	open     atomic.Bool
}

func newInbound(r *Receiver, node string, conn net.Conn) *inbound {
	in := &inbound{
		r: r, node: node, out: newOutbox(), sum: wire.NewSummer(), changed: r.disks.Changed(),
		lost: make(chan struct{}), fewer: make(chan struct{}, 1), again: true,
	}
	in.cut, in.leave, in.claims, in.parted = func() { wire.Cut(conn) }, func() {}, make(chan chan<- *unfinished), make(chan struct{})
	var from io.Reader = flushing{conn, in}
	if c, ok := conn.(*wire.Conn); ok {
		c.BeforeWaiting(in.flush)
		from = c
	}
	in.frames = wire.NewReader(from, wire.ChunkBytes)
	return in
}

// flushing hands complete blocks over before it waits for more bytes.
type flushing struct {
	io.Reader
	in *inbound
}

func (f flushing) Read(p []byte) (int, error) {
	f.in.flush()
	return f.Reader.Read(p)
}

// handshake answers a hello. After a grant the stream counts until leave is called.
func (in *inbound) handshake(w io.Writer) (admitted bool, err error) {
	f, err := in.frames.Next()
	if err != nil {
		return false, err
	}
	if f.Type != wire.FrameHello {
		return false, fmt.Errorf("frame of type %d before hello", f.Type)
	}
	h, err := wire.ParseHello(f.Payload)
	if err != nil {
		return false, err
	}
	in.alone, in.last = h.Alone, h.Advised
	advised, no := false, &wire.Refuse{Reason: fmt.Sprintf("the certificate is for %q, the stream says %q", in.node, h.Node), RetryMillis: 60000}
	if h.Node == in.node {
		advised, no = in.r.enter(h)
	}
	if no != nil {
		_, err := w.Write(wire.AppendFrame(nil, wire.FrameRefuse, 0, no.Append(nil)))
		return false, err
	}
	g := in.r.grant(h.Alone)
	g.Shared, g.Advised = in.r.budget.Shared(in.node), advised
	if _, err := w.Write(wire.AppendFrame(nil, wire.FrameGrant, 0, g.Append(nil))); err != nil {
		in.r.leave(in.node)
		return false, err
	}
	return true, nil
}

func (in *inbound) run() error {
	for {
		f, err := in.frames.Next()
		switch {
		case errors.Is(err, io.EOF) && in.open.Load():
			in.cutOff = true
			return io.ErrUnexpectedEOF
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			in.cutOff = true // a fault in this frame says nothing against the frames before it
			return err
		}
		in.beat.Add(1)
		switch f.Type {
		case wire.FrameOpen, wire.FrameAgain:
			err = in.begin(f)
		case wire.FrameData:
			err = in.data(f)
		case wire.FrameClose:
			err = in.end(f)
		case wire.FrameAbort:
			if f.Transfer == in.transfer { // else the transfer was over before the sender changed its mind
				in.abandon()
			}
		default:
			err = fmt.Errorf("frame of type %d from a sender", f.Type)
		}
		if err != nil {
			return err
		}
		// Blocks that came in one piece are handed over in one piece, if they are small. They are also handed over when the stream
		// waits for bytes, even amid a frame: on a narrow link the rest of a frame may be long in coming.
		if in.bytes >= maxPendingBytes || len(in.pending) >= maxPending {
			in.flush()
		}
		if in.named.Load() > maxOpenings && !in.open.Load() {
			in.flush()
			for in.named.Load() > maxOpenings/2 {
				<-in.fewer
			}
		}
		if n := max(in.out.len(), int(in.waiting.Load())); !in.open.Load() && n > maxUnread {
			return fmt.Errorf("%d receipts wait, at most %d", n, maxUnread)
		}
	}
}

const (
	maxPendingBytes = 1 << 20
	maxPending      = 1024
	// maxUnread bounds the receipts that wait for a sender that reads none, and the blocks that wait for their disk. A sender
	// that keeps to its window has fewer on the way.
	maxUnread = 2 * wire.MaxInflightBlocks
	// maxOpenings is how many bytes of openings a stream may have in memory: a KiB for each block that a sender may have on the way
	// (MaxInflightBlocks). Records are made of the openings, and a block need not have any other byte.
	maxOpenings = 8 << 20
)

// begin decides where a block will rest. A refusal goes to the sender as a verdict; it is no fault of the stream.
func (in *inbound) begin(f wire.Frame) error {
	if in.open.Load() {
		return fmt.Errorf("transfer %d begins inside transfer %d", f.Transfer, in.transfer)
	}
	o, err := wire.ParseOpening(f.Payload)
	if err != nil {
		return err
	}
	again := f.Type == wire.FrameAgain
	in.open.Store(true)
	in.transfer, in.naming, in.opening, in.landing = f.Transfer, int64(len(f.Payload)), o, nil
	in.beside = catalog.BesideBytes(&o, len(f.Payload))
	large := o.Bytes() > wire.ResumeLeast
	switch {
	case again && in.resume(f):
		return nil
	case again:
		f = wire.Frame{Type: wire.FrameOpen, Transfer: f.Transfer, Raw: wire.AppendFrame(nil, wire.FrameOpen, f.Transfer, f.Payload), Payload: f.Payload}
	case large && in.takeOver(string(f.Payload)):
		in.drop() // the sender does without the part that is here
	}
	in.has, in.written = 0, f.Transfer
	if large {
		in.block.set(string(f.Payload))
	}
	in.member, in.left = 0, o.Members[0].Bytes
	in.sum.Reset()
	in.sum.Member(in.left)
	promised, err := in.promise(o)
	if err == nil {
		if err = in.land(f, o); err != nil {
			promised()
		}
		in.promised = promised
	}
	if err != nil {
		in.refuse(err)
	}
	return nil
}

func (in *inbound) data(f wire.Frame) error {
	if !in.open.Load() || f.Transfer != in.transfer {
		return fmt.Errorf("data for transfer %d, want %d", f.Transfer, in.transfer)
	}
	for in.left == 0 {
		if in.member+1 == len(in.opening.Members) {
			return fmt.Errorf("transfer %d: more data than announced", f.Transfer)
		}
		in.nextMember()
	}
	if want := min(in.left, wire.ChunkBytes); int64(len(f.Payload)) != want {
		return fmt.Errorf("transfer %d: chunk of %d bytes, want %d", f.Transfer, len(f.Payload), want)
	}
	in.left -= int64(len(f.Payload))
	in.has += int64(len(f.Payload))
	in.sum.Chunk(f.Sum)
	if in.landing == nil {
		return nil
	}
	if err := in.cover(int64(len(f.Payload))); err != nil {
		in.drop()
		in.refuse(err)
		return nil
	}
	if in.left > 0 { // else end asks
		if err := in.r.turnAway(in.last, in.opening.Bytes()); err != nil {
			in.drop()
			in.refuse(err)
			return nil
		}
	}
	err := in.turned()
	if f = in.asWritten(f); err == nil {
		err = in.gives(f, func() error { return in.landing.data(in.member, f) })
	}
	if err != nil {
		in.fail(err)
	}
	return nil
}

func (in *inbound) nextMember() {
	in.member++
	in.left = in.opening.Members[in.member].Bytes
	in.sum.Member(in.left)
}

func (in *inbound) end(f wire.Frame) error {
	if !in.open.Load() || f.Transfer != in.transfer {
		return fmt.Errorf("close of transfer %d, want %d", f.Transfer, in.transfer)
	}
	for in.left == 0 && in.member+1 < len(in.opening.Members) {
		in.nextMember()
	}
	if in.left != 0 {
		return fmt.Errorf("transfer %d: closed with %d bytes missing", f.Transfer, in.left)
	}
	sum := in.sum.Total()
	if string(f.Payload) != string(sum[:]) {
		return fmt.Errorf("block %s: %w", in.opening.ID, wire.ErrCorrupt)
	}
	in.open.Store(false)
	in.block.set("")
	if in.landing == nil {
		return nil
	}
	if err := in.r.accept(in.last, in.opening.Bytes()); err != nil {
		in.drop()
		in.refuse(err)
		return nil
	}
	if in.opening.Origin == "" {
		in.opening.Origin = in.node
	}
	var l *landed
	f = in.asWritten(f)
	err := in.gives(f, func() (err error) {
		l, err = in.landing.finish(f, catalog.Record{Opening: in.opening, From: in.node, Sum: sum})
		return err
	})
	if err != nil {
		in.r.answered(1)
		in.fail(err)
		return nil
	}
	l.in, l.transfer, l.named, l.beside, l.room, l.promised = in, in.transfer, in.naming, in.besides(), in.room, in.promised
	if in.again {
		in.recognise([]*landed{l})
	}
	in.waiting.Add(1)
	in.named.Add(l.named)
	in.owed.Add(1)
	in.mu.Lock()
	in.pending = append(in.pending, l)
	in.mu.Unlock()
	in.bytes, in.landing = in.bytes+in.opening.Bytes(), nil
	return nil
}

// fail gives up the block under way because this node cannot keep it.
func (in *inbound) fail(err error) {
	in.r.fault(*in.at(), err)
	if _, ok := in.landing.(*vaultLanding); ok {
		in.broken = true
	}
	in.drop()
	in.r.cfg.Log.Warn("cannot land a block", "block", in.opening.ID, "node", in.node, "err", err)
	in.refuse(err)
}

func (in *inbound) refuse(err error) { in.out.put(verdictOn(in.transfer, err)) }

// verdictOn translates a fault into a verdict for the sender.
func verdictOn(transfer uint32, err error) wire.Verdict {
	v := wire.Verdict{Transfer: transfer}
	if err == nil {
		return v
	}
	v.Code, v.Reason = wire.VerdictFailed, err.Error()
	if errors.Is(err, catalog.ErrConflict) {
		v.Code = wire.VerdictConflict
	}
	if _, refused := errors.AsType[*FullError](err); refused || durable.Full(err) {
		v.Code = wire.VerdictFull
	}
	return v
}

// abandon forgets the block under way: the sender took it back, or is gone.
func (in *inbound) abandon() {
	in.open.Store(false)
	in.block.set("")
	if in.landing != nil {
		in.drop()
	}
}

func (in *inbound) drop() {
	in.block.set("")
	in.work.Begin(in.at())
	in.landing.abort()
	in.work.End()
	in.landing = nil
	in.room.drop(min(in.has, in.covered) + in.besides())
	in.promised()
}

// flush writes the bytes of complete blocks to the kernel, and hands the blocks to the committer.
func (in *inbound) flush() {
	if len(in.pending) == 0 {
		return
	}
	in.mu.Lock()
	ready := in.pending
	in.flushing, in.pending, in.bytes = ready, nil, 0
	in.mu.Unlock()
	in.recognise(ready)
	if in.seg != nil {
		if err := in.on(&in.seg.Dir, in.seg.Flush); err != nil {
			in.r.fault(in.seg.Dir, err)
			in.broken = true
			ready = in.lose(ready, err)
		}
	}
	in.mu.Lock()
	in.flushing = nil
	in.mu.Unlock()
	if len(ready) > 0 {
		in.r.commit.submit(ready)
	}
}

// unanswered returns the accepted blocks that the committer does not have yet.
func (in *inbound) unanswered() []*landed {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Concat(in.flushing, in.pending)
}

// lose answers for complete blocks whose segment did not take their bytes, and returns the others. A full disk keeps
// what was written to it before.
func (in *inbound) lose(blocks []*landed, err error) (rest []*landed) {
	taken := int64(0)
	if durable.Full(err) {
		taken = in.seg.Taken()
	}
	for _, l := range blocks {
		if l.segment != in.seg || l.Offset+l.Length <= taken {
			rest = append(rest, l)
			continue
		}
		l.fault = err
		in.reply([]*landed{l})
	}
	return rest
}

// reply gives the sender the verdicts on these blocks, except those that it has already.
func (in *inbound) reply(blocks []*landed) {
	in.answer(blocks, func(l *landed) error { return l.fault })
}

// answer gives the sender a verdict on each block that has none yet.
func (in *inbound) answer(blocks []*landed, why func(*landed) error) {
	said, told, named := make([]wire.Verdict, 0, len(blocks)), 0, int64(0)
	for _, l := range blocks {
		if l.told.Swap(true) {
			continue
		}
		told++
		named += l.named
		v := verdictOn(l.transfer, why(l))
		if v.Code == wire.VerdictDurable {
			in.kept.add(l.Bytes())
		}
		said = append(said, v)
		l.room.drop(l.Bytes() + l.beside)
		l.promised()
	}
	in.out.put(said...)
	in.r.answered(told)
	in.waiting.Add(-int64(told))
	in.named.Add(-named)
	await.Mark(in.fewer)
	in.owed.Add(-told)
}

func (in *inbound) close() {
	in.abandon()
	in.flush()
	in.part()
}
