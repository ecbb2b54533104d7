package fallback

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// slower limits how many requests are under way at once after a bucket has said "slow down" (503, 429): to half as many. Whenever the
// bucket has then answered as many as the limit, one more may go.
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html
type slower struct {
	mu      sync.Mutex
	under   int       // way
	most    float64   // 0: any number
	said    time.Time // "slow down", the last time that it counted
	waiting []chan struct{}
}

// oneSaying is how long several answers of "slow down" count as one: they are to requests that were under way together.
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

// next lets waiting requests go, as many as fit.
func (s *slower) next() {
	for len(s.waiting) > 0 && s.fits() {
		s.under++
		close(s.waiting[0])
		s.waiting = s.waiting[1:]
	}
}

// end notes the status that a request was answered with; 0: it had no answer.
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
