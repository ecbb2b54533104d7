package preemption

import (
	"context"
	"time"
)

const (
	// armLimit is how long one question to Azure may wait. The first question to a service that was never asked, or not for
	// a day, turns the events on, and that takes up to two minutes.
	// https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events
	armLimit = 130 * time.Second

	// slowLimit is how long one question to another cloud may wait. A service that takes seconds for each answer is in
	// trouble, as on a host that is about to fail, but it does answer.
	slowLimit = 10 * time.Second
)

// answer is a definite answer: a value, with its ETag where the service gives one, or that there is none.
type answer struct {
	body  []byte
	found bool
	etag  string
}

// asker asks a service one thing, time and again. One goroutine uses it.
//
// The first question that gets no answer in time goes on waiting, beside all later ones, until any of them is answered: if
// each were cut off, a slow service would never be heard. So the late question was always asked after the last answer, and
// no question is left waiting once there is one.
type asker[A any] struct {
	ask   func(ctx context.Context) (A, error)
	limit time.Duration // how long one question may wait

	late *question[A] // nil: none waits
}

// question is a question that is under way.
type question[A any] struct {
	asked   time.Time
	cancel  context.CancelFunc
	replied chan reply[A] // gets one
}

type reply[A any] struct {
	answer A
	err    error
}

// question asks, and may wait longer than the caller does.
func (a *asker[A]) question(ctx context.Context) *question[A] {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.limit)
	q := &question[A]{time.Now(), cancel, make(chan reply[A], 1)}
	go func() {
		said, err := a.ask(ctx)
		q.replied <- reply[A]{said, err}
	}()
	return q
}

// giveUp ends the question and waits for its end.
func (q *question[A]) giveUp() {
	q.cancel()
	<-q.replied
}

// get returns the answer to a new question, or to the late one, whichever comes first before ctx ends, and how long that took since
// the question was asked.
func (a *asker[A]) get(ctx context.Context) (said A, took time.Duration, err error) {
	q := a.question(ctx)
	for {
		var late chan reply[A] // nil: none comes
		if a.late != nil {
			late = a.late.replied
		}
		select {
		case got := <-q.replied:
			q.cancel()
			if got.err == nil {
				a.giveUp()
			}
			return got.answer, time.Since(q.asked), got.err
		case got := <-late:
			asked := a.late.asked
			a.late.cancel()
			a.late = nil
			if got.err != nil {
				continue // q is still to be heard
			}
			q.giveUp()
			return got.answer, time.Since(asked), nil
		case <-ctx.Done():
			if a.late == nil {
				a.late = q
			} else {
				q.giveUp()
			}
			return said, time.Since(q.asked), inTime(ctx, ctx.Err())
		}
	}
}

// giveUp ends the question that still waits, if there is one.
func (a *asker[A]) giveUp() {
	if a.late != nil {
		a.late.giveUp()
		a.late = nil
	}
}
