package migration

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/plan"
)

// A map output lies on several disks. While one of them does not answer, the block cannot be looked at, and so not be planned. It is not
// lost for that: a look that comes by once the disk answers meets it. A file that a disk does not give, or for which there was no
// descriptor, may be there at the next look. That look asks for it by name, since looks pass by what did not change. Only blocks that no
// look has met in the end are lost.

// awaited is what is known of a block that could not be looked at.
type awaited struct {
	bytes  int64     // of what was seen of it
	newest time.Time // when that was modified
	why    string
	block  *inventory.Block // to be asked for by name; nil: its disk does not answer
	late   bool             // there was a look before, which may have met the block in another version
	doubt  bool             // that look may have met it in this version
}

// await notes a block that could not be looked at.
func (s *history) await(b inventory.Block, why error, late, doubt bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.givenUp.has(b.ID) {
		return
	}
	a := awaited{bytes: b.Bytes(), newest: b.Modified(), why: why.Error(), late: late, doubt: doubt}
	if was, again := s.unseen[b.ID]; again {
		a.late, a.doubt = was.late, was.doubt
	}
	if !diskio.IsSilent(why) {
		a.block = &b
	}
	s.unseen[b.ID] = a
}

// awaits reports whether a block is one that could not be looked at.
func (s *history) awaits(id inventory.BlockID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, is := s.unseen[id]
	return is
}

// await notes a block that a look could not look at: it is lost unless a later look can. Of a block that looks before have met, nothing is
// known but that it could be read then.
func (v *survey) await(pass int, it inventory.Item, why error) {
	late := pass > 0 && !v.account.history.awaits(it.ID)
	switch {
	case !late:
		v.account.history.await(it.Block, why, false, false)
	case it.Members[0].ChangeTime != 0:
		if news, recent := v.news(it.Block, it.Anew); news {
			v.account.history.await(it.Block, why, true, !recent)
		}
	case !diskio.IsSilent(why):
		v.account.history.await(it.Block, why, true, true)
	}
}

// mostAskedFor bounds what a look asks for by name.
const mostAskedFor = 4096

// askFor looks, by name, for the blocks in these directories that looks before could not look at. It returns false when it was told to
// stop.
func (v *survey) askFor(ctx context.Context, dirs []string, take func(inventory.Item, error) bool) (more bool) {
	for _, b := range v.account.history.askable() {
		if ctx.Err() != nil {
			return false
		}
		if !slices.Contains(dirs, *v.source.dirOf(b, 0)) {
			continue
		}
		now, err := v.source.find(b)
		switch {
		case err == nil:
			more = take(inventory.Item{Block: now, Anew: true}, nil)
		case errors.Is(err, fs.ErrNotExist):
			more = take(inventory.Item{Block: b, Skip: itIsDeleted}, nil)
		default: // it still cannot be looked at
			more = take(inventory.Item{}, nil)
		}
		if !more {
			return false
		}
	}
	return true
}

// askable returns blocks that can be asked for by name, mostAskedFor at most.
func (s *history) askable() (some []inventory.Block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, a := range s.unseen {
		if _, unnamed := inventory.ParseBlockID(string(id)); a.block != nil && unnamed == nil && len(some) < mostAskedFor {
			some = append(some, *a.block)
		}
	}
	return some
}

// meets reports whether a block could not be looked at before, and forgets that. The id is the block's, or that of one of its files.
func (s *history) meets(id inventory.BlockID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unseen) == 0 {
		return false
	}
	_, was := s.unseen[id.Block()]
	delete(s.unseen, id.Block())
	return was
}

// gone returns the blocks of a store that could not be looked at, and that a look through all of the store has not met either: they are
// not there any more. Not among them are blocks that an earlier run moved, which are accounted for, nor those that are asked for by name.
func (s *history) gone(store string) (ids []inventory.BlockID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, a := range s.unseen {
		if id.Store() != store || a.block != nil {
			continue
		}
		delete(s.unseen, id)
		if !s.handled.has(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// loseUnseen names the blocks as lost that no look could look at.
func (a *account) loseUnseen() {
	a.history.mu.Lock()
	left := a.history.unseen
	a.history.unseen = map[inventory.BlockID]awaited{}
	doubtful := map[inventory.BlockID]bool{}
	for id, was := range left {
		if was.doubt || a.history.handled.has(id) { // an earlier run has moved it
			doubtful[id] = true
		}
	}
	a.history.mu.Unlock()
	for _, was := range left {
		if was.late {
			a.ledger.OnceMore()
		}
	}
	moved := map[inventory.BlockID]manifest.Entry{}
	if len(doubtful) > 0 {
		var err error
		if moved, err = a.ledger.Newest(doubtful); err != nil {
			a.log.Warn("cannot read whether blocks that are unreadable now were moved before: they count as lost", "blocks", len(doubtful), "err", err)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(left)) {
		if e, is := moved[id]; is && (left[id].doubt || e.Outcome == manifest.Moved && !left[id].newest.After(e.Modified())) {
			continue
		}
		a.history.giveUp(id)
		a.lose(plan.Entry{Block: inventory.Block{ID: id, Members: []inventory.Member{{Bytes: left[id].bytes}}}}, left[id].why)
	}
}
