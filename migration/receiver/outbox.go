package receiver

import (
	"io"
	"slices"
	"sync"

	"github.com/lifeboat/lifeboat/migration/wire"
)

// outbox sends a receiver's verdicts in the order in which they fall. put never blocks, so a sender that does not read
// holds up nobody's commit.
type outbox struct {
	mu      sync.Mutex
	queue   []wire.Verdict
	alive   bool   // the other end is to hear something
	other   []byte // frames that are no verdicts
	closed  bool
	changed chan struct{}
}

func newOutbox() *outbox { return &outbox{changed: make(chan struct{}, 1)} }

func (o *outbox) put(v ...wire.Verdict) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = append(o.queue, v...)
	o.nudge()
}

// live has the other end hear something, be it that there is no verdict.
func (o *outbox) live() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.alive = true
	o.nudge()
}

// has says how much of a block is here.
func (o *outbox) has(transfer uint32, bytes int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.other = wire.AppendFrame(o.other, wire.FrameHave, 0, wire.Have{Transfer: transfer, Bytes: bytes}.Append(nil))
	o.nudge()
}

// len is how many wait to be sent, verdicts or others; the shortest of those are a header.
func (o *outbox) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue) + len(o.other)/wire.HeaderBytes
}

func (o *outbox) nudge() {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// close lets run end once everything was sent.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.nudge()
}

// run writes verdicts until the outbox is closed, or until the other end takes no more.
func (o *outbox) run(w io.Writer) error {
	var buf, payload []byte
	var said []wire.Verdict // the space of what was sent, for what comes
	for range o.changed {
		o.mu.Lock()
		queue, alive, closed := o.queue, o.alive, o.closed
		buf = append(buf[:0], o.other...)
		o.queue, o.alive, o.other = said, false, o.other[:0]
		o.mu.Unlock()
		for some := range slices.Chunk(queue, wire.VerdictsPerFrame) {
			payload = wire.AppendVerdicts(payload[:0], some)
			buf = wire.AppendFrame(buf, wire.FrameReceipts, 0, payload)
		}
		if alive && len(queue) == 0 {
			buf = wire.AppendFrame(buf, wire.FrameReceipts, 0, wire.AppendVerdicts(payload[:0], nil))
		}
		clear(queue)
		said = queue[:0]
		if len(buf) > 0 {
			if _, err := w.Write(buf); err != nil {
				return err
			}
		}
		if closed {
			return nil
		}
	}
	return nil
}
