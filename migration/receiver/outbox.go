package receiver

import (
	"io"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// outbox sends a receiver's verdicts in the order in which they fall. put never blocks, so a sender that does not read
// holds up no commit.
type outbox struct {
	mu      sync.Mutex
	queue   []wire.Verdict
	atWork  bool   // an empty verdicts frame is to go out
	other   []byte // frames that carry no verdicts
	closed  bool
	changed chan struct{}
}

func newOutbox() *outbox { return &outbox{changed: make(chan struct{}, 1)} }

func (o *outbox) put(v ...wire.Verdict) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = append(o.queue, v...)
	await.Mark(o.changed)
}

// live tells the sender that its blocks are being worked on, though no verdict has fallen.
func (o *outbox) live() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.atWork = true
	await.Mark(o.changed)
}

// has tells the sender how many bytes of a block are here.
func (o *outbox) has(transfer uint32, bytes int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.other = wire.AppendFrame(o.other, wire.FrameHave, 0, wire.Have{Transfer: transfer, Bytes: bytes}.Append(nil))
	await.Mark(o.changed)
}

// len returns how many verdicts and other frames wait, counting the latter as if each were only a header.
func (o *outbox) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue) + len(o.other)/wire.HeaderBytes
}

// close lets run end once everything was sent.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	await.Mark(o.changed)
}

// run writes verdicts until the outbox is closed, or until the other end takes no more. Each AliveEvery it also says that this end is
// there. It waits for no disk.
func (o *outbox) run(w io.Writer) error {
	var buf, payload []byte
	var said []wire.Verdict // the space of the last queue, for the next
	tick := time.NewTicker(wire.AliveEvery)
	defer tick.Stop()
	for {
		ticked := false
		select {
		case <-o.changed:
		case <-tick.C:
			ticked = true
		}
		o.mu.Lock()
		queue, atWork, closed := o.queue, o.atWork, o.closed
		buf = append(buf[:0], o.other...)
		o.queue, o.atWork, o.other = said, false, o.other[:0]
		o.mu.Unlock()
		for some := range slices.Chunk(queue, wire.VerdictsPerFrame) {
			payload = wire.AppendVerdicts(payload[:0], some)
			buf = wire.AppendFrame(buf, wire.FrameReceipts, 0, payload)
		}
		if atWork && len(queue) == 0 {
			buf = wire.AppendFrame(buf, wire.FrameReceipts, 0, wire.AppendVerdicts(payload[:0], nil))
		}
		if ticked {
			buf = wire.AppendFrame(buf, wire.FrameAlive, 0, nil)
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
}
