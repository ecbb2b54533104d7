package diskio

import (
	"math"
	"sync/atomic"
	"time"
)

// Moment is when something was done last, which one goroutine notes and others ask about. A clock that is set amid that, as one is that
// was found to be wrong, changes nothing: what is as old as that is what does not come back.
type Moment struct{ sinceStart atomic.Int64 } // nanoseconds; 0: never

// epoch is what a moment is counted from, for it must fit a word.
var epoch = time.Now()

// Note says that it was done then.
func (m *Moment) Note(at time.Time) { m.sinceStart.Store(int64(at.Sub(epoch))) }

// Ago is how long ago that was; for ever if it never was.
func (m *Moment) Ago(now time.Time) time.Duration {
	at := m.sinceStart.Load()
	if at == 0 {
		return math.MaxInt64
	}
	return now.Sub(epoch) - time.Duration(at)
}

// Watch barks once when the other end has owed something for the whole of limit and beat has not risen meanwhile. It looks
// a few times per limit and so costs nothing.
func Watch(limit time.Duration, beat *atomic.Int64, owes func() bool, bark func()) (stop func()) {
	const looks = 5
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(limit / looks)
		defer tick.Stop()
		last, silent := beat.Load(), 0
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			now, owed := beat.Load(), owes()
			if now != last || !owed {
				last, silent = now, 0
			} else {
				silent++
			}
			if silent == looks {
				bark()
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}
