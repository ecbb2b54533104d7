package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// eventComment is how often a comment is written to a stream without events: proxies drop silent streams, and 15 s is what the HTML
// standard suggests (server-sent events, 9.2.7).
const eventComment = 15 * time.Second

// streamEvents sends the events after ?after=PLACE (or Last-Event-ID, which browsers send when they reconnect), or the last ?last=N
// events of the log, and then those to come. ?type=TYPE, which may be repeated, and ?node=NODE filter them.
func (s *web) streamEvents(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	at, err := api.ParsePlace(cmp.Or(r.Header.Get("Last-Event-ID"), query.Get("after"), "0"))
	if err != nil {
		refuseHTTP(w, http.StatusBadRequest, "after: "+err.Error())
		return
	}
	if last := query.Get("last"); last != "" && at == (api.Place{}) {
		n, err := strconv.ParseUint(last, 10, 32)
		if err != nil {
			refuseHTTP(w, http.StatusBadRequest, fmt.Sprintf("last: %q: want how many events", last))
			return
		}
		s.ledger.view(func(m *registry.Registry) { at.Index = m.LastEvent - min(n, m.LastEvent) })
	}
	want := filter{types: query["type"], node: query.Get("node")}
	if err := want.check(); err != nil {
		refuseHTTP(w, http.StatusBadRequest, messageOf(err))
		return
	}
	term, err := s.ledger.lead()
	if err != nil {
		s.turnAway(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		return // else it would follow, and have nobody to write to
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	defer context.AfterFunc(term, cancel)() // the follower goes on after its last place at the next leader

	control := http.NewResponseController(w)
	who, _ := certs.PeerName(*r.TLS) // the door has looked at it
	sub, err := s.audience.join(who, func() { control.SetWriteDeadline(time.Now().Add(-time.Second)) })
	if err != nil {
		refuseHTTP(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer sub.leave()
	p := &page{w: w, control: control, sub: sub, want: want, from: s.ledger.reader(at)}
	defer func() { s.audience.gaps.Add(int64(p.from.gaps)) }()
	p.follow(ctx)
}

// page is one stream of server-sent events.
type page struct {
	w       http.ResponseWriter
	control *http.ResponseController
	sub     *subscriber
	want    filter
	from    *reader
	wrote   bool // since the last tick
}

// follow writes events until ctx ends or a write fails. All events at hand go out in one flush.
func (p *page) follow(ctx context.Context) {
	tick := time.NewTicker(eventComment / 2) // a comment is due at a tick if nothing was written since the tick before
	defer tick.Stop()
	if p.write([]byte(": events follow\n\n")) != nil {
		return
	}
	var frames [][]byte
	for ctx.Err() == nil {
		events, news := p.from.more()
		frames = frames[:0]
		for _, e := range events {
			if p.want.wants(e) {
				frames = append(frames, e.sse())
			}
		}
		switch {
		case len(frames) > 0:
			if p.write(frames...) != nil {
				return
			}
			p.wrote = true
		case len(events) > 0: // all filtered out
		default:
			select {
			case <-news:
			case <-ctx.Done():
			case <-tick.C:
				if !p.wrote && p.write([]byte("id: "+p.from.at.String()+"\n:\n\n")) != nil {
					return
				}
				p.wrote = false
			}
		}
	}
}

// write writes the frames and flushes them once, so that they go out in few packets.
func (p *page) write(frames ...[]byte) error {
	p.sub.begin()
	for _, f := range frames {
		if _, err := p.w.Write(f); err != nil {
			return err
		}
	}
	if err := p.control.Flush(); err != nil {
		return err
	}
	p.sub.end()
	return nil
}
