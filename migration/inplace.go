package migration

import (
	"maps"
	"math"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/plan"
)

// A block of a store with land: place becomes a file at a peer that has the store, where its engine finds it. At one that does not
// have it, it stays in the vault, and only who asks Lifeboat reads it there: Spark runs the map again (examples/spark). So peers that
// have the store come first, and the others get of it what those have no room or no time for.

// keptPlaces are the stores of which all that waits is left to peers that have them.
type keptPlaces struct {
	stores map[string]bool
	only   bool // nothing else waits
}

// nothingFor reports whether a peer would be left without blocks.
func (f *fan) nothingFor(p *peerState) bool {
	if !f.inPlace.only {
		return false
	}
	for store := range f.inPlace.stores {
		if !p.vaultOnly([]string{store}) {
			return false
		}
	}
	return true
}

// hurried says whether what is left would not be sent in time at the rate that was last measured.
func (f *fan) hurried() bool { return f.rate > 0 && f.rate < f.need }

// keepInPlace judges anew what is left to peers that have its store.
func (d *Drain) keepInPlace() {
	waits := d.plan.Waiting()
	if len(waits) == 0 {
		return // what is on its way may come back
	}
	granted := d.roomsGranted()
	now, is := time.Now(), keptPlaces{map[string]bool{}, true}
	d.mu.Lock()
	var all int64 // for the same disks
	for name, s := range d.stores {
		if s.Land == inventory.LandPlace && !d.fan.hurried() { // also of what was not met yet
			is.stores[name] = true
			all += waits[name]
		}
	}
	for store := range waits {
		is.only = is.only && is.stores[store]
	}
	for store := range is.stores {
		var room int64
		for _, p := range d.fan.order {
			if p.advised() || !p.takes(now) {
				continue
			}
			left, sent := granted[p]
			switch { // what was told of it may be old, or nothing
			case sent && !left.InVault(store):
				room += left.Most
			case !sent && !p.vaultOnly([]string{store}):
				room += p.RoomFor(store)
			}
		}
		if room == 0 || room < all {
			delete(is.stores, store)
			is.only = is.only && waits[store] == 0
		}
	}
	was := d.fan.inPlace
	d.fan.inPlace = is
	d.mu.Unlock()
	if !maps.Equal(was.stores, is.stores) {
		d.plan.Settle(0) // has those look again that found nothing for them
	}
}

// roomsGranted is what the peers that are sent to have room for, as they granted.
func (d *Drain) roomsGranted() map[*peerState]plan.Room {
	granted := map[*peerState]plan.Room{}
	for _, l := range d.open() {
		left := l.roomLeft()
		if other, is := granted[l.peer]; !is || left.Most < other.Most {
			granted[l.peer] = left
		}
	}
	return granted
}

// leftInPlace is what a peer with that room is to leave to others. Nil: nothing.
func (d *Drain) leftInPlace(r *plan.Room) (larger plan.MoreThan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for store := range d.fan.inPlace.stores {
		if r.InVault(store) {
			if larger == nil {
				larger = plan.MoreThan{plan.AnyStore: -1}
			}
			larger[store] = math.MaxInt64
		}
	}
	return larger
}
