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

// load is what a drain would carry now, and what of it would find room.
type load struct {
	inventory.Count
	takes int64            // bytes of room at peers, with the blocks' records
	of    map[string]stock // by store, without the large blocks
	room  *fallback.Room   // of the fallback; nil: there is none, or it does not tell
	aside need             // of the blocks that are not large, in the fallback

	large    inventory.Count // blocks with a file larger than any peer has room for in one place
	largeIDs []string        // the first of these, with their sizes
	largest  need            // of the large blocks, in the fallback

	stays  inventory.Count // blocks that would be lost however much room there is
	unread int64           // directories that cannot be listed: what would be lost there is not known
	why    []string        // for the first blocks and directories of these
}

// mostStaying is how many blocks of a kind are named: a person looks at some, and there may be millions.
const mostStaying = 5

// stock is the bytes of some blocks, and the room that they take at peers.
type stock struct{ bytes, takes int64 }

func (s stock) plus(o stock) stock { return stock{s.bytes + o.bytes, s.takes + o.takes} }

// need is room in a fallback's directory.
type need struct{ bytes, files int64 }

// add adds a block: its files, and one more for its record.
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

// add counts a block: as large if one of its files has more than most bytes, which is the largest room of any peer; 0: no
// peer has room, and no block counts as large. The files of one block may lie on several disks of a peer.
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

// mostOf returns a function that says how large a file of a store may be for one of these peers to have room for it; 0: none
// has any.
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

// wants is how many bytes, at least, find no room at the peers. Several stores together may find less room than each by
// itself, because they share the peers' vaults. So it looks at the store with the least room, then at that and the next one
// together, and so on.
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

// spills is how many of those bytes find no room in the fallback's directory either.
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

// part is the share of all that some is of whole, rounded up: it takes blocks of different sizes as if they were all alike.
func part(all, some, whole int64) int64 {
	if some <= 0 || whole <= 0 {
		return 0
	}
	return int64(math.Ceil(float64(all) * min(1, float64(some)/float64(whole))))
}
