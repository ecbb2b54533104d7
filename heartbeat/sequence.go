package heartbeat

import (
	"sync"
	"time"
)

// sequence numbers what the agent says of itself, so that a coordinator recognises an older word that a slow link held back.
// The numbers start at the clock, so those of a restarted agent come after those of the process before. If the clock was set
// back meanwhile, the registration with which a start begins says that they do.
type sequence struct {
	mu          sync.Mutex
	first, last uint64
}

func (s *sequence) next() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last+1, uint64(max(0, time.Now().UnixNano())))
	if s.first == 0 {
		s.first = s.last
	}
	return s.last
}

// began is the first number of this process.
func (s *sequence) began() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first
}
