package diskio

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The pause after a look is a share of what it worked, and no longer than five minutes as long as that is a fiftieth.
func TestPauseBetweenLooks(t *testing.T) {
	for worked, want := range map[time.Duration]time.Duration{
		time.Millisecond:        time.Minute,
		200 * time.Millisecond:  100 * time.Second,
		1440 * time.Millisecond: 5 * time.Minute, // 100,000 lines
		15 * time.Second:        750 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			var looked []time.Time
			AtLeisure(ctx, func(context.Context) time.Duration {
				if looked = append(looked, time.Now()); len(looked) == 2 {
					stop()
				}
				return worked
			})
			if got := looked[1].Sub(looked[0]); got != want {
				t.Errorf("after %v of work: got a pause of %v, want %v", worked, got, want)
			}
		})
	}
}
