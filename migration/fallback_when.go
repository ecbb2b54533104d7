package migration

import (
	"math"
	"time"

	"github.com/lifeboat/lifeboat/migration/plan"
)

const (
	// fallbackPatience is how long no peer may have taken anything before the fallback is used, when every peer that is
	// known is in trouble but not all have said themselves that they take nothing. If it were shorter, the blocks for a
	// peer that restarts would go to the bucket.
	fallbackPatience = 2 * time.Second
	// askAgain is how long a lane goes by the room that its peer granted when it began, while blocks wait that fit the grant and do
	// not fit what is left of it.
	askAgain = time.Second
	// lookAtPeers is how often an idle upload asks whether it is its turn.
	lookAtPeers = 100 * time.Millisecond
)

func (ps *peers) took(now time.Time) { ps.tookAt.Note(now) }

// take reports whether a peer takes blocks as far as is known (taken), or else may soon (hoped). A peer that has not failed and answers
// has as long to prove that it takes blocks as any lane has (peerTimeout). Peers in trouble go on being asked, block by block, and take over
// from the fallback as soon as one of them takes something. When each peer has said itself that it takes nothing, nobody is waited for.
func (ps *peers) take() (taken, hoped bool) {
	now := time.Now()
	quiet := ps.tookAt.Ago(now)
	ps.mu.Lock()
	defer ps.mu.Unlock()
	declined := ps.missed == nil || !ps.missed()
	for _, p := range ps.known {
		if p.failures == 0 && !p.silent && (p.lanes > 0 || !p.gone) {
			return quiet < peerTimeout, false
		}
		declined = declined && p.declined(now)
	}
	return false, !declined && quiet < fallbackPatience
}

// left says which blocks are for the fallback now: all, while no peer takes any; else those that no peer has room for. If these
// waited until the others are sent, they would be lost where that takes all the time there is.
func (ps *peers) left() (larger plan.MoreThan, any bool) {
	switch taken, hoped := ps.take(); {
	case !taken && !hoped:
		return nil, true
	case !taken:
		return nil, false
	}
	larger = plan.MoreThan{}
	for _, store := range append([]string{plan.AnyStore}, ps.fan.stores...) {
		larger[store] = ps.roomFor(store)
		any = any || larger[store] < math.MaxInt64
	}
	return larger, any
}

// roomFor returns how large a block of a store some peer may have room for: by the peer's grant, or, of peers that are not sent to, by
// the coordinator's word. A peer whose room is used up, or turned out to be less, is asked again: a vault may be full for a moment of
// blocks that have their place elsewhere. A peer that is in trouble, or does not greet, may have room for as long as the drain would wait
// for it alone. So may one that has just greeted: an agent that has just started has no room until its disks were tried.
func (ps *peers) roomFor(store string) int64 {
	now, lanes := time.Now(), ps.carriers.lanes()
	most := ps.roomUnseen(store, now, lanes)
	for _, l := range lanes {
		since := now.Sub(l.greeted)
		if since < fullSettles {
			return math.MaxInt64
		}
		granted, left := l.granted.Left(store), l.books.roomLeft()
		most = max(most, granted)
		if since >= askAgain && left.Left(store) < granted && ps.plan.Holds(store, left.Left(store)) {
			l.asksAgain.Store(true)
		}
	}
	return most
}

// roomUnseen returns how large a block the peers may have room for to which none of the lanes goes.
func (ps *peers) roomUnseen(store string, now time.Time, lanes []*lane) (most int64) {
	greeted := map[*peerState]time.Time{}
	for _, l := range lanes {
		if l.greeted.After(greeted[l.peer]) {
			greeted[l.peer] = l.greeted
		}
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.known {
		silent := time.Duration(0)
		if !p.tried.IsZero() {
			silent = now.Sub(p.tried)
		}
		switch {
		case p.failures > 0:
			if !p.declined(now) && silent < fallbackPatience {
				return math.MaxInt64
			}
		case p.asked.After(greeted[p]) && now.Sub(p.asked) < dialTimeout: // it answers in a moment, whatever others were granted before
			return math.MaxInt64
		case p.lanes > 0:
			if greeted[p].IsZero() && silent < peerTimeout {
				return math.MaxInt64
			}
		case !p.gone && p.RoomBytes == 0: // it is not known
			return math.MaxInt64
		case !p.gone:
			most = max(most, p.MostFor(store))
		}
	}
	return most
}
