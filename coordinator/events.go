package coordinator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// evGap stands for events that were asked for and are no longer kept, or were never told here: whoever follows lists the
// nodes anew and goes on after the gap's place.
const evGap = "Gap"

const (
	// eventBatch bounds what a reader takes at a time.
	eventBatch = 256

	// maxFilter bounds the types that a reader asks for: there are some twenty.
	maxFilter = 64
)

// told is an event on its way out. It is written once for each way that it goes, whoever reads it.
type told struct {
	registry.Event

	page  sync.Once
	frame []byte // as server-sent event

	call sync.Once
	msg  grpc.PreparedMsg // as gRPC message
	err  error
}

// sse is the event in the words of the HTML standard (server-sent events, 9.2.5).
func (t *told) sse() []byte {
	t.page.Do(func() {
		data, err := json.Marshal(api.EventToJSON(eventTo(t.Event)))
		if err != nil {
			data = []byte("{}") // numbers, strings and a time that was read from JSON can be written
		}
		t.frame = fmt.Appendf(nil, "id: %s\nevent: %s\ndata: %s\n\n", t.Place(), t.Type, data)
	})
	return t.frame
}

// message is the event as every stream of this server sends it: they all have the same codec and no compression.
func (t *told) message(stream grpc.ServerStream) (*grpc.PreparedMsg, error) {
	t.call.Do(func() { t.err = t.msg.Encode(stream, eventTo(t.Event)) })
	return &t.msg, t.err
}

// filter is what a reader wants to hear of.
type filter struct {
	types []string // none: all
	node  string   // empty: all
}

func (f filter) check() error {
	if err := checkCount("types", len(f.types), maxFilter); err != nil {
		return err
	}
	for _, t := range f.types {
		if err := checkType(t); err != nil {
			return err
		}
	}
	return checkWord("node", f.node, maxName)
}

// wants says whether e is for this reader. A gap is for everybody.
func (f filter) wants(e *told) bool {
	if e.Type == evGap {
		return true
	}
	return (f.node == "" || e.Node == f.node) && (len(f.types) == 0 || slices.Contains(f.types, e.Type))
}

// reader is one place in the stream of events. One goroutine uses it.
type reader struct {
	replica *replica
	at      api.Place // of the last event that was taken
	number  uint64    // of the next event in the hub; 0: it has yet to be found there
	gaps    int       // that it was told of
	forgave api.Place // up to where it was told that a leader's own events are gone
}

// more returns the events that follow, oldest first, each once. Where there are none, news is closed when there are.
func (r *reader) more() (events []*told, news <-chan struct{}) {
	events, news, ok := r.replica.hub.from(r.number)
	if !ok {
		events, news = r.find()
	} else {
		r.number += uint64(len(events))
	}
	if n := len(events); n > 0 {
		r.at = events[n-1].Place()
	}
	return events, news
}

// coming is closed when there is a newer event than now.
func (r *replica) coming() <-chan struct{} {
	r.hub.mu.RLock()
	defer r.hub.mu.RUnlock()
	return r.hub.news
}

// find goes on by place rather than by number: at the start, and when the hub no longer has what comes next. What is in
// the log is then read from there.
func (r *reader) find() (events []*told, news <-chan struct{}) {
	r.replica.mu.RLock()
	defer r.replica.mu.RUnlock()
	h := r.replica.hub
	h.mu.RLock()
	defer h.mu.RUnlock()
	if gap := r.gap(r.replica.machine, h); gap != nil {
		r.gaps++
		r.at, events = gap.Place(), append(events, gap)
	}
	r.number, r.forgave = 0, h.forgot
	kept := r.replica.machine.Events
	end := after(kept, h.before())
	missing := kept[min(after(kept, r.at.Index), end):end]
	if len(missing) == 0 {
		number := h.numberAfter(r.at)
		here := h.events[number-h.first:]
		here = here[:min(len(here), eventBatch)]
		r.number = number + uint64(len(here))
		return append(events, here...), h.news
	}
	for _, e := range missing[:min(len(missing), eventBatch)] {
		events = append(events, &told{Event: e})
	}
	return events, h.news
}

// gap is what to tell a reader whose place is older than all that is kept, or not of this fleet's history; nil: it can go on.
func (r *reader) gap(m *registry.Registry, h *hub) *told {
	if r.at == (api.Place{}) {
		return nil // whoever begins gets what there is
	}
	kept := m.Events
	var before uint64 // the index before the oldest that is kept
	if len(kept) > 0 {
		before = kept[0].Index - 1
	}
	switch at := r.at; {
	case at.Index < before || strange(at, kept, m.LastEvent, h.term):
		return gapAfter(at, api.Place{Index: before}, kept)
	case h.forgot != r.forgave && at.Compare(h.forgot) < 0:
		return gapAfter(at, at, kept) // the log has all of its own
	}
	return nil
}

// strange says whether at is a place that this log never had: a fleet's coordinators may have been set up anew, or
// restored from an old snapshot.
func strange(at api.Place, kept []registry.Event, last, term uint64) bool {
	i, ok := slices.BinarySearchFunc(kept, at.Index, byIndex)
	if ok && kept[i].Term == at.Term {
		return false // also where the log that was restored had terms above those that came then
	}
	if at.Index > last || term > 0 && at.Term > term {
		return true
	}
	if !ok || at.Term == 0 {
		return false
	}
	return kept[i].Term > at.Term || at.Soft == 0 && kept[i].Term != at.Term
}

func gapAfter(lost, place api.Place, kept []registry.Event) *told {
	e := registry.Event{Index: place.Index, Term: place.Term, Soft: place.Soft, Type: evGap, Data: map[string]string{"after": lost.String(), "list": "nodes"}}
	if len(kept) > 0 {
		e.Time = kept[0].Time
	}
	return &told{Event: e}
}

// after counts the kept events up to an index.
func after(kept []registry.Event, index uint64) int {
	n, found := slices.BinarySearchFunc(kept, index, byIndex)
	if found {
		n++
	}
	return n
}

func byIndex(e registry.Event, index uint64) int { return cmp.Compare(e.Index, index) }
