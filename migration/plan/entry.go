package plan

import (
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Entry is a block on its way.
type Entry struct {
	inventory.Block
	past *Setbacks // nil: it has none
}

// Setbacks are what went wrong with a block. They lie apart from its Entry, since thousands of blocks are on their way at once and
// nearly none has any. Setbacks are never changed once an Entry has them: copies of the Entry share them.
type Setbacks struct {
	Attempts int       // that failed at a peer
	Misreads int       // attempts that failed here, on the block's own files
	due      time.Time // the block is not sent before
	Shun     string    // the peer that failed it last
	Shunned  time.Time // the block is not sent to Shun before
	Why      string    // what went wrong last

	Unanswered bool // Shun did not answer and may have the block: the room there does not matter
}

// Met returns the block's setbacks.
func (e Entry) Met() (s Setbacks) {
	if e.past != nil {
		s = *e.past
	}
	return s
}

// After returns the block with these setbacks.
func (e Entry) After(s Setbacks) Entry { return Entry{e.Block, &s} }
