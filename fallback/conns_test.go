package fallback_test

import (
	"net/http"
	"sync"
	"testing"
	"time"
)

// Uploads that go at once have a connection each, also to a server that would take them all on one: what one connection carries is
// bounded by its windows, and all uploads would end with it.
func TestEachUploadHasItsConnection(t *testing.T) {
	f, b := newFakeS3OverTLS(t)
	var mu sync.Mutex
	from, both := map[string]bool{}, make(chan struct{})
	f.set(func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		if from[r.RemoteAddr] = true; len(from) == 2 {
			close(both)
		}
		mu.Unlock()
		select {
		case <-both:
		case <-time.After(5 * time.Second):
			t.Errorf("two uploads share a connection of %s", r.Proto)
		}
		return false
	})
	var puts sync.WaitGroup
	for range 2 {
		puts.Go(func() {
			if err := tryPut(t.Context(), b, 1000); err != nil {
				t.Error(err)
			}
		})
	}
	puts.Wait()
}
