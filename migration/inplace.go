package migration

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/plan"
)

// A block of a store with land: place becomes a file at a peer that has the store, where its engine finds it. At a peer without the
// store it stays in the vault, where only a reader that asks Lifeboat finds it: Spark runs the map again (examples/spark). So peers
// that have the store come first, and the others get the blocks that those have no room or no time for.

// keptPlaces are the stores whose waiting blocks are all left to peers that have the store.
type keptPlaces struct {
	stores map[string][]*peerState // with those peers, where a block waits
	only   bool                    // nothing else waits
}

// awaited returns the peers at hand that all waiting blocks of a store are left to, if none of the store's peers is sent to: otherwise the
// blocks would wait for as long as other peers are in use.
func (f *fan) awaited(now time.Time) (all []*peerState) {
	for _, peers := range f.inPlace.stores {
		if slices.ContainsFunc(peers, func(p *peerState) bool { return p.lanes > 0 }) {
			continue
		}
		for _, p := range peers {
			if !p.gone && !p.rest.After(now) {
				all = append(all, p)
			}
		}
	}
	return all
}

// sole reports whether the blocks of a store are left to a peer, and to no other that is at hand.
func (f *fan) sole(p *peerState, now time.Time) bool {
	for _, peers := range f.inPlace.stores {
		if slices.Contains(peers, p) && !slices.ContainsFunc(peers, func(o *peerState) bool { return o != p && !o.surplus && !o.rest.After(now) }) {
			return true
		}
	}
	return false
}

// nothingFor reports whether a peer would be left without blocks.
func (f *fan) nothingFor(p *peerState) bool {
	if !f.inPlace.only {
		return false
	}
	for store, peers := range f.inPlace.stores {
		if !p.vaultOnly([]string{store}) || slices.Contains(peers, p) {
			return false
		}
	}
	return true
}

// hurried says whether what is left would not be sent in time at the rate that was last measured.
func (f *fan) hurried() bool { return f.rate > 0 && f.rate < f.need }

// keepInPlace judges anew which stores' blocks are left to peers that have the store.
func (ps *peers) keepInPlace() {
	waits := ps.plan.Waiting()
	if len(waits) == 0 {
		return // what is on its way may come back
	}
	granted := ps.roomsGranted()
	now, is := time.Now(), keptPlaces{map[string][]*peerState{}, true}
	ps.mu.Lock()
	var all int64 // bytes for the same disks
	for name, s := range ps.source.stores {
		if s.Land == inventory.LandPlace && !ps.fan.hurried() { // also of what was not met yet
			is.stores[name] = nil
			all += waits[name]
		}
	}
	for store := range waits {
		_, kept := is.stores[store]
		is.only = is.only && kept
	}
	for store := range is.stores {
		var room int64
		var peers []*peerState
		for _, p := range ps.fan.order {
			if p.advised() || !p.takes(now) {
				continue
			}
			left, sent := granted[p]
			switch { // what the coordinator told of the peer may be old, or nothing
			case sent && !left.InVault(store):
				room, peers = room+left.Most, append(peers, p)
			case !sent && !p.vaultOnly([]string{store}):
				room, peers = room+p.RoomFor(store), append(peers, p)
			}
		}
		if waits[store] > 0 {
			is.stores[store] = peers
		}
		if room == 0 || room < all {
			delete(is.stores, store)
			is.only = is.only && waits[store] == 0
		}
	}
	was := ps.fan.inPlace
	ps.fan.inPlace = is
	ps.mu.Unlock()
	if !slices.Equal(slices.Sorted(maps.Keys(was.stores)), slices.Sorted(maps.Keys(is.stores))) {
		ps.plan.Settle(0) // wakes the lanes that found nothing to take
	}
}

// roomsGranted returns the room that the peers in use granted and that is not used up.
func (ps *peers) roomsGranted() map[*peerState]plan.Room {
	granted := map[*peerState]plan.Room{}
	for _, l := range ps.carriers.lanes() {
		left := l.books.roomLeft()
		if other, is := granted[l.peer]; !is || left.Most < other.Most {
			granted[l.peer] = left
		}
	}
	return granted
}

// leftInPlace returns which blocks a peer with that room is to leave to others. Nil: none.
func (ps *peers) leftInPlace(r *plan.Room) (larger plan.MoreThan) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for store := range ps.fan.inPlace.stores {
		if r.InVault(store) {
			if larger == nil {
				larger = plan.MoreThan{plan.AnyStore: -1}
			}
			larger[store] = math.MaxInt64
		}
	}
	return larger
}
