package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/migration"
)

// load is what a drain would carry now.
type load struct {
	migration.Count
	of map[string]int64 // bytes, by store, but for what is large

	large    migration.Count // of what it would carry, larger than any peer has room for in one place
	largeIDs []string        // the first of these, and how large

	stays  migration.Count // and what it would lose whoever has room for it
	unread int64           // directories of which nobody knows what that is
	why    []string        // of the first of these
}

// mostStaying is how many are named of those that would be lost for sure: a person looks at some, and there may be millions.
const mostStaying = 5

// drainable looks through the stores for what a drain would carry to these peers.
func (a *Agent) drainable(ctx context.Context, peers []migration.Peer) (l load, err error) {
	l.of = map[string]int64{}
	most := mostOf(peers)
	for it, err := range migration.Inventory(ctx, a.stores, a.vault) {
		if why, dir := migration.Stranded(it, err); why != "" {
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
			l.add(&it.Block, most(it.ID.Store()))
		}
	}
	return l, ctx.Err()
}

// add counts a block that some peer, if any has room at all, has room for if it has no more than so many bytes. The files of one may lie
// on several disks of a peer.
func (l *load) add(b *migration.Block, most int64) {
	for _, m := range b.Members {
		if most == 0 || m.Bytes <= most {
			continue
		}
		l.large.Blocks++
		l.large.Bytes += b.Bytes()
		if len(l.largeIDs) < mostStaying {
			l.largeIDs = append(l.largeIDs, fmt.Sprintf("%s: %s, and no peer has room for more than %s in one place", b.ID, config.Bytes(b.Bytes()).Rough(), config.Bytes(most).Rough()))
		}
		return
	}
	l.of[b.ID.Store()] += b.Bytes()
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
	here := int64(0)
	for i, s := range stores {
		here += l.of[s]
		bytes = max(bytes, here-room(stores[:i+1]...))
	}
	return bytes + l.large.Bytes
}
