package diskio

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/await"
)

// A node at peace looks through its stores and its vault from time to time, without getting in the way of its other work.

const (
	// A look works a fifth of the time: lookStint, then lookRest. After it comes a pause of lookPause times what it worked, LeastLook
	// at least: a fifth of a percent of a processor. But changes should not wait long for the next look. So a pause beyond enoughPause
	// is cut to that, or to hurryPause times what the look worked, if that is longer: two percent at most.
	lookStint   = 5 * time.Millisecond
	lookRest    = 4 * lookStint
	lookPause   = 500
	hurryPause  = 50
	enoughPause = 5 * time.Minute
	LeastLook   = time.Minute
	// FirstLook waits until a node that starts has started.
	FirstLook = 10 * time.Second
)

// AtLeisure looks again and again until ctx ends. look returns for how long it worked.
func AtLeisure(ctx context.Context, look func(context.Context) time.Duration) {
	for pause := FirstLook; await.Sleep(ctx, pause); {
		worked := look(ctx)
		pause = max(LeastLook, min(lookPause*worked, enoughPause), hurryPause*worked)
	}
}

// InStints runs a look in short stints. The look calls rest wherever it can: rest pauses when it is time to, and says whether to
// go on. While away says that a disk does not answer, a look that calls no rest for Overdue hangs: it is left behind, with a ctx that
// has ended.
func InStints(ctx context.Context, away, leaves func() bool, look func(ctx context.Context, rest func() bool)) (worked time.Duration, hangs bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var beat atomic.Int64
	ended := make(chan time.Duration, 1)
	go func() {
		began, rested := time.Now(), time.Duration(0)
		woke := began
		look(ctx, func() bool {
			beat.Add(1)
			now := time.Now()
			if now.Sub(woke) < lookStint {
				return ctx.Err() == nil
			}
			await.Sleep(ctx, lookRest)
			woke = time.Now()
			rested += woke.Sub(now)
			return ctx.Err() == nil && !leaves()
		})
		ended <- time.Since(began) - rested
	}()
	hung := make(chan struct{})
	defer Watch(Overdue, &beat, away, func() { close(hung) })()
	select {
	case worked := <-ended:
		return worked, false
	case <-hung:
		return 0, true
	case <-ctx.Done():
		select {
		case <-ended:
		case <-time.After(Suspect):
		}
		return 0, false
	}
}
