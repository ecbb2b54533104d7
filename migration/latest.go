package migration

import (
	"hash/maphash"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// latest are the newest versions of blocks that are known of, by half of their hashes: 16 bytes each. A block that becomes again what it
// was before is news.
type latest struct {
	seed maphash.Seed
	of   map[uint64]uint64 // by a hash of the id: of two that share one, each is news after the other
}

func newLatest() latest { return latest{maphash.MakeSeed(), map[uint64]uint64{}} }

func (l latest) has(id inventory.BlockID) bool {
	_, has := l.of[maphash.String(l.seed, string(id))]
	return has
}

func (l latest) is(id inventory.BlockID, v manifest.Version) bool {
	return l.of[maphash.String(l.seed, string(id))] == v.Half()
}

func (l latest) set(id inventory.BlockID, v manifest.Version) {
	l.of[maphash.String(l.seed, string(id))] = v.Half()
}

// drop forgets a version if it is the newest.
func (l latest) drop(id inventory.BlockID, v manifest.Version) {
	if l.is(id, v) {
		delete(l.of, maphash.String(l.seed, string(id)))
	}
}
