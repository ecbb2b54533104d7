package coordinator

import (
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// hubKept is how many of the newest events are at hand for all readers, written and ready to send: some 4 MB in a fleet
// where that much happens. Who is further behind reads the log.
const hubKept = 4096

// hub is where those who follow find the newest events, of the log and of this leader alone, in the order of their places.
// Readers take what they have yet to see and send it without holding anything, so that a slow one is slow alone; one
// closed channel wakes all that wait.
type hub struct {
	mu     sync.RWMutex // guards all below; taken after a replica's
	events []*told
	first  uint64        // number of events[0]; numbers have no gaps
	news   chan struct{} // closed when there are more
	last   uint64        // index of the last event of the log
	term   uint64        // of this coordinator's time as the leader; 0: it never led
	soft   uint64        // how many events of its own the leader told behind the last one of the log
	forgot api.Place     // of the newest event of a leader's own that is no longer at hand
}

func newHub() *hub { return &hub{first: 1, news: make(chan struct{})} }

// publish tells events of the log.
func (h *hub) publish(events []registry.Event) {
	if len(events) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range events {
		h.events = append(h.events, &told{Event: e})
	}
	h.last, h.soft = events[len(events)-1].Index, 0
	h.wake()
}

// publishSoft tells events of the leader's own, in the name of its term.
func (h *hub) publishSoft(events ...registry.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range events {
		h.soft++
		e.Term, e.Index, e.Soft = h.term, h.last, h.soft
		h.events = append(h.events, &told{Event: e})
	}
	h.wake()
}

// wake lets readers know, and forgets what is too much. What readers took of the slice stays as it is.
func (h *hub) wake() {
	if n := len(h.events) - hubKept; n >= hubKept/4 {
		for _, e := range h.events[:n] {
			if e.Soft > 0 {
				h.forgot = e.Place()
			}
		}
		h.events, h.first = slices.Clone(h.events[n:]), h.first+uint64(n)
	}
	close(h.news)
	h.news = make(chan struct{})
}

// enter begins a time as the leader. Events of its own are counted on when the same time goes on.
func (h *hub) enter(term uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.term != term {
		h.term, h.soft = term, 0
	}
}

// reset forgets all: the log was replaced by another, whose last event has the index.
func (h *hub) reset(last uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.first += uint64(len(h.events)) + 1 // no reader's number is one of a later event
	h.events, h.last, h.soft = nil, last, 0
	h.wake()
}

// from returns events by number. Not ok: that number is not here any more, or never was.
func (h *hub) from(number uint64) (events []*told, news <-chan struct{}, ok bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if number < h.first {
		return nil, nil, false
	}
	events = h.events[number-h.first:]
	return events[:min(len(events), eventBatch)], h.news, true
}

// before is the index of the last event of the log that is older than all here. Called with mu held.
func (h *hub) before() uint64 {
	if len(h.events) == 0 {
		return h.last
	}
	oldest := h.events[0]
	if oldest.Soft > 0 {
		return oldest.Index
	}
	return oldest.Index - 1
}

// numberAfter is the number of the first event after a place. Called with mu held.
func (h *hub) numberAfter(at api.Place) uint64 {
	return h.first + uint64(sort.Search(len(h.events), func(i int) bool { return h.events[i].Place().Compare(at) > 0 }))
}

// tellSoft tells those who follow what this leader saw for itself and the log does not have: no other leader tells it
// again. One that leads no more tells nothing.
func (f *fleet) tellSoft(what, node string, data map[string]string) {
	f.tellSoftly([]registry.Event{{Type: what, Node: node, Data: data}})
}

// tellSoftly is tellSoft for some at once.
func (f *fleet) tellSoftly(events []registry.Event) {
	if term, _ := f.ledger.inOffice(); term == nil || len(events) == 0 {
		return
	}
	now := time.Now().UTC().Round(0)
	for i := range events {
		events[i].Time = now
		f.metrics.saw(events[i])
	}
	f.ledger.fsm.hub.publishSoft(events...)
}
