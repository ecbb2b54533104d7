package heartbeat

import (
	"sync"
	"time"
)

// sequence numbers what the agent says of itself, so that a coordinator knows an older word that a cut link held back.
// The clock is its beginning, so the words of a restarted agent come after those of the one before; where the clock was
// set back meanwhile, the registration that a start begins with says that they do.
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

// began is the number of this process's first word.
func (s *sequence) began() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first
}
