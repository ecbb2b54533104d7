package plan

import (
	"math"
	"slices"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Room is what may still be sent to a peer.
type Room struct {
	Most   int64
	Vault  int64 // of that, for blocks that can only go to the vault
	Places []string
	Larger MoreThan // than this, or a block is left to others
}

// untold is the room in the vault of who has none, and puts all in its place: a fallback.
const untold = math.MaxInt64

// RoomOf is the same room for every block.
func RoomOf(bytes int64) Room { return Room{Most: bytes, Vault: untold} }

// InVault reports whether the blocks of a store can only go to the vault.
func (r *Room) InVault(store string) bool {
	return r.Vault != untold && !slices.Contains(r.Places, store)
}

// Left is what there is room for of a store.
func (r *Room) Left(store string) int64 {
	if r.Vault < r.Most && r.InVault(store) {
		return r.Vault
	}
	return r.Most
}

// Add counts a block out of what is left where it goes, or back in.
func (r *Room) Add(b *inventory.Block, bytes int64) {
	r.Most += bytes
	if r.InVault(b.ID.Store()) {
		r.Vault += bytes
	}
}

// Refuses notes that there is no room for a block where it would go.
func (r *Room) Refuses(b *inventory.Block) {
	where := &r.Most
	if r.InVault(b.ID.Store()) {
		where = &r.Vault
	}
	*where = min(*where, b.Bytes()-1)
}

// MoreThan is, by store, what a block must be larger than. Nil: any is.
type MoreThan map[string]int64

// AnyStore has what goes for the blocks of stores that this node does not have: they landed here.
const AnyStore = ""

// of is what a block of a store must be larger than.
func (m MoreThan) of(store string) int64 {
	if m == nil {
		return -1
	}
	if bytes, ok := m[store]; ok {
		return bytes
	}
	return m[AnyStore]
}
