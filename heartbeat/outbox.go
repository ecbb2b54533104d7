package heartbeat

import (
	"sync"

	"github.com/lifeboat/lifeboat/api"
)

const (
	// mostQueued bounds the blocks that wait to be reported; above it one full report is cheaper than remembering them.
	mostQueued = 8192
	// manyQueued is when a report no longer waits for the next beat.
	manyQueued = 1024
)

// Landed queues word that blocks now rest here; it goes out after the next answered beat. Call it once Held would yield
// them: what the queue cannot keep is replaced by a full report of what Held yields. The blocks must not change afterwards.
func (c *Client) Landed(blocks ...*api.HeldBlock) {
	for _, b := range blocks {
		c.outbox.put(b.GetId(), b)
	}
}

// Gone queues word that blocks no longer rest here. Call it once Held no longer yields them.
func (c *Client) Gone(ids ...string) {
	for _, id := range ids {
		c.outbox.put(id, nil)
	}
}

// outbox holds the last word on each block until it is reported. While a full report is due it keeps nothing: what Held
// will yield includes it.
type outbox struct {
	mu      sync.Mutex                // guards what follows
	last    map[string]*api.HeldBlock // by id; nil: gone
	fullDue bool
	isOpen  bool // the last beat was answered by a coordinator that knows the node

	wake chan struct{} // full: there is something to send, and someone to send it to
}

func newOutbox() *outbox {
	return &outbox{last: make(map[string]*api.HeldBlock), wake: make(chan struct{}, 1)}
}

func (o *outbox) put(id string, held *api.HeldBlock) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fullDue {
		return
	}
	if o.last[id] = held; len(o.last) > mostQueued {
		o.replaceByFull()
	}
	if o.isOpen && (o.fullDue || len(o.last) >= manyQueued) {
		o.rouse()
	}
}

// full makes a full report due.
func (o *outbox) full() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.replaceByFull()
}

// open follows every answered beat.
func (o *outbox) open() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isOpen = true
	if o.fullDue || len(o.last) > 0 {
		o.rouse()
	}
}

// close follows every failed beat.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isOpen = false
}

// take empties the outbox: full, or the last words that were queued.
func (o *outbox) take() (full bool, last map[string]*api.HeldBlock) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.isOpen {
		return false, nil // what is due stays due
	}
	full, last = o.fullDue, o.last
	o.fullDue, o.last = false, make(map[string]*api.HeldBlock)
	return full, last
}

func (o *outbox) replaceByFull() {
	o.fullDue = true
	clear(o.last)
}

func (o *outbox) rouse() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}
