package diskio

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/await"
)

// Moment is when something was done last: one goroutine notes it, and others ask how long ago it was. Setting the machine's clock
// meanwhile, as when it was found to be wrong, changes nothing: it would make sound work look like work that does not come back.
type Moment struct{ sinceStart atomic.Int64 } // nanoseconds; 0: never

// epoch is the instant that moments are counted from, so that one fits in a word.
var epoch = time.Now()

// Note notes that it was done at that instant.
func (m *Moment) Note(at time.Time) { m.sinceStart.Store(int64(at.Sub(epoch))) }

// Ago returns how long before now that was; for ever if it never was.
func (m *Moment) Ago(now time.Time) time.Duration {
	at := m.sinceStart.Load()
	if at == 0 {
		return math.MaxInt64
	}
	return now.Sub(epoch) - time.Duration(at)
}

// Watch calls bark once when the watched side has owed something for the whole of limit and beat has not risen meanwhile. It
// looks five times per limit, and so costs nothing.
func Watch(limit time.Duration, beat *atomic.Int64, owes func() bool, bark func()) (stop func()) {
	const looks = 5
	done := make(chan struct{})
	ended := await.Beside(func() {
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
	})
	return func() { close(done); <-ended }
}
