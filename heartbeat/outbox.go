package heartbeat

import (
	"sync"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
)

const (
	// mostQueued bounds the words that wait to be reported: some megabytes, and half a second of the smallest blocks on
	// their way in. Beyond that one full report is cheaper than remembering them.
	mostQueued = 32 << 10
	// manyQueued is how many queued words send a report without waiting for the next beat.
	manyQueued = 1024
)

// Landed queues word that blocks now rest here; it goes out after the next answered beat, or with Report. Call it once Held
// would yield them: what the queue cannot keep is replaced by a full report of what Held yields. It keeps none of the blocks.
func (c *Client) Landed(blocks ...*api.HeldBlock) {
	c.outbox.put(len(blocks), true, func(to *words) {
		for _, b := range blocks {
			to.landed(b)
		}
	})
}

// Gone queues word that blocks no longer rest here, and why, for nodes that look for them. Call it once Held no longer
// yields them. For blocks beyond what the queue can keep, the reason is lost.
func (c *Client) Gone(why string, ids ...string) {
	c.outbox.put(len(ids), false, func(to *words) {
		for _, id := range ids[:min(len(ids), max(0, mostQueued-to.count))] {
			to.gone(id, why)
		}
	})
}

// Report sends what is queued now. Call it when a peer's drain into this node has ended: that peer is about to go, the next
// beat may be ten seconds away in a large fleet, and readers ask where the blocks are.
func (c *Client) Report() { c.outbox.hurry() }

// outbox holds the words about blocks, in their order, until they are reported. While a full report is due it keeps only
// words of gone blocks, up to mostQueued: Held will yield the rest, but cannot say why a block is gone.
type outbox struct {
	mu      sync.Mutex // guards what follows
	words   words
	fullDue bool
	isOpen  bool // the last beat was answered by a coordinator that knows the node

	wake chan struct{} // full: there is something to send, and a coordinator to send it to
}

func newOutbox() *outbox {
	return &outbox{wake: make(chan struct{}, 1)}
}

// put queues n words, of blocks that landed or of gone ones, which add adds.
func (o *outbox) put(n int, landed bool, add func(to *words)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	wasDue := o.fullDue
	if !wasDue && o.words.count+n > mostQueued {
		o.replaceByFull()
	}
	if !landed || !o.fullDue {
		add(&o.words)
	}
	if o.isOpen && !wasDue && (o.fullDue || o.words.count >= manyQueued) {
		await.Mark(o.wake)
	}
}

// hurry sends what is queued without waiting for the next beat.
func (o *outbox) hurry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isOpen && o.words.count > 0 {
		await.Mark(o.wake)
	}
}

// full makes a full report due, and puts back words that could not be told.
func (o *outbox) full(untold words) {
	o.mu.Lock()
	defer o.mu.Unlock()
	untold.follow(o.words)
	o.words = untold
	o.replaceByFull()
}

// open follows every answered beat.
func (o *outbox) open() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isOpen = true
	if o.fullDue || o.words.count > 0 {
		await.Mark(o.wake)
	}
}

// close follows every failed beat.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isOpen = false
}

// take empties the outbox. It returns the queued words, and whether a full report must follow them.
func (o *outbox) take() (full bool, queued words) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.isOpen {
		return false, words{} // what is due stays due
	}
	full, queued = o.fullDue, o.words
	o.fullDue, o.words = false, words{}
	return full, queued
}

func (o *outbox) replaceByFull() {
	o.fullDue = true
	o.words.onlyGone(mostQueued)
}
