package migration

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/plan"
)

// history knows which blocks a drain has met. It remembers only what earlier runs of the drain moved, and what changed after the drain,
// or the index that it has, was begun: memory stays flat on a node whose engines have stopped.
type history struct {
	mu       sync.Mutex
	broke    map[inventory.BlockID]bool // that broke at their peers, or went with them, in earlier runs of this drain, and were not moved since
	handled  handled                    // moved by earlier runs
	about    doubt
	again    latest                        // planned anew, though moved once, and not moved since
	renewed  latest                        // changed since the scan began: an older version of them is handled no more
	givenUp  latest                        // lost because of its own files, or when the time of the pass before was up; in no version
	unseen   map[inventory.BlockID]awaited // that could not be looked at, for a disk of theirs did not answer
	done     latest                        // moved or lost in that version; only since the clock was set back (reread)
	rests    latest                        // where the newest version went of what changed (restsAt)
	took     map[string]inventory.Count    // by peer, what earlier runs moved there
	struck   bool                          // some of what was moved does not count any more, and may be out of date where it is
	repeats  bool                          // a block that was moved may have another line, or be lost
	rereads  bool                          // blocks may be met that this run has met before and does not remember
	recalled int                           // how many blocks were moved by earlier runs
	met      int                           // how many of those were met again
	here     *manifest.MetIDs              // what is here, where another pass follows this one (shorten)
}

// recall reads what an earlier run of the drain in dir moved: 24 bytes of memory a block, and what the map adds, only where there was one.
// An error says that not all of it could be read; the rest is sent again.
func recall(dir string, about doubt) (*history, inventory.Count, error) {
	s := &history{
		handled: newHandled(), about: about, took: map[string]inventory.Count{}, done: newLatest(),
		again: newLatest(), renewed: newLatest(), rests: newLatest(), givenUp: newLatest(), unseen: map[inventory.BlockID]awaited{}, broke: map[inventory.BlockID]bool{},
	}
	moved, err := s.readMoved(dir)
	s.recalled = len(s.handled.of)
	return s, moved, err
}

func (s *history) readMoved(dir string) (moved inventory.Count, err error) {
	for line, err := range manifest.AllLines(manifest.Path(dir, manifest.Moved)) {
		if err != nil {
			return moved, err
		}
		e := line.Entry
		id := inventory.BlockID(e.ID)
		v, known := e.OfVersion()
		switch {
		case e.Outcome == manifest.Struck:
			s.struck = s.struck || known && e.Peer != ""
		case e.Outcome == manifest.Voided: // the line before does not count
			if known {
				s.handled.drop(id, v)
			}
			s.broke[id], s.repeats = true, true
			moved = moved.Plus(inventory.Count{Blocks: -1, Bytes: -e.Bytes})
		case known:
			delete(s.broke, id) // it was moved all the same
			s.repeats = s.repeats || s.handled.has(id)
			s.handled.set(id, v, line.Begin, s.about.asks(e.Peer) != s.about.others)
			one := inventory.Count{Blocks: 1, Bytes: e.Bytes}
			s.took[e.Peer] = s.took[e.Peer].Plus(one)
			moved = moved.Plus(one)
		default:
			delete(s.broke, id)
			s.repeats = true // it is not remembered
		}
	}
	return moved, nil
}

// first reports whether a block is met in this version for the first time. If not, claimed says whether that is because an earlier run
// claims to have moved it to a peer about whose blocks the drain asks. recent says that it changed since the drain began.
func (s *history) first(b inventory.Block, recent bool) (first, claimed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unseen, b.ID)
	if !recent && len(s.handled.of)+len(s.renewed.of)+len(s.givenUp.of) == 0 {
		return true, false
	}
	v := manifest.VersionOf(b)
	s.handled.meet(b.ID)
	known := s.is(b.ID, v)
	if known {
		s.met++
	}
	if !known && s.isDone(b.ID, v) {
		return false, false
	}
	if known || s.givenUp.has(b.ID) {
		return false, known && !s.renewed.has(b.ID) && s.handled.unlike(b.ID) != s.about.others
	}
	if recent {
		s.renewed.set(b.ID, v)
	}
	s.repeats = s.repeats || s.handled.has(b.ID)
	return true, false
}

// reread learns from the account in dir what was moved so far. It is for when the clock was set back: blocks that changed before the
// drain cannot be told from later ones then, are met once more, and are not remembered otherwise.
func (s *history) reread(dir string) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rereads = true
	for line, wrong := range manifest.AllLines(manifest.Path(dir, manifest.Moved)) {
		if wrong != nil {
			err = wrong // the rest is sent again
			break
		}
		switch v, known := line.OfVersion(); {
		case !known:
		case line.Outcome == manifest.Moved:
			s.done.set(inventory.BlockID(line.ID), v)
		default:
			s.done.drop(inventory.BlockID(line.ID), v)
		}
	}
	return err
}

// isDone reports whether a block that is met, or planned, once more is accounted for in this version. What is planned anew is not: where it
// was moved to has it no more, though the account says so until its end.
func (s *history) isDone(id inventory.BlockID, v manifest.Version) bool {
	return s.done.is(id, v) && !s.again.is(id, v)
}

// lost notes that a block is named as lost. One that may be in the plan twice is named once.
func (s *history) lost(b inventory.Block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rereads {
		v := manifest.VersionOf(b)
		s.done.set(b.ID, v)
		s.again.drop(b.ID, v)
	}
}

// lapse makes a block that was moved, in this run or before, count as planned anew. anew is false if it is already, or a newer version is,
// or an earlier run has taken back that it was moved. line is where the line begins by which an earlier run moved it; -1: none did.
func (s *history) lapse(b inventory.Block) (line int64, anew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := manifest.VersionOf(b)
	if s.again.is(b.ID, v) || s.broke[b.ID] {
		return -1, false
	}
	line = s.handled.drop(b.ID, v)
	if s.renewed.has(b.ID) && !s.renewed.is(b.ID, v) {
		return -1, false
	}
	s.renewed.set(b.ID, v)
	s.again.set(b.ID, v)
	s.struck = true
	return line, true
}

// takenBack says whether an earlier run has taken back that a block was moved, and it was not moved since.
func (s *history) takenBack(id inventory.BlockID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broke[id]
}

// waits says whether a block is planned anew already.
func (s *history) waits(b inventory.Block) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.again.is(b.ID, manifest.VersionOf(b))
}

// landed notes what was moved to a peer.
func (s *history) landed(at string, blocks []plan.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.again.of)+len(s.broke)+len(s.renewed.of) == 0 { // as nearly always
		return
	}
	for i := range blocks {
		id := blocks[i].ID
		s.again.drop(id, manifest.VersionOf(blocks[i].Block))
		delete(s.broke, id)
		if s.renewed.has(id) {
			s.rests.of[s.rests.key(id)] = s.rests.key(inventory.BlockID(at))
		}
	}
}

// restsAt says whether the newest version of a block that changed was moved to that peer.
func (s *history) restsAt(at string, id inventory.BlockID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, has := s.rests.of[s.rests.key(id)]
	return has && is == s.rests.key(inventory.BlockID(at))
}

// is reports whether v is the newest known version of a block.
func (s *history) is(id inventory.BlockID, v manifest.Version) bool {
	if s.renewed.has(id) {
		return s.renewed.is(id, v)
	}
	return s.handled.is(id, v)
}

// current reports whether a line names the newest known version of its block.
func (s *history) current(e manifest.Entry) bool {
	v, known := e.OfVersion()
	s.mu.Lock()
	defer s.mu.Unlock()
	return known && s.is(inventory.BlockID(e.ID), v)
}

// outdated reports whether a planned block is accounted for by another entry: a newer version of it came into the plan since, or it
// was given up, or it was in the plan twice.
func (s *history) outdated(planned inventory.Block) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := manifest.VersionOf(planned)
	return s.givenUp.has(planned.ID) || s.renewed.has(planned.ID) && !s.renewed.is(planned.ID, v) || s.isDone(planned.ID, v)
}

// touched notes a planned block of which only the change time is another: the next look is not to take it for news. A newer version that
// came into the plan meanwhile stays the newest.
func (s *history) touched(b inventory.Block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.renewed.has(b.ID) {
		s.renewed.set(b.ID, manifest.VersionOf(b))
	}
}

// becomes notes what a planned block has become. It reports false where that is elsewhere already.
func (s *history) becomes(planned, now inventory.Block) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isElsewhere(planned, now) {
		return false
	}
	s.renewed.set(now.ID, manifest.VersionOf(now))
	return true
}

// overtaken parts blocks for which receipts came from those of which a newer version came into the plan since they were sent: what follows
// from that version counts.
func (s *history) overtaken(blocks []plan.Entry) (newest, old []plan.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isOld := func(e plan.Entry) bool {
		return s.renewed.has(e.ID) && !s.renewed.is(e.ID, manifest.VersionOf(e.Block))
	}
	if len(s.renewed.of) == 0 || !slices.ContainsFunc(blocks, isOld) { // as nearly always
		return blocks, nil
	}
	for _, e := range blocks {
		if isOld(e) {
			old = append(old, e)
		} else {
			newest = append(newest, e)
		}
	}
	s.struck = true
	return newest, old
}

// putBack notes a block that is planned once more, whether it was moved or not.
func (s *history) putBack(b inventory.Block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repeats = true
	s.renewed.set(b.ID, manifest.VersionOf(b))
	s.again.set(b.ID, manifest.VersionOf(b))
}

// elsewhere reports whether what a planned block has become is another entry of the plan, or was moved by an earlier run, or was
// given up.
func (s *history) elsewhere(planned, now inventory.Block) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isElsewhere(planned, now)
}

func (s *history) isElsewhere(planned, now inventory.Block) bool {
	v := manifest.VersionOf(now)
	return s.givenUp.has(now.ID) || s.is(now.ID, v) && v != manifest.VersionOf(planned)
}

// giveUp makes later scans pass a block by that is lost: once is enough.
func (s *history) giveUp(id inventory.BlockID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.givenUp.set(id, manifest.Version{})
	delete(s.unseen, id)
	s.repeats = s.repeats || s.handled.has(id)
}

// allMet reports whether all blocks that earlier runs of the drain moved are still here.
func (s *history) allMet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.met >= s.recalled
}

// unmet returns the blocks that earlier runs moved and that were not met in any version. They count as moved no more.
func (s *history) unmet() handled {
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := handled{s.handled.seed, map[uint64]movedLine{}}
	for h, l := range s.handled.of {
		if l.half&metBit == 0 {
			gone.of[h] = l
			delete(s.handled.of, h)
		}
	}
	return gone
}

// severalLines reports whether blocks may have several lines in the account.
func (s *history) severalLines() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.repeats
}

// handled has what was moved, by hashes of the ids. Of two blocks that share a hash, each is taken for news after the other.
type handled struct {
	seed maphash.Seed
	of   map[uint64]movedLine
}

type movedLine struct {
	half  uint64 // of the version; the bits unlikeBit and metBit say something else
	begin int64  // of the line in the account
}

const (
	unlikeBit = 1 << iota // an exception: a block that is asked about where others are not, or is not asked about where others are (doubt)
	metBit                // this run has met the block, in whatever version
)

func newHandled() handled { return handled{maphash.MakeSeed(), map[uint64]movedLine{}} }

func (h handled) at(id inventory.BlockID) (l movedLine, has bool) {
	l, has = h.of[maphash.String(h.seed, string(id))]
	return l, has
}

func (h handled) has(id inventory.BlockID) bool {
	_, has := h.at(id)
	return has
}

func (h handled) is(id inventory.BlockID, v manifest.Version) bool {
	l, has := h.at(id)
	return has && (l.half^v.Half())&^(unlikeBit|metBit) == 0
}

// meet notes that a block is here.
func (h handled) meet(id inventory.BlockID) {
	if l, has := h.at(id); has {
		l.half |= metBit
		h.of[maphash.String(h.seed, string(id))] = l
	}
}

func (h handled) unlike(id inventory.BlockID) bool {
	l, _ := h.at(id)
	return l.half&unlikeBit != 0
}

func (h handled) set(id inventory.BlockID, v manifest.Version, begin int64, unlike bool) {
	l := movedLine{v.Half() &^ (unlikeBit | metBit), begin}
	if unlike {
		l.half |= unlikeBit
	}
	h.of[maphash.String(h.seed, string(id))] = l
}

// drop forgets a version if it is the newest, and tells where its line begins; else -1.
func (h handled) drop(id inventory.BlockID, v manifest.Version) (begin int64) {
	if !h.is(id, v) {
		return -1
	}
	l, _ := h.at(id)
	delete(h.of, maphash.String(h.seed, string(id)))
	return l.begin
}

// latest are the newest versions of blocks that are known of, by half of their hashes: 16 bytes each. A block that becomes again what it
// was before is news.
type latest struct {
	seed maphash.Seed
	of   map[uint64]uint64 // by a hash of the id: of two that share one, each is news after the other
}

func newLatest() latest { return latest{maphash.MakeSeed(), map[uint64]uint64{}} }

func (l latest) key(id inventory.BlockID) uint64 { return maphash.String(l.seed, string(id)) }

func (l latest) has(id inventory.BlockID) bool {
	_, has := l.of[l.key(id)]
	return has
}

func (l latest) is(id inventory.BlockID, v manifest.Version) bool {
	return l.of[l.key(id)] == v.Half()
}

func (l latest) set(id inventory.BlockID, v manifest.Version) {
	l.of[l.key(id)] = v.Half()
}

// drop forgets a version if it is the newest.
func (l latest) drop(id inventory.BlockID, v manifest.Version) {
	if l.is(id, v) {
		delete(l.of, l.key(id))
	}
}
