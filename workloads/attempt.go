package workloads

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Slack is how far a deadline may move without being told: clouds write whole seconds.
const Slack = time.Second

var (
	ErrMoved      = errors.New("the deadline moved")
	ErrSuperseded = errors.New("it no longer holds")
)

// Attempt tells a word once, for as long as until leaves it; false: it does not hold. until is asked anew whenever changes, which is
// asked before, is closed. The error is ErrMoved when the time became another: what goes on by itself, a program, is found again by the
// next attempt. It is ErrSuperseded when the word stopped to hold. What stands in the way meanwhile trouble hears.
func Attempt(ctx context.Context, who Action, w Word, changes func() <-chan struct{}, until func() (time.Time, bool), trouble func(error)) error {
	changed := changes() // before looking: what changes from here on is seen
	end, holds := until()
	if !holds {
		return ErrSuperseded
	}
	bounded, release := context.WithDeadline(ctx, end)
	defer release()
	telling, stop := context.WithCancelCause(bounded)
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-changed:
			case <-telling.Done():
				return
			}
			changed = changes()
			switch now, holds := until(); {
			case !holds:
				stop(ErrSuperseded)
			case now.Sub(end).Abs() > Slack:
				stop(ErrMoved)
			}
		}
	})
	err := who.Tell(hearTrouble(telling, &watching, trouble), w)
	why := context.Cause(telling)
	stop(nil)
	watching.Wait()
	if err != nil && (errors.Is(why, ErrMoved) || errors.Is(why, ErrSuperseded)) {
		return why
	}
	return err
}
