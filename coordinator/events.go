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

// evGap stands for events that a follower asked for and that are no longer kept, or never happened in this log: the follower lists the
// nodes anew and goes on after the gap's place.
const evGap = "Gap"

const (
	// eventBatch bounds how many events a reader takes at a time.
	eventBatch = 256

	// maxFilter bounds the types that a reader asks for: there are some forty.
	maxFilter = 64
)

// told is an event on its way to followers. It is encoded once for each protocol, no matter how many followers read it.
type told struct {
	registry.Event

	page  sync.Once
	frame []byte // as a server-sent event

	call sync.Once
	msg  grpc.PreparedMsg // as gRPC message
	err  error
}

// sse is the event in the format of the HTML standard (server-sent events, 9.2.5).
func (t *told) sse() []byte {
	t.page.Do(func() {
		data, err := json.Marshal(api.EventToJSON(eventTo(t.Event)))
		if err != nil {
			data = []byte("{}") // cannot happen: it has numbers, strings and a time that was read from JSON
		}
		t.frame = fmt.Appendf(nil, "id: %s\nevent: %s\ndata: %s\n\n", t.Place(), t.Type, data)
	})
	return t.frame
}

// message is the event as a gRPC message, for any stream of this server: all have the same codec and no compression.
func (t *told) message(stream grpc.ServerStream) (*grpc.PreparedMsg, error) {
	t.call.Do(func() { t.err = t.msg.Encode(stream, eventTo(t.Event)) })
	return &t.msg, t.err
}

// filter says which events a reader wants.
type filter struct {
	types []string // none: all
	node  string   // empty: all
}

func (f filter) check() error {
	return cmp.Or(checkCount("types", len(f.types), maxFilter), checkEach(f.types, checkType), checkWord("node", f.node, maxName))
}

// wants reports whether e is for this reader. A gap is for every reader.
func (f filter) wants(e *told) bool {
	if e.Type == evGap {
		return true
	}
	return (f.node == "" || e.Node == f.node) && (len(f.types) == 0 || slices.Contains(f.types, e.Type))
}

// reader is one follower's position in the stream of events. One goroutine uses it.
type reader struct {
	replica *replica
	at      api.Place // of the last event that was taken
	number  uint64    // of the next event in the hub; 0: find has to look it up
	gaps    int       // how many it was sent
	forgave api.Place // the hub's forgot when this reader last looked: soft events up to there cause no gap again
}

func (l *ledger) reader(at api.Place) *reader { return &reader{replica: l.fsm, at: at} }

// more returns the next events, oldest first, each once. If there are none, news is closed as soon as there are.
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
	return r.hub.news.Next()
}

// find looks up the reader's position by place instead of by number: at the start, and when the hub no longer has the next event.
// Events that are older than the hub's are read from the log.
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
		return append(events, here...), h.news.Next()
	}
	for _, e := range missing[:min(len(missing), eventBatch)] {
		events = append(events, &told{Event: e})
	}
	return events, h.news.Next()
}

// gap is the event for a reader whose place is older than all that is kept, or not of this fleet's history; nil: it can go on.
func (r *reader) gap(m *registry.Registry, h *hub) *told {
	if r.at == (api.Place{}) {
		return nil // a reader from the beginning gets what there is
	}
	kept := m.Events
	var before uint64 // the index before that of the oldest kept event
	if len(kept) > 0 {
		before = kept[0].Index - 1
	}
	switch at := r.at; {
	case at.Index < before || strange(at, kept, m.LastEvent, h.term):
		return gapAfter(at, api.Place{Index: before}, kept)
	case h.forgot != r.forgave && at.Compare(h.forgot) < 0:
		return gapAfter(at, at, kept) // only soft events are missing: the log has all of its own
	}
	return nil
}

// strange reports whether at is a place that this log never had: the fleet's coordinators may have been set up anew, or
// restored from an old snapshot, since the reader was there.
func strange(at api.Place, kept []registry.Event, last, term uint64) bool {
	i, ok := slices.BinarySearchFunc(kept, at.Index, byIndex)
	if ok && kept[i].Term == at.Term {
		return false // the log has this very event; a restored log may have terms above the present one
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
