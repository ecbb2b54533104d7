package fallback

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A bucket that says "slow down" of all beyond ten requests at once is asked less at once, and then as much as it takes.
func TestFewerRequestsAtOnceWhenABucketSaysSlowDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s slower
		var mu sync.Mutex
		under, refused := 0, 0
		began := time.Now()
		var asking sync.WaitGroup
		for range 64 {
			asking.Go(func() {
				for range 100 {
					if err := s.begin(t.Context()); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					under++
					status := http.StatusOK
					if under > 10 {
						status, refused = http.StatusServiceUnavailable, refused+1
					}
					mu.Unlock()
					time.Sleep(30 * time.Millisecond)
					mu.Lock()
					under--
					mu.Unlock()
					s.end(status, time.Now())
				}
			})
		}
		asking.Wait()
		if took := time.Since(began); refused > 6400/5 || took > 40*time.Second { // 20 s is all that the bucket takes
			t.Errorf("%d of 6400 were refused in %v", refused, took)
		}
	})
}

// A request that does not wait any longer takes no other's turn.
func TestWhoWaitsForABucketMayGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slower{most: 1}
		if err := s.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			go func() {
				if err := s.begin(ctx); err == nil {
					t.Error("its turn came beside another")
				}
			}()
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		s.end(http.StatusOK, time.Now())
		if err := s.begin(t.Context()); err != nil || s.under != 1 || len(s.waiting) != 0 {
			t.Errorf("got %v: %d are under way and %d wait", err, s.under, len(s.waiting))
		}
	})
}
