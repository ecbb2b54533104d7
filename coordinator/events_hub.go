package coordinator

import (
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// hubKept is how many of the newest events are in memory for all readers, encoded and ready to send: some 4 MB if that many
// happened. A reader that is further behind reads the log.
const hubKept = 4096

// hub has the newest events for followers, both those of the log and this leader's soft ones, in the order of their places.
// Readers take a part of the slice and send it without holding a lock, so a slow reader delays no other. Closing one channel wakes
// all readers that wait.
type hub struct {
	mu     sync.RWMutex // guards all below; taken after a replica's
	events []*told
	first  uint64    // number of events[0]; numbers have no gaps
	last   uint64    // index of the last event of the log
	term   uint64    // the last term in which this coordinator led; 0: it never did
	soft   uint64    // how many soft events there were since the last event of the log
	forgot api.Place // of the newest soft event that is no longer here

	news await.News // there are more
}

func newHub() *hub { return &hub{first: 1} }

// publish adds events of the log.
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

// publishSoft adds soft events of this leader, under its term.
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

// wake wakes the readers, and drops the oldest events if there are too many. It copies the slice, so parts that readers have taken do not
// change.
func (h *hub) wake() {
	if n := len(h.events) - hubKept; n >= hubKept/4 {
		for _, e := range h.events[:n] {
			if e.Soft > 0 {
				h.forgot = e.Place()
			}
		}
		h.events, h.first = slices.Clone(h.events[n:]), h.first+uint64(n)
	}
	h.news.Tell()
}

// enter begins a term as the leader. If it is the same term as before, soft events are numbered on.
func (h *hub) enter(term uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.term != term {
		h.term, h.soft = term, 0
	}
}

// reset drops all events: a snapshot has replaced the log, and its last event has the index last.
func (h *hub) reset(last uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.first += uint64(len(h.events)) + 1 // a number that a reader has must not be that of a later event
	h.events, h.last, h.soft = nil, last, 0
	h.wake()
}

// from returns the events from a number on. ok is false if the event of that number is no longer here, or never was.
func (h *hub) from(number uint64) (events []*told, news <-chan struct{}, ok bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if number < h.first {
		return nil, nil, false
	}
	events = h.events[number-h.first:]
	return events[:min(len(events), eventBatch)], h.news.Next(), true
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

// publisher sends followers soft events: what this leader observed and what is not in the log, so no other leader tells it again. A coordinator
// that does not lead tells nothing.
type publisher struct {
	ledger  *ledger
	metrics *metrics
}

func (p *publisher) tell(what, node string, data map[string]string) {
	p.tellAll([]registry.Event{{Type: what, Node: node, Data: data}})
}

// tellAll is tell for several events at once.
func (p *publisher) tellAll(events []registry.Event) {
	if term, _ := p.ledger.inOffice(); term == nil || len(events) == 0 {
		return
	}
	now := time.Now().UTC().Round(0)
	for i := range events {
		events[i].Time = now
		p.metrics.saw(events[i])
	}
	p.ledger.fsm.hub.publishSoft(events...)
}
