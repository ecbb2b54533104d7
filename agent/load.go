package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/fallback"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// load is what a drain would carry now.
type load struct {
	inventory.Count
	takes int64            // at peers, with their records
	of    map[string]stock // by store, but for what is large
	room  *fallback.Room   // in the fallback; nil: there is none, or it does not tell
	aside need             // what those would take there that are not large

	large    inventory.Count // of what it would carry, larger than any peer has room for in one place
	largeIDs []string        // the first of these, and how large
	largest  need            // what they would take in the fallback

	stays  inventory.Count // and what it would lose whoever has room for it
	unread int64           // directories of which nobody knows what that is
	why    []string        // of the first of these
}

// mostStaying is how many are named of those that would be lost for sure: a person looks at some, and there may be millions.
const mostStaying = 5

// stock is what some blocks have, and what they take at peers.
type stock struct{ bytes, takes int64 }

func (s stock) plus(o stock) stock { return stock{s.bytes + o.bytes, s.takes + o.takes} }

// need is room in a fallback's directory.
type need struct{ bytes, files int64 }

// add counts in a block: its files, and one for its record.
func (n *need) add(b *inventory.Block, in *fallback.Room) {
	if in == nil {
		return
	}
	n.files += int64(len(b.Members)) + 1
	n.bytes += in.Takes(1)
	for _, m := range b.Members {
		n.bytes += in.Takes(m.Bytes)
	}
}

// drainable looks through the stores for what a drain would carry to these peers, and to a fallback with that room.
func (a *Agent) drainable(ctx context.Context, peers []migration.Peer, room *fallback.Room) (l load, err error) {
	l.of, l.room = map[string]stock{}, room
	most := mostOf(peers)
	for it, err := range migration.Inventory(ctx, a.stores, a.vault) {
		if why, dir := inventory.Stranded(it, err); why != "" {
			if dir {
				l.unread++
			} else {
				l.stays.Blocks++
				l.stays.Bytes += it.Bytes()
			}
			if len(l.why) < mostStaying {
				l.why = append(l.why, short(why, longestReason))
			}
		}
		if err != nil {
			a.log.Warn("part of a store cannot be read", "err", err)
			continue
		}
		if it.Carried() {
			l.Blocks++
			l.Bytes += it.Bytes()
			l.takes += it.Takes()
			l.add(&it.Block, most(it.ID.Store()))
		}
	}
	return l, ctx.Err()
}

// add counts a block that some peer, if any has room at all, has room for if it has no more than so many bytes. The files of one may lie
// on several disks of a peer.
func (l *load) add(b *inventory.Block, most int64) {
	for _, m := range b.Members {
		if most == 0 || m.Bytes <= most {
			continue
		}
		l.largest.add(b, l.room)
		l.large.Blocks++
		l.large.Bytes += b.Bytes()
		if len(l.largeIDs) < mostStaying {
			l.largeIDs = append(l.largeIDs, fmt.Sprintf("%s: %s, and no peer has room for more than %s in one place", b.ID, config.Bytes(b.Bytes()).Rough(), config.Bytes(most).Rough()))
		}
		return
	}
	l.aside.add(b, l.room)
	l.of[b.ID.Store()] = l.of[b.ID.Store()].plus(stock{b.Bytes(), b.Takes()})
}

// mostOf says how large a block of a store may be for one of these peers to have room for it; 0: none has any.
func mostOf(peers []migration.Peer) func(store string) int64 {
	said := map[string]int64{}
	return func(store string) int64 {
		most, is := said[store]
		if !is {
			for _, p := range peers {
				most = max(most, p.MostFor(store))
			}
			said[store] = most
		}
		return most
	}
}

// wants is how many bytes, at least, find no room at the peers. Some stores together may find less than each by itself: they have
// the same vaults. So it is asked of the one that has least room, of that and the next one, and so on.
func (l load) wants(peers []migration.Peer) (bytes int64) {
	room := func(stores ...string) (n int64) {
		for _, p := range peers {
			n += p.RoomFor(stores...)
		}
		return n
	}
	stores := slices.SortedFunc(maps.Keys(l.of), func(a, b string) int {
		return cmp.Or(cmp.Compare(room(a), room(b)), cmp.Compare(a, b))
	})
	var here stock
	for i, s := range stores {
		here = here.plus(l.of[s])
		bytes = max(bytes, part(here.bytes, here.takes-room(stores[:i+1]...), here.takes))
	}
	return bytes + l.large.Bytes
}

// spills is how many of so many bytes that find no room at the peers find none in the fallback's directory either.
func (l load) spills(wants int64) int64 {
	small, here := wants-l.large.Bytes, l.Bytes-l.large.Bytes
	bytes := part(l.aside.bytes, small, here) + l.largest.bytes
	none := part(wants, bytes-l.room.Bytes, bytes)
	if l.room.Files > 0 {
		files := part(l.aside.files, small, here) + l.largest.files
		none = max(none, part(wants, files-l.room.Files, files))
	}
	return none
}

// part is as much of all as some is of a whole: what is lost of blocks whose sizes differ is as if they were all alike.
func part(all, some, whole int64) int64 {
	if some <= 0 || whole <= 0 {
		return 0
	}
	return int64(math.Ceil(float64(all) * min(1, float64(some)/float64(whole))))
}
