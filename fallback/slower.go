package fallback

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// slower has fewer requests under way at once when a bucket says "slow down" (503, 429): half as many, and then one more for each such
// number that it answers. https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html
type slower struct {
	mu      sync.Mutex
	under   int     // way
	most    float64 // 0: any number
	said    time.Time
	waiting []chan struct{}
}

// oneSaying is how long what is said was said of the same requests.
const oneSaying = 200 * time.Millisecond

// begin waits until a request may be sent.
func (s *slower) begin(ctx context.Context) error {
	s.mu.Lock()
	if s.fits() {
		s.under++
		s.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	s.waiting = append(s.waiting, turn)
	s.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, turn); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return ctx.Err()
	}
	s.under-- // its turn came at the same moment
	s.next()
	return ctx.Err()
}

func (s *slower) fits() bool { return s.most == 0 || s.under < int(s.most) }

// next gives their turn to those who wait.
func (s *slower) next() {
	for len(s.waiting) > 0 && s.fits() {
		s.under++
		close(s.waiting[0])
		s.waiting = s.waiting[1:]
	}
}

// end takes note of what the answer was; 0: there was none.
func (s *slower) end(status int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests:
		if now.Sub(s.said) >= oneSaying {
			s.most, s.said = max(1, float64(s.under)/2), now
		}
	case s.most > 0 && status != 0:
		if s.most += 1 / s.most; s.most > mostPuts+mostStreams {
			s.most = 0
		}
	}
	s.under--
	s.next()
}
