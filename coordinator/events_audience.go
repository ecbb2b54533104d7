package coordinator

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/certs"
)

const (
	// writePatience is how long a subscriber may take nothing before it is cut off.
	writePatience = 30 * time.Second

	// maxSubscribers bounds how many may follow events at once. Each takes some 30 KB over TLS.
	maxSubscribers = 4096
	// mostOfName is how many of them may have one name: a program that forgets its streams leaves room for others.
	mostOfName = maxSubscribers / 2
)

// audience is all subscribers to events of this coordinator. One clock cuts off those that are stuck: with a timer each, a thousand
// timers would be set for every event.
type audience struct {
	turn atomic.Int64 // of the clock, from 1
	gaps atomic.Int64 // how many gaps subscribers were sent

	mu  sync.Mutex // guards all
	all map[*subscriber]struct{}

	senders sync.WaitGroup // goroutines that send, which may outlast their handlers
}

// subscriber is one follower of events.
type subscriber struct {
	audience *audience
	who      certs.Name
	sends    atomic.Int64 // the turn in which the present send began; 0: nothing is being sent

	mu  sync.Mutex // guards cut
	cut func()     // ends a send that is stuck; nil: the subscriber has left, or was cut off
}

func newAudience() *audience {
	a := &audience{all: map[*subscriber]struct{}{}}
	a.turn.Store(1)
	return a
}

// join adds a subscriber of that name, which must leave when it is done. cut must end a send that is stuck.
func (a *audience) join(who certs.Name, cut func()) (*subscriber, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all) >= maxSubscribers {
		return nil, fmt.Errorf("%d follow events of this coordinator already, and no more can: try again later, or have one of them pass events on", len(a.all))
	}
	of := 0
	for s := range a.all {
		if s.who == who {
			of++
		}
	}
	if of >= mostOfName {
		return nil, fmt.Errorf("%d of %s follow events of this coordinator already: does a program forget to end its streams?", of, who)
	}
	s := &subscriber{audience: a, who: who, cut: cut}
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

// begin and end enclose each send.
func (s *subscriber) begin() { s.sends.Store(s.audience.turn.Load()) }
func (s *subscriber) end()   { s.sends.Store(0) }

func (a *audience) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.all)
}

// watch cuts off subscribers that are stuck, until ctx ends.
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
