package preemption

import (
	"context"
	"net/http"
	"time"
)

// armLimit is how long one question may wait. The first to a service that was never asked, or not for a day, is what
// turns the events on, and takes up to two minutes for it.
// https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events
const armLimit = 130 * time.Second

// question is a request for the list of events that is under way.
type question struct {
	cancel context.CancelFunc
	answer chan answer // gets one
}

type answer struct {
	body []byte
	err  error
}

// question asks for the list, for longer than the caller may have the time to wait.
func (a *Azure) question(ctx context.Context) *question {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), armLimit)
	q := &question{cancel, make(chan answer, 1)}
	go func() {
		body, err := a.ask(ctx, http.MethodGet, azureEvents, nil)
		q.answer <- answer{body, err}
	}()
	return q
}

// giveUp ends the question and waits for its end.
func (q *question) giveUp() {
	q.cancel()
	<-q.answer
}

// events asks for the list of events. The first question that gets no answer before ctx ends goes on waiting, beside all
// later ones, until any of them is answered: were each cut off, a service that takes its time would never be heard. So a
// late question is always newer than the last answer, and none is left when there is news.
func (a *Azure) events(ctx context.Context) ([]byte, error) {
	q := a.question(ctx)
	for {
		var late chan answer // nil: none comes
		if a.late != nil {
			late = a.late.answer
		}
		select {
		case got := <-q.answer:
			q.cancel()
			if got.err == nil {
				a.giveUpLate()
			}
			return got.body, got.err
		case got := <-late:
			a.late.cancel()
			a.late = nil
			if got.err != nil {
				continue // q is still to be heard
			}
			q.giveUp()
			return got.body, nil
		case <-ctx.Done():
			if a.late == nil {
				a.late = q
			} else {
				q.giveUp()
			}
			return nil, inTime(ctx, ctx.Err())
		}
	}
}

// giveUpLate ends the question that still waits, if there is one.
func (a *Azure) giveUpLate() {
	if a.late != nil {
		a.late.giveUp()
		a.late = nil
	}
}
