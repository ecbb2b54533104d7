package migration

import (
	"maps"
	"slices"
)

// A map output lies on several disks. While one of them does not answer it cannot be looked at, and so not be planned. It is not lost
// for that: its disk is not read, and a look that comes by once it answers meets the block. Only what none has met in the end is lost.

// awaited is what is known of a block that could not be looked at.
type awaited struct {
	bytes int64 // of what was seen of it
	why   string
}

// await notes a block that could not be looked at.
func (s *history) await(b Block, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.givenUp[b.ID] {
		s.unseen[b.ID] = awaited{b.Bytes(), why.Error()}
	}
}

// meets reports whether a block, or whose file it is, was one that could not be looked at. It is none from now on.
func (s *history) meets(id BlockID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unseen) == 0 {
		return false
	}
	_, was := s.unseen[id.Block()]
	delete(s.unseen, id.Block())
	return was
}

// gone returns the blocks of a store that could not be looked at, and that a look through all of it has not met either: they are not
// there any more. What an earlier run moved is accounted for.
func (s *history) gone(store string) (ids []BlockID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.unseen {
		if id.Store() != store {
			continue
		}
		delete(s.unseen, id)
		if !s.handled.has(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// loseUnseen names what no look could look at.
func (d *Drain) loseUnseen() {
	d.history.mu.Lock()
	left := d.history.unseen
	d.history.unseen = map[BlockID]awaited{}
	d.history.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(left)) {
		d.history.giveUp(id)
		d.lose(entry{Block: Block{ID: id, Members: []Member{{Bytes: left[id].bytes}}}}, left[id].why)
	}
}
