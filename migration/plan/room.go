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
	Larger MoreThan // a block that is not larger than this is left to other peers
}

// untold is the Vault of a peer without a vault, where every block goes to its place: a fallback.
const untold = math.MaxInt64

// RoomOf returns a Room with so many bytes for any block.
func RoomOf(bytes int64) Room { return Room{Most: bytes, Vault: untold} }

// InVault reports whether the blocks of a store can only go to the vault.
func (r *Room) InVault(store string) bool {
	return r.Vault != untold && !slices.Contains(r.Places, store)
}

// Left returns how many bytes of a store's blocks there is room for.
func (r *Room) Left(store string) int64 {
	if r.Vault < r.Most && r.InVault(store) {
		return r.Vault
	}
	return r.Most
}

// Add takes a block off what is left where it goes, with bytes below zero, or gives that back.
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

// MoreThan has, by store, the bytes that a block must be larger than. Nil: every block is.
type MoreThan map[string]int64

// AnyStore is the key of what goes for blocks of stores that this node does not have: they landed here.
const AnyStore = ""

// of returns the bytes that a block of a store must be larger than.
func (m MoreThan) of(store string) int64 {
	if m == nil {
		return -1
	}
	if bytes, ok := m[store]; ok {
		return bytes
	}
	return m[AnyStore]
}
