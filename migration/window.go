package migration

import (
	"iter"

	"github.com/lifeboat/lifeboat/migration/plan"
)

// window is what a lane has begun to send and the peer has not answered for. Transfers are numbered in a row and are
// answered in nearly that order, so they lie in a ring.
type window struct {
	ring    []plan.Entry // transfer t is at t modulo its length, a power of two
	settled uint32       // all up to this one are answered
	last    uint32       // transfer begun; the first is 1
	blocks  int          // not answered
	bytes   int64        // of those
}

// leastWindow is the ring's length at first: room for one batch.
const leastWindow = maxBatch

// span is how many transfers there are from the oldest that is not answered to the last.
func (w *window) span() int { return int(w.last - w.settled) }

func (w *window) at(transfer uint32) *plan.Entry { return &w.ring[transfer&uint32(len(w.ring)-1)] }

// add gives a block the next number.
func (w *window) add(e plan.Entry) (transfer uint32) {
	if w.span() == len(w.ring) {
		wider := window{ring: make([]plan.Entry, max(2*len(w.ring), leastWindow))}
		for t, e := range w.all() {
			*wider.at(t) = e
		}
		w.ring = wider.ring
	}
	w.last++
	*w.at(w.last) = e
	w.blocks++
	w.bytes += e.Bytes()
	return w.last
}

// has reports whether a transfer has not been answered.
func (w *window) has(transfer uint32) bool {
	return transfer > w.settled && transfer <= w.last && w.at(transfer).ID != ""
}

// take takes a transfer off the books; false when it was answered already, or never begun.
func (w *window) take(transfer uint32) (e plan.Entry, ok bool) {
	if !w.has(transfer) {
		return plan.Entry{}, false
	}
	e, *w.at(transfer) = *w.at(transfer), plan.Entry{}
	w.blocks--
	w.bytes -= e.Bytes()
	for w.settled < w.last && w.at(w.settled+1).ID == "" {
		w.settled++
	}
	return e, true
}

// all yields what is not answered in the order in which it was begun.
func (w *window) all() iter.Seq2[uint32, plan.Entry] {
	return func(yield func(uint32, plan.Entry) bool) {
		for t := w.settled + 1; t <= w.last; t++ {
			if w.has(t) && !yield(t, *w.at(t)) {
				return
			}
		}
	}
}
