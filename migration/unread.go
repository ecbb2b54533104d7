package migration

import (
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// maxSuspects bounds the blocks that readers found broken and that wait to be looked at.
const maxSuspects = 1024

// unread is what has landed and was not read back: of each segment one stretch, so it is as small as the segments are few.
// Its zero value is ready.
type unread struct {
	mu       sync.Mutex
	segments map[uint32]unreadStretch
	placed   unreadPlaced
	suspects map[inventory.BlockID]bool
	some     chan struct{} // has one when something was noted
}

type unreadStretch struct {
	from, to int64
	since    time.Time // it was noted
	urgent   bool
}

// unreadPlaced is all that lies in place and landed since an instant. The catalog names it.
type unreadPlaced struct {
	landed time.Time
	since  time.Time // it was noted; zero: there is none
	urgent bool
}

// note takes in records that were just committed.
func (u *unread) note(records []catalog.Change) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ready()
	now := time.Now()
	for _, r := range records {
		if r.Segment == 0 {
			u.notePlaced(r.Landed, now, true)
		} else {
			u.noteSegment(r.Segment, r.Offset, r.Offset+r.Length, now, true)
		}
	}
	u.wake()
}

func (u *unread) noteSegment(no uint32, from, to int64, now time.Time, urgent bool) {
	s, noted := u.segments[no]
	if !noted {
		s = unreadStretch{from: from, since: now}
	}
	s.from, s.to, s.urgent = min(s.from, from), max(s.to, to), s.urgent || urgent
	u.segments[no] = s
}

func (u *unread) notePlaced(landed, now time.Time, urgent bool) {
	p := &u.placed
	if p.since.IsZero() {
		*p = unreadPlaced{landed: landed, since: now}
	}
	if landed.Before(p.landed) {
		p.landed = landed
	}
	p.urgent = p.urgent || urgent
}

// again notes what lies in place once more: not all of it lies on the disk that hangs.
func (u *unread) again(p unreadPlaced) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.notePlaced(p.landed, time.Now(), p.urgent)
}

// noteAll takes in all that rests here. Nobody waits for it.
func (u *unread) noteAll(ends map[uint32]catalog.End) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ready()
	now := time.Now()
	for no, end := range ends {
		u.noteSegment(no, 0, end.At, now, false)
	}
	u.notePlaced(time.Time{}, now, false)
}

// suspect has a block looked at before all else, unless too many wait for that.
func (u *unread) suspect(id inventory.BlockID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ready()
	if len(u.suspects) >= maxSuspects {
		return false
	}
	u.suspects[id] = true
	u.wake()
	return true
}

func (u *unread) wake() {
	select {
	case u.some <- struct{}{}:
	default:
	}
}

func (u *unread) ready() {
	if u.some == nil {
		u.segments, u.suspects, u.some = map[uint32]unreadStretch{}, map[inventory.BlockID]bool{}, make(chan struct{}, 1)
	}
}

// news is told when something was noted.
func (u *unread) news() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ready()
	return u.some
}

// takeSuspect takes one of them out.
func (u *unread) takeSuspect() (id inventory.BlockID, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id := range u.suspects {
		delete(u.suspects, id)
		return id, true
	}
	return "", false
}

// takeSegment takes out the first segment that has rested; else it says in how long one will have, 0: there is none.
func (u *unread) takeSegment(now time.Time, rest time.Duration) (no uint32, s unreadStretch, wait time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var due []uint32
	for no, s := range u.segments {
		if left := rest - now.Sub(s.since); left <= 0 {
			due = append(due, no)
		} else if wait == 0 || left < wait {
			wait = left
		}
	}
	if len(due) == 0 {
		return 0, unreadStretch{}, wait
	}
	slices.SortFunc(due, func(a, b uint32) int { // what is urgent first, then in their order
		switch x, y := u.segments[a].urgent, u.segments[b].urgent; {
		case x && !y:
			return -1
		case y && !x:
			return 1
		}
		return int(int64(a) - int64(b))
	})
	no = due[0]
	s = u.segments[no]
	delete(u.segments, no)
	return no, s, 0
}

// takePlaced takes out what lies in place, if that has rested; else it says in how long it will have, 0: there is none.
func (u *unread) takePlaced(now time.Time, rest time.Duration) (p unreadPlaced, wait time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.placed.since.IsZero() {
		return unreadPlaced{}, 0
	}
	if left := rest - now.Sub(u.placed.since); left > 0 {
		return unreadPlaced{}, left
	}
	p, u.placed = u.placed, unreadPlaced{}
	return p, 0
}
