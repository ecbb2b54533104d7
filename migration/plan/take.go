package plan

import (
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Answers of Take: blocks are left but none is small enough for the peer; all that would have room there would be
// there too late; none is left and no more come.
var (
	ErrNoRoom  = errors.New("no block fits")
	ErrNoTime  = errors.New("no block that is left would be there in time")
	ErrSettled = errors.New("every block is settled")
)

// Take appends up to so many blocks for a peer to a batch, and no more once they have so many bytes. Each is the block that would
// be handed out next with those before it on their way. affordable is how many bytes can be there in time. Blocks in crowded
// directories are left alone. With no block to hand out, wait is how long until the first that was put off is due; 0: none was.
func (p *Plan) Take(batch []Entry, blocks int, bytes int64, peer string, room Room, affordable int64, crowded map[string]bool) (_ []Entry, wait time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.closeGaps()
	p.crowded = crowded
	defer func() { p.crowded = nil }()
	now, passed := time.Now(), 0
	for range blocks {
		e, ok, wait, err := p.one(now, &passed, peer, room, affordable)
		switch {
		case !ok && len(batch) == 0:
			return nil, wait, err
		case !ok:
			return batch, 0, nil
		}
		batch = append(batch, e)
		n := e.Bytes()
		room.Add(&e.Block, -n)
		affordable, bytes = affordable-n, bytes-n
		if bytes <= 0 {
			break
		}
	}
	return batch, 0, nil
}

// one hands out a block. Of the returned blocks it looks at none before passed: a moment ago, for the same peer with no less room,
// none of those was to be had. Thousands return at once from a peer that failed, and must not be looked at again for each block.
func (p *Plan) one(now time.Time, passed *int, peer string, room Room, affordable int64) (e Entry, ok bool, wait time.Duration, err error) {
	tooBig, tooLate := false, false
	leave := func(bytes, room int64) (why string) {
		if bytes > room {
			tooBig = true
			return "no peer has room"
		}
		tooLate = true
		return ErrNoTime.Error()
	}
	for ; *passed < len(p.returned); *passed++ {
		e := &p.returned[*passed]
		if e.ID == "" {
			continue
		}
		if _, is := p.shut(e.Block); is {
			continue
		}
		there := false
		if past := e.past; past != nil {
			due := past.due
			if past.Shun == peer && past.Shunned.After(due) {
				due = past.Shunned
			}
			if d := due.Sub(now); d > 0 {
				if wait == 0 || d < wait {
					wait = d
				}
				continue
			}
			there = past.Unanswered && past.Shun == peer
		}
		if n, left := e.Bytes(), room.Left(e.ID.Store()); n <= room.Larger.of(e.ID.Store()) {
			continue
		} else if n > affordable || n > left && !there {
			leave(n, left)
			continue
		}
		taken := *e
		*e = Entry{}
		p.gaps++
		p.outstanding++
		return taken, true, 0, nil
	}
	for i := 0; i < len(p.order); i++ { // setAside may add queues behind this one
		s := p.order[i]
		if s.Left.Blocks == 0 || p.shuts(s.dir) {
			continue
		}
		left, larger := room.Left(s.store), room.Larger.of(s.store)
		most := min(left, affordable)
		if s.most <= larger {
			continue
		}
		if least := s.least(); least > most {
			leave(least, left)
			continue
		}
		if s.most > most && len(p.returned) >= maxReturned {
			leave(s.most, left)
			continue
		}
		if s.least() <= larger && len(p.returned) >= maxReturned {
			continue
		}
		for b := range p.pops(s.Spool) {
			p.changed.Tell() // there is room in memory, should the scan wait for it
			if p.setAside(b) {
				continue
			}
			switch n := b.Bytes(); {
			case n <= larger:
				p.returned = append(p.returned, Entry{Block: b})
			case n <= most:
				p.outstanding++
				return Entry{Block: b}, true, 0, nil
			default:
				p.returned = append(p.returned, Entry{Block: b}.After(Setbacks{Why: leave(n, left)}))
			}
			if len(p.returned) >= maxReturned {
				break // the next class may have some that fit for certain
			}
		}
	}
	switch {
	case tooLate:
		return Entry{}, false, wait, ErrNoTime
	case tooBig:
		return Entry{}, false, wait, ErrNoRoom
	case p.sealed && p.empty():
		return Entry{}, false, 0, ErrSettled
	}
	return Entry{}, false, wait, nil
}

// Holds reports whether a block of a store waits that is larger than that.
func (p *Plan) Holds(store string, larger int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.order, func(s queue) bool { return s.store == store && s.Left.Blocks > 0 && s.most > larger }) ||
		slices.ContainsFunc(p.returned, func(e Entry) bool { return e.ID != "" && e.ID.Store() == store && e.Bytes() > larger })
}

// Waiting returns how many bytes of each store's blocks wait.
func (p *Plan) Waiting() map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := map[string]int64{}
	for _, s := range p.order {
		if s.Left.Blocks > 0 {
			of[s.store] += s.Left.Bytes
		}
	}
	for _, e := range p.returned {
		if e.ID != "" {
			of[e.ID.Store()] += e.Bytes()
		}
	}
	return of
}

// closeGaps takes the blocks that were handed out of returned.
func (p *Plan) closeGaps() {
	for p.gaps > 0 && p.returned[0].ID == "" {
		p.returned = p.returned[1:]
		p.gaps--
	}
	if p.gaps > 0 {
		p.returned = slices.DeleteFunc(p.returned, func(e Entry) bool { return e.ID == "" })
		p.gaps = 0
	}
}

// pops takes blocks off a spool. A spool that cannot be read is given up, and its blocks are counted in unread.
func (p *Plan) pops(s *Spool) iter.Seq[inventory.Block] {
	return func(yield func(inventory.Block) bool) {
		for s.Left.Blocks > 0 {
			b, err := s.Pop()
			if err != nil {
				p.unread.Blocks += s.Left.Blocks
				p.unread.Bytes += s.Left.Bytes
				s.Left = inventory.Count{}
				return
			}
			if !yield(b) {
				return
			}
		}
	}
}
