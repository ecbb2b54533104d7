package migration

import (
	"math"
	"slices"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// room is what may still be sent to a peer.
type room struct {
	most   int64
	vault  int64 // of that, for blocks that can only go to the vault
	places []string
	larger moreThan // than this, or a block is left to others
}

// untold is the room in the vault of a peer that does not tell it: as much as there is.
const untold = math.MaxInt64

// roomOf is the same room for every block.
func roomOf(bytes int64) room { return room{most: bytes, vault: untold} }

// inVault reports whether the blocks of a store can only go to the vault.
func (r *room) inVault(store string) bool {
	return r.vault != untold && !slices.Contains(r.places, store)
}

func (r *room) left(store string) int64 {
	if r.vault < r.most && r.inVault(store) {
		return r.vault
	}
	return r.most
}

// add counts a block out of what is left where it goes, or back in.
func (r *room) add(b *inventory.Block, bytes int64) {
	r.most += bytes
	if r.inVault(b.ID.Store()) {
		r.vault += bytes
	}
}

// refuses notes that there is no room for a block where it would go.
func (r *room) refuses(b *inventory.Block) {
	where := &r.most
	if r.inVault(b.ID.Store()) {
		where = &r.vault
	}
	*where = min(*where, b.Bytes()-1)
}

// moreThan is, by store, what a block must be larger than. Nil: any is.
type moreThan map[string]int64

// anyStore has what goes for the blocks of stores that this node does not have: they landed here.
const anyStore = ""

func (m moreThan) of(store string) int64 {
	if m == nil {
		return -1
	}
	if bytes, ok := m[store]; ok {
		return bytes
	}
	return m[anyStore]
}
