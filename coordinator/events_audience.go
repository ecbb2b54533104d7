package coordinator

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// A reader that takes nothing for this long is cut off.
	writePatience = 30 * time.Second

	// maxSubscribers bounds who may follow events at once: some 30 KB each over TLS.
	maxSubscribers = 4096
)

// audience is all who follow events of this coordinator. Who takes nothing is cut off by one clock for all: a timer for
// each would be set a thousand times for every event.
type audience struct {
	turn atomic.Int64 // of the clock, from 1
	gaps atomic.Int64 // that subscribers were told of

	mu  sync.Mutex // guards all
	all map[*subscriber]struct{}

	senders sync.WaitGroup // of streams whose handlers need not wait for them
}

// subscriber is one who follows.
type subscriber struct {
	audience *audience
	sends    atomic.Int64 // the turn in which what is being sent was begun; 0: nothing is

	mu  sync.Mutex // guards cut
	cut func()     // ends a send that is stuck; nil: it has left
}

func newAudience() *audience {
	a := &audience{all: map[*subscriber]struct{}{}}
	a.turn.Store(1)
	return a
}

// join adds a subscriber, whose stuck send cut ends. It leaves when it is done.
func (a *audience) join(cut func()) (*subscriber, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all) >= maxSubscribers {
		return nil, fmt.Errorf("%d follow events of this coordinator already, and no more can: try again later, or have one of them pass events on", len(a.all))
	}
	s := &subscriber{audience: a, cut: cut}
	a.all[s] = struct{}{}
	return s, nil
}

func (s *subscriber) leave() {
	s.audience.mu.Lock()
	delete(s.audience.all, s)
	s.audience.mu.Unlock()
	s.mu.Lock()
	s.cut = nil
	s.mu.Unlock()
}

// begin and end are around each send.
func (s *subscriber) begin() { s.sends.Store(s.audience.turn.Load()) }
func (s *subscriber) end()   { s.sends.Store(0) }

func (a *audience) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.all)
}

// watch cuts off who is stuck, until ctx ends.
func (a *audience) watch(ctx context.Context) error {
	return every(ctx, writePatience/2, func() { a.cutStuck(a.turn.Add(1)) })
}

func (a *audience) cutStuck(turn int64) {
	a.mu.Lock()
	var stuck []*subscriber
	for s := range a.all {
		if began := s.sends.Load(); began != 0 && turn-began >= 3 {
			stuck = append(stuck, s)
		}
	}
	a.mu.Unlock()
	for _, s := range stuck {
		s.mu.Lock()
		if s.cut != nil {
			s.cut()
			s.cut = nil
		}
		s.mu.Unlock()
	}
}
