package migration

import (
	"sync"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// books are what a lane was handed out and nobody has answered for: the blocks of its batch that are not begun, those that are on their
// way, and what room the peer has for more. They have a lock of their own, for the goroutine that sends takes from them, the one that
// receives settles, and a lane that hangs is emptied by others. They do not say what follows for a block: that is the lane's.
type books struct {
	mu       sync.Mutex
	next     []plan.Entry // of the batch that the plan handed out: not begun
	inflight window
	given    uint32    // the last transfer that was written whole: what the cap on the drain holds back is not the peer's fault
	room     plan.Room // that the peer granted and that is not used up
	// A peer that failed before has to answer for one block before it gets many: a window of them would be missing
	// elsewhere until it fails again.
	onProbation bool

	changed chan struct{} // wakes the goroutine that sends, should it wait for answers
}

// handed puts a batch of the plan into the books.
func (b *books) handed(batch []plan.Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = batch
}

// begin counts the next block of the batch as on its way.
func (b *books) begin() (e plan.Entry, transfer uint32, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.next) == 0 {
		return plan.Entry{}, 0, false
	}
	e, b.next = b.next[0], b.next[1:]
	b.room.Add(&e.Block, -e.Bytes())
	return e, b.inflight.add(e), true
}

// notBegun is what is left of the batch.
func (b *books) notBegun() []plan.Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next
}

// takeRest takes what is not begun of the batch off the books.
func (b *books) takeRest() (rest []plan.Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest, b.next = b.next, nil
	return rest
}

// written says that all transfers up to this one are written.
func (b *books) written(transfer uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.given = transfer
}

// owed reports whether the peer has something to answer. The block that is being read does not count: if that is slow, it is this node's
// disk.
func (b *books) owed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inflight.blocks > 0 && b.inflight.settled < b.given
}

// has reports whether a transfer has not been answered.
func (b *books) has(transfer uint32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inflight.has(transfer)
}

// bytes are on their way.
func (b *books) bytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inflight.bytes
}

// open reports whether another block may be on its way. A second block always may, beside one that waits for its receipt and however
// large the two are, or the link would rest at the end of each large block while the peer makes it durable.
func (b *books) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := &b.inflight
	return w.blocks == 0 || !b.onProbation && (w.blocks < 2 || w.bytes < wire.MaxInflightBytes && w.span()+maxBatch <= wire.MaxInflightBlocks)
}

// idle reports whether nothing is on its way.
func (b *books) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inflight.blocks == 0
}

// forget takes a transfer that is broken off off the books, and its block's room at the peer with it; false when it was answered already.
func (b *books) forget(transfer uint32) (e plan.Entry, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, ok = b.inflight.take(transfer); ok {
		b.room.Add(&e.Block, e.Bytes())
	}
	await.Mark(b.changed)
	return e, ok
}

// settle takes what the peer answers for off the books, and returns what has moved, in that space, and what it refused. What it refused for
// another reason than room takes up none of its room.
func (b *books) settle(verdicts []wire.Verdict, space []plan.Entry) (moved []plan.Entry, refused []answered) {
	b.mu.Lock()
	defer b.mu.Unlock()
	moved = space
	for _, v := range verdicts {
		e, ok := b.inflight.take(v.Transfer)
		switch {
		case ok && v.Code == wire.VerdictDurable:
			moved = append(moved, e)
		case ok:
			if v.Code != wire.VerdictFull {
				b.room.Add(&e.Block, e.Bytes())
			}
			refused = append(refused, answered{e, v})
		}
	}
	await.Mark(b.changed)
	return moved, refused
}

type answered struct {
	plan.Entry
	wire.Verdict
}

// roomLeft is what room the peer has for more.
func (b *books) roomLeft() plan.Room {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.room
}

// full says that the peer has no room for a block.
func (b *books) full(e plan.Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.room.Refuses(&e.Block)
}

func (b *books) onTrial() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.onProbation
}

func (b *books) trust() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onProbation = false
}

// empty hands over what nobody will answer for, oldest first (sent), and then what is not begun (rest). It keeps the lock until they have
// returned: whoever else empties the books then finds all of it where it went.
func (b *books) empty(sent func(e plan.Entry), rest func(all []plan.Entry)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.inflight.all() {
		sent(e)
	}
	b.inflight = window{last: b.inflight.last, settled: b.inflight.last}
	rest(b.next)
	b.next = nil
}
