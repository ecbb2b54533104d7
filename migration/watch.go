package migration

import (
	"sync/atomic"
	"time"
)

// watch barks once when the other end has owed something for the whole of limit and beat has not risen meanwhile. It looks
// a few times per limit and so costs nothing.
func watch(limit time.Duration, beat *atomic.Int64, owes func() bool, bark func()) (stop func()) {
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
			now := beat.Load()
			if now != last || !owes() {
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
