package receiver

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
)

// streams are those being served.
type streams struct {
	mu   sync.Mutex
	live map[*inbound]bool // true: given up because a disk hangs under it

	laidUp atomic.Int64 // unfinished blocks that wait for their senders to come back
}

func (s *streams) come(in *inbound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[in] = false
}

func (s *streams) gone(in *inbound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, in)
}

// any reports whether one of the streams is like that.
func (s *streams) any(is func(*inbound) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for in := range s.live {
		if is(in) {
			return true
		}
	}
	return false
}

// heldUp returns the directories whose disks hang under a stream, and the streams to be given up for that.
func (s *streams) heldUp(now time.Time, disks diskio.Disks) (stuck []string, given []*inbound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for in, lost := range s.live {
		dir, took, ok := in.work.On(now)
		if !ok || took < diskio.Suspect || took < diskio.Overdue && disks.Keeps(dir) {
			continue
		}
		stuck = append(stuck, dir)
		if !lost {
			s.live[in] = true
			in.why = diskio.Silence(dir)
			given = append(given, in)
		}
	}
	return stuck, given
}

// claim cuts an older stream of the same node that is receiving this block, and has it hand the block over; nil: no
// stream has it.
func (s *streams) claim(by *inbound, open string) *unfinished {
	s.mu.Lock()
	var of *inbound
	for in := range s.live {
		if in != by && in.node == by.node && in.block.is(open) {
			of = in
		}
	}
	s.mu.Unlock()
	if of == nil {
		return nil
	}
	of.cut()
	late := time.NewTimer(claimPatience)
	defer late.Stop()
	has := make(chan *unfinished, 1)
	select {
	case of.claims <- has:
		return <-has
	case <-of.parted: // it had too little of the block to keep
		return nil
	case <-late.C:
		return nil
	}
}
