package coordinator

import (
	"cmp"
	"maps"
	"slices"

	"github.com/lifeboat/lifeboat/api"
)

// mark is how far a webhook is: whoever leads next goes on from there.
type mark struct {
	Hook  string    `json:"hook"`
	Place api.Place `json:"place"`
}

// keptMarks bounds the marks of webhooks that no settings name any more. Those in the settings are fewer.
const keptMarks = 2 * maxWebhooks

// moves says whether to is news.
func (m *machine) moves(to *mark) bool {
	return to != nil && m.Hooks[to.Hook] != *to
}

func (m *machine) mark(to *mark) {
	if !m.moves(to) {
		return
	}
	hooks := map[string]mark{to.Hook: *to}
	for _, was := range slices.SortedFunc(maps.Values(m.Hooks), func(a, b mark) int {
		return cmp.Or(b.Place.Compare(a.Place), cmp.Compare(a.Hook, b.Hook)) // those that are furthest, first
	}) {
		if was.Hook != to.Hook && len(hooks) < keptMarks {
			hooks[was.Hook] = was
		}
	}
	m.Hooks = hooks
}
