package migration

import (
	"context"
	"io/fs"
	"iter"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// packedAndAway yields the landed blocks that a look through the stores does not meet: those whose bytes are in segments, and
// those in place whose disk is not mounted, which stay behind. An error comes with the id of the block that it is about, if it
// is about one.
func packedAndAway(v *vault.Vault, stores []*inventory.Store) iter.Seq2[inventory.Item, error] {
	return func(yield func(inventory.Item, error) bool) {
		for r, err := range v.Catalog.All() {
			switch {
			case err != nil:
				if !yield(inventory.Item{Block: v.Unreadable(r)}, err) {
					return
				}
			case r.Segment != 0:
				if !yield(inventory.Item{Block: v.Block(r)}, nil) {
					return
				}
			default:
				if why := r.AwayFrom(stores); why != nil && !yield(inventory.Item{Block: v.Block(r), Stays: why.Error()}, nil) {
					return
				}
			}
		}
	}
}

// carried yields the blocks of the vault. A block that once left from here and came back, and that a store of this node has
// itself, is left out, or skipped where its version is another: a block is carried once, and the store's version is the one that
// its engine knows.
func carried(v *vault.Vault, stores []*inventory.Store) iter.Seq2[inventory.Item, error] {
	return func(yield func(inventory.Item, error) bool) {
		var glance inventory.Glance
		defer glance.Close()
		for it, err := range packedAndAway(v, stores) {
			if s := inventory.StoreOf(stores, it.ID); err == nil && s != nil && !glance.Lacks(s, it.ID, inventory.Nobody) {
				own, found := s.Find(it.ID)
				switch {
				case found != nil:
				case own.Bytes() == it.Bytes() && own.Modified().Equal(it.Modified()):
					continue
				default:
					it.Skip = "the node's own store has it, in another version"
				}
			}
			if !yield(it, err) {
				return
			}
		}
	}
}

// Inventory yields what a node has to carry: the blocks of its stores, and those that landed in its vault from others.
func Inventory(ctx context.Context, stores []*inventory.Store, v *vault.Vault) iter.Seq2[inventory.Item, error] {
	return func(yield func(inventory.Item, error) bool) {
		for _, s := range stores {
			for it, err := range s.Scan(ctx) {
				if !yield(it, err) {
					return
				}
			}
		}
		for it, err := range carried(v, stores) {
			if !yield(it, err) {
				return
			}
		}
	}
}

func findIn(stores []*inventory.Store, id inventory.BlockID) (inventory.Block, error) {
	if s := inventory.StoreOf(stores, id); s != nil {
		return s.Find(id)
	}
	return inventory.Block{}, fs.ErrNotExist
}
