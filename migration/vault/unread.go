package vault

import (
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// maxSuspects bounds the blocks that readers found broken and that wait to be looked at.
const maxSuspects = 1024

// Unread is what has landed and was not read back: of each segment one stretch, so it is as small as the segments are few.
// Its zero value is ready.
type Unread struct {
	mu       sync.Mutex
	segments map[uint32]UnreadStretch
	placed   UnreadPlaced
	suspects map[inventory.BlockID]bool
	some     chan struct{} // has one when something was noted
}

// UnreadStretch is what is to be read back of a segment.
type UnreadStretch struct {
	From, To int64
	since    time.Time // it was noted
	Urgent   bool
}

// UnreadPlaced is all that lies in place and landed since an instant. The catalog names it.
type UnreadPlaced struct {
	Landed time.Time
	Since  time.Time // it was noted; zero: there is none
	Urgent bool
}

// Note takes in records that were just committed.
func (u *Unread) Note(records []catalog.Change) {
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

func (u *Unread) noteSegment(no uint32, from, to int64, now time.Time, urgent bool) {
	s, noted := u.segments[no]
	if !noted {
		s = UnreadStretch{From: from, since: now}
	}
	s.From, s.To, s.Urgent = min(s.From, from), max(s.To, to), s.Urgent || urgent
	u.segments[no] = s
}

func (u *Unread) notePlaced(landed, now time.Time, urgent bool) {
	p := &u.placed
	if p.Since.IsZero() {
		*p = UnreadPlaced{Landed: landed, Since: now}
	}
	if landed.Before(p.Landed) {
		p.Landed = landed
	}
	p.Urgent = p.Urgent || urgent
}

// Again notes what lies in place once more: not all of it lies on the disk that hangs.
func (u *Unread) Again(p UnreadPlaced) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.notePlaced(p.Landed, time.Now(), p.Urgent)
}

// NoteAll takes in all that rests here. Nobody waits for it.
func (u *Unread) NoteAll(ends map[uint32]catalog.End) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ready()
	now := time.Now()
	for no, end := range ends {
		u.noteSegment(no, 0, end.At, now, false)
	}
	u.notePlaced(time.Time{}, now, false)
}

// Suspect has a block looked at before all else, unless too many wait for that.
func (u *Unread) Suspect(id inventory.BlockID) bool {
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

func (u *Unread) wake() {
	select {
	case u.some <- struct{}{}:
	default:
	}
}

func (u *Unread) ready() {
	if u.some == nil {
		u.segments, u.suspects, u.some = map[uint32]UnreadStretch{}, map[inventory.BlockID]bool{}, make(chan struct{}, 1)
	}
}

// News is told when something was noted.
func (u *Unread) News() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ready()
	return u.some
}

// TakeSuspect takes one of them out.
func (u *Unread) TakeSuspect() (id inventory.BlockID, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id := range u.suspects {
		delete(u.suspects, id)
		return id, true
	}
	return "", false
}

// TakeSegment takes out the first segment that has rested; else it says in how long one will have, 0: there is none.
func (u *Unread) TakeSegment(now time.Time, rest time.Duration) (no uint32, s UnreadStretch, wait time.Duration) {
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
		return 0, UnreadStretch{}, wait
	}
	slices.SortFunc(due, func(a, b uint32) int { // what is urgent first, then in their order
		switch x, y := u.segments[a].Urgent, u.segments[b].Urgent; {
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

// TakePlaced takes out what lies in place, if that has rested; else it says in how long it will have, 0: there is none.
func (u *Unread) TakePlaced(now time.Time, rest time.Duration) (p UnreadPlaced, wait time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.placed.Since.IsZero() {
		return UnreadPlaced{}, 0
	}
	if left := rest - now.Sub(u.placed.Since); left > 0 {
		return UnreadPlaced{}, left
	}
	p, u.placed = u.placed, UnreadPlaced{}
	return p, 0
}
