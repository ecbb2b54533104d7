package registry

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"
)

// ErrNotAway is why a node may not be forgotten by name: whoever else is gone may come back to what is remembered of it.
var ErrNotAway = errors.New("only a node that is LOST or GONE is forgotten")

// keptFates bounds the forgotten nodes of which it is known since when they are gone, some 50 bytes each.
const keptFates = 16384

// fates are since when nodes are gone that are forgotten: what was born on one stays with whoever took it for receive.keep from then on,
// which may be longer than forget_after.
type fates map[string]time.Time

// with is fates with nodes that are forgotten. One that was done may have stayed until now.
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
