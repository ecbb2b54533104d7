package agent

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/lifeboat/lifeboat/migration"
)

// load is what a drain would carry now.
type load struct {
	migration.Count
	of map[string]int64 // bytes, by store

	stays  migration.Count // and what it would lose whoever has room for it
	unread int64           // directories of which nobody knows what that is
	why    []string        // of the first of these
}

// mostStaying is how many are named of those that would be lost for sure: a person looks at some, and there may be millions.
const mostStaying = 5

func (a *Agent) drainable(ctx context.Context) (l load, err error) {
	l.of = map[string]int64{}
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
			l.of[it.ID.Store()] += it.Bytes()
		}
	}
	return l, ctx.Err()
}

// wants is how many of these bytes, at least, find no room at the peers. Some stores together may find less than each by itself: they have
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
	return bytes
}
