package heartbeat

import (
	"slices"
	"sync"

	"github.com/lifeboat/lifeboat/api"
)

const (
	// mostQueued bounds the words that wait to be reported: some megabytes, and half a second of the smallest blocks on
	// their way in. Beyond that one full report is cheaper than remembering them.
	mostQueued = 32 << 10
	// manyQueued is how many queued words send a report without waiting for the next beat.
	manyQueued = 1024
)

// Landed queues word that blocks now rest here; it goes out after the next answered beat, or with Report. Call it once Held
// would yield them: what the queue cannot keep is replaced by a full report of what Held yields. The blocks must not change
// afterwards.
func (c *Client) Landed(blocks ...*api.HeldBlock) {
	c.outbox.put(len(blocks), func(i int) word { return word{id: blocks[i].GetId(), held: blocks[i]} })
}

// Gone queues word that blocks no longer rest here, and why, for nodes that look for them. Call it once Held no longer
// yields them. For blocks beyond what the queue can keep, the reason is lost.
func (c *Client) Gone(why string, ids ...string) {
	c.outbox.put(len(ids), func(i int) word { return word{id: ids[i], why: why} })
}

// Report sends what is queued now. Call it when a peer's drain into this node has ended: that peer is about to go, the next
// beat may be ten seconds away in a large fleet, and readers ask where the blocks are.
func (c *Client) Report() { c.outbox.hurry() }

// word is what became of a block here.
type word struct {
	id   string
	held *api.HeldBlock // nil: gone
	why  string         // it is gone
}

// outbox holds the words about blocks, in their order, until they are reported. While a full report is due it keeps only
// words of gone blocks, up to mostQueued: Held will yield the rest, but cannot say why a block is gone.
type outbox struct {
	mu      sync.Mutex // guards what follows
	words   []word
	fullDue bool
	isOpen  bool // the last beat was answered by a coordinator that knows the node

	wake chan struct{} // full: there is something to send, and a coordinator to send it to
}

func newOutbox() *outbox {
	return &outbox{wake: make(chan struct{}, 1)}
}

// put queues n words. It calls word at most once for each.
func (o *outbox) put(n int, word func(i int) word) {
	o.mu.Lock()
	defer o.mu.Unlock()
	wasDue := o.fullDue
	if !wasDue && len(o.words)+n > mostQueued {
		o.replaceByFull()
	}
	if !o.fullDue {
		o.words = slices.Grow(o.words, n)
	}
	for i := 0; i < n && len(o.words) < mostQueued; i++ {
		if w := word(i); w.held == nil || !o.fullDue {
			o.words = append(o.words, w)
		}
	}
	if o.isOpen && !wasDue && (o.fullDue || len(o.words) >= manyQueued) {
		mark(o.wake)
	}
}

// hurry sends what is queued without waiting for the next beat.
func (o *outbox) hurry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isOpen && len(o.words) > 0 {
		mark(o.wake)
	}
}

// full makes a full report due, and puts back words that could not be told.
func (o *outbox) full(untold ...word) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.words = slices.Concat(untold, o.words)
	o.replaceByFull()
}

// open follows every answered beat.
func (o *outbox) open() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isOpen = true
	if o.fullDue || len(o.words) > 0 {
		mark(o.wake)
	}
}

// close follows every failed beat.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isOpen = false
}

// take empties the outbox. It returns the queued words, and whether a full report must follow them.
func (o *outbox) take() (full bool, words []word) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.isOpen {
		return false, nil // what is due stays due
	}
	full, words = o.fullDue, o.words
	o.fullDue, o.words = false, nil
	return full, words
}

func (o *outbox) replaceByFull() {
	o.fullDue, o.words = true, slices.DeleteFunc(o.words, func(w word) bool { return w.held != nil })
	o.words = o.words[:min(len(o.words), mostQueued)]
}
