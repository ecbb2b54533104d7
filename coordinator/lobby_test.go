package coordinator

import (
	"testing"
	"testing/synctest"
	"time"
)

// The last callers are let in first, a slow caller does not hold the others up for long, and one that gives up is not waited for.
func TestLobby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lobby{free: 1}
		leave, ok := l.enter(time.Minute)
		if !ok {
			t.Fatal("an empty lobby let nobody in")
		}
		let := make(chan string, 10)
		come := func(name string, patience, takes time.Duration) {
			go func() {
				leave, ok := l.enter(patience)
				defer leave()
				if !ok {
					name += " gave up"
				}
				let <- name
				time.Sleep(takes)
			}()
			synctest.Wait()
		}
		come("first", time.Minute, 0)
		come("impatient", 100*time.Millisecond, 0)
		come("dawdler", time.Minute, time.Hour)
		come("last", time.Minute, 0)
		time.Sleep(200 * time.Millisecond)
		leave()
		leave() // by mistake
		synctest.Wait()
		for _, want := range []string{"impatient gave up", "last", "dawdler"} {
			if got := <-let; got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
		if len(let) > 0 {
			t.Errorf("got %q beside the dawdler, want nobody", <-let)
		}
		time.Sleep(holdUp)
		if got := <-let; got != "first" {
			t.Errorf("got %q once the dawdler has taken too long, want first", got)
		}
		time.Sleep(2 * time.Hour)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.free != 1 || len(l.waiting) != 0 {
			t.Errorf("got %d free and %d waiting when all have left, want 1 and none", l.free, len(l.waiting))
		}
	})
}
