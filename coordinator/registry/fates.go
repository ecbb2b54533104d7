package registry

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"
)

// ErrNotAway refuses to forget a node by name. A node in any other state may come back, and needs its record then.
var ErrNotAway = errors.New("only a node that is LOST or GONE is forgotten")

// keptFates bounds the fates, some 50 bytes each.
const keptFates = 16384

// fates says since when each forgotten node has been gone. Peers keep the blocks that were born on a node for receive.keep after it is
// gone, which may be longer than forget_after.
type fates map[string]time.Time

// with is f with more forgotten nodes. A DECOMMISSIONED node may have stayed until now, so it counts as gone from now on.
func (f fates) with(forgotten []Node, now time.Time) fates {
	if len(forgotten) == 0 {
		return f
	}
	if f = maps.Clone(f); f == nil {
		f = fates{}
	}
	for _, n := range forgotten {
		if f[n.Name] = n.Since; n.State == Decommissioned {
			f[n.Name] = now
		}
	}
	if more := len(f) - keptFates; more > 0 {
		names := slices.SortedFunc(maps.Keys(f), func(a, b string) int { return cmp.Or(f[a].Compare(f[b]), cmp.Compare(a, b)) })
		for _, name := range names[:more] {
			delete(f, name)
		}
	}
	return f
}
