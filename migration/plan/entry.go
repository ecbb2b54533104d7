package plan

import (
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Entry is a block on its way.
type Entry struct {
	inventory.Block
	past *Setbacks // nil: it has met with none
}

// Setbacks are what a block has met with. They lie apart from it, since thousands of blocks are on their way at once and
// nearly none has met with any. Those that are there are never changed: several may hold the block.
type Setbacks struct {
	Attempts int       // that failed at a peer
	Misreads int       // attempts that failed here, on the block's own files
	due      time.Time // not before
	Shun     string    // the peer that failed it last
	Shunned  time.Time // not to that one before
	Why      string    // what went wrong last

	Unanswered bool // by that peer, which may have it: its room is not asked
}

// Met is what the block has met with.
func (e Entry) Met() (s Setbacks) {
	if e.past != nil {
		s = *e.past
	}
	return s
}

// After is the block when it has met with those.
func (e Entry) After(s Setbacks) Entry { return Entry{e.Block, &s} }
