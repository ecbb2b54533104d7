package registry

import (
	"cmp"
	"maps"
	"slices"

	"github.com/lifeboat/lifeboat/api"
)

// Mark is the last event that a webhook was sent. The next leader goes on from there.
type Mark struct {
	Hook  string    `json:"hook"`
	Place api.Place `json:"place"`
}

// KeptMarks bounds the marks, so that those of webhooks that no settings name any more go in the end. Settings have half as many webhooks
// at most.
const KeptMarks = 32

// moves reports whether to would change the mark of its webhook.
func (m *Registry) moves(to *Mark) bool {
	return to != nil && m.Hooks[to.Hook] != *to
}

func (m *Registry) mark(to *Mark) {
	if !m.moves(to) {
		return
	}
	hooks := map[string]Mark{to.Hook: *to}
	for _, was := range slices.SortedFunc(maps.Values(m.Hooks), func(a, b Mark) int {
		return cmp.Or(b.Place.Compare(a.Place), cmp.Compare(a.Hook, b.Hook)) // the furthest first
	}) {
		if was.Hook != to.Hook && len(hooks) < KeptMarks {
			hooks[was.Hook] = was
		}
	}
	m.Hooks = hooks
}
