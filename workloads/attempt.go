package workloads

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Slack is how far a deadline may move without being told again: clouds write whole seconds.
const Slack = time.Second

var (
	ErrMoved      = errors.New("the deadline moved")
	ErrSuperseded = errors.New("it no longer holds")
)

// Attempt tells a word once, until the time that until returns; false from until means that the word does not hold. Whenever
// the channel of changes is closed it asks until again. If the time has moved Attempt ends with ErrMoved: the next attempt
// finds what goes on by itself, such as a program. If the word no longer holds it ends with ErrSuperseded. trouble is called
// with what hinders the telling meanwhile.
func Attempt(ctx context.Context, who Action, w Word, changes func() <-chan struct{}, until func() (time.Time, bool), trouble func(error)) error {
	changed := changes() // before until, so that no later change is missed
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
