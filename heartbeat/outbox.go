package heartbeat

import (
	"slices"
	"sync"

	"github.com/lifeboat/lifeboat/api"
)

const (
	// mostQueued bounds the words that wait to be reported: some megabytes, and half a second of the smallest blocks on their
	// way in. Above it one full report is cheaper than remembering them.
	mostQueued = 32 << 10
	// manyQueued is when a report no longer waits for the next beat.
	manyQueued = 1024
)

// Landed queues word that blocks now rest here; it goes out after the next answered beat, or with Report. Call it once Held
// would yield them: what the queue cannot keep is replaced by a full report of what Held yields. The blocks must not change
// afterwards.
func (c *Client) Landed(blocks ...*api.HeldBlock) {
	c.outbox.put(len(blocks), func(i int) word { return word{id: blocks[i].GetId(), held: blocks[i]} })
}

// Gone queues word that blocks no longer rest here, and why, for who asks for them. Call it once Held no longer yields them. Of
// more than the queue can keep it is not said why.
func (c *Client) Gone(why string, ids ...string) {
	c.outbox.put(len(ids), func(i int) word { return word{id: ids[i], why: why} })
}

// Report sends what is queued now. For when a drain has ended here: its node is about to go, the next beat may be ten seconds
// away in a large fleet, and readers ask where the blocks are.
func (c *Client) Report() { c.outbox.hurry() }

// word is what became of a block here.
type word struct {
	id   string
	held *api.HeldBlock // nil: gone
	why  string         // it is
}

// outbox holds what was said of blocks, in that order, until it is reported. While a full report is due it keeps only what is
// gone, as long as that is not too much: what Held will yield includes the rest, and says nothing of why.
type outbox struct {
	mu      sync.Mutex // guards what follows
	words   []word
	fullDue bool
	isOpen  bool // the last beat was answered by a coordinator that knows the node

	wake chan struct{} // full: there is something to send, and someone to send it to
}

func newOutbox() *outbox {
	return &outbox{wake: make(chan struct{}, 1)}
}

// put takes in n words, each of which it asks for once.
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

// hurry does not wait for the next beat.
func (o *outbox) hurry() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isOpen && len(o.words) > 0 {
		mark(o.wake)
	}
}

// full makes a full report due, in the stead of words that could not be told.
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

// take empties the outbox: the words that were queued, and whether a full report is to follow them.
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
