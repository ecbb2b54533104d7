package vault

import (
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// maxSuspects bounds the blocks that wait because readers found them broken.
const maxSuspects = 1024

// Unread is what has landed and is yet to be read back. It keeps one stretch for each segment, so its size goes by the
// number of segments. Its zero value is ready.
type Unread struct {
	mu       sync.Mutex
	segments map[uint32]UnreadStretch
	placed   UnreadPlaced
	suspects map[inventory.BlockID]bool
	some     chan struct{} // gets one when something was noted
}

// UnreadStretch is the part of a segment that is to be read back.
type UnreadStretch struct {
	From, To int64
	since    time.Time // when it was noted
	Urgent   bool
}

// UnreadPlaced stands for all blocks that lie in place and landed since an instant. The catalog names them.
type UnreadPlaced struct {
	Landed time.Time
	Since  time.Time // when it was noted; zero: there is none
	Urgent bool
}

// Note adds records that were just committed.
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
	await.Mark(u.some)
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

// Again adds the blocks in place once more: a reading of them hung on one disk, and some lie on others.
func (u *Unread) Again(p UnreadPlaced) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.notePlaced(p.Landed, time.Now(), p.Urgent)
}

// AgainIn adds a stretch once more whose disk, or the catalog's, did not answer.
func (u *Unread) AgainIn(no uint32, s UnreadStretch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.noteSegment(no, s.From, s.To, time.Now(), s.Urgent)
}

// NoteAll adds all that rests here. It is not urgent.
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

// Suspect has a block checked before all else. It reports false if too many wait for that.
func (u *Unread) Suspect(id inventory.BlockID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ready()
	if len(u.suspects) >= maxSuspects {
		return false
	}
	u.suspects[id] = true
	await.Mark(u.some)
	return true
}

func (u *Unread) ready() {
	if u.some == nil {
		u.segments, u.suspects, u.some = map[uint32]UnreadStretch{}, map[inventory.BlockID]bool{}, make(chan struct{}, 1)
	}
}

// News returns a channel that gets one when something was noted.
func (u *Unread) News() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ready()
	return u.some
}

// TakeSuspect takes out one block that a reader found broken.
func (u *Unread) TakeSuspect() (id inventory.BlockID, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id := range u.suspects {
		delete(u.suspects, id)
		return id, true
	}
	return "", false
}

// TakeSegment takes out the first segment that has rested for so long. If there is none, it returns how long the next
// one still has to rest; 0: no segment waits.
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
	slices.SortFunc(due, func(a, b uint32) int { // urgent ones first, then by number
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

// TakePlaced takes out the blocks in place if they have rested for so long. If not, it returns how long they still have
// to; 0: none wait.
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
