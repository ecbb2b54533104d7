package receiver

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// contradicts returns ErrConflict if the record under a block's id has another origin and other content. A newer version from the same
// origin may land, and any block may land in the place of a record that cannot be read.
func contradicts(old catalog.Record, err error, r *catalog.Record) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, wire.ErrCorrupt):
		return nil
	case err != nil:
		return err
	}
	return old.Against(r)
}

// heed notes what stands against a block. A superseded block counts as here already: its id is here, and nobody is to look
// for the old bytes.
func (l *landed) heed(against error) {
	if l.already = errors.Is(against, catalog.ErrSuperseded); !l.already {
		l.fault = against
	}
}

// contradictions notes a fault on each block that conflicts with a landed block or with an earlier one of the batch. The
// batch is in the order of ids. A block that was compared with the catalog before is compared again only if the catalog
// has changed since.
func contradictions(c *catalog.Catalog, batch []*landed) {
	err := c.Look(0, func(look *catalog.Lookup) {
		var last *landed
		for _, l := range batch {
			if l.already || l.fault != nil {
				continue
			}
			if l.compared != look.State {
				there, err := look.Record(l.ID)
				l.compared, l.fresh = look.State, errors.Is(err, fs.ErrNotExist)
				l.heed(contradicts(there, err, &l.Record))
			}
			if last != nil && last.ID == l.ID && l.fault == nil && !l.already {
				l.heed(last.Against(&l.Record))
			}
			if l.fault == nil && !l.already {
				last = l
			}
		}
	})
	if err != nil {
		failAll(batch, err)
	}
}

// change returns the record for the catalog, together with what contradictions has found out about its id.
func (l *landed) change() catalog.Change {
	if !l.fresh {
		return catalog.Change{Record: &l.Record}
	}
	return catalog.Change{Record: &l.Record, Fresh: l.compared}
}

// inPlace returns the blocks whose files get names, in the order of ids.
func inPlace(batch []*landed) (named []*landed) {
	for _, l := range batch {
		if l.store != nil {
			named = append(named, l)
		}
	}
	return inOrder(named)
}

// inOrder sorts blocks by id, and leaves those of one id in the order in which they came. It gathers the ids first, for a
// sort looks at each of them a dozen times.
func inOrder(batch []*landed) []*landed {
	type place struct {
		id string
		at int
	}
	places := make([]place, len(batch))
	for i, l := range batch {
		places[i] = place{l.ID, i}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Or(strings.Compare(a.id, b.id), a.at-b.at) })
	sorted := make([]*landed, len(batch))
	for i, p := range places {
		sorted[i] = batch[p.at]
	}
	return sorted
}

// contradictsOwn returns ErrConflict when the node's own store has other bytes under the id of a block that is about to
// land, and ErrSuperseded when the store has a newer version of the node's own block. A block of other sizes need not be
// read. A block that is read may be as large as its disk, so contradictsOwn calls at, with the directory, before it looks
// into a directory and before each chunk.
func contradictsOwn(s *inventory.Store, r catalog.Record, node string, at func(dir *string)) error {
	own, err := s.Shape.Find(s, inventory.BlockID(r.ID), at)
	if err != nil || own.ID != inventory.BlockID(r.ID) {
		return nil // nothing that could be read under that id
	}
	if slices.EqualFunc(own.Members, r.Members, func(m inventory.Member, other wire.MemberSize) bool { return m.Bytes == other.Bytes }) {
		if sum, err := sumOf(s, own, at); err != nil || sum == r.Sum {
			return nil
		}
	}
	if r.Origin == node && own.Modified().UnixNano() > r.ModTime {
		return catalog.ErrSuperseded
	}
	if catalog.SameOutput(r.ID, wire.AppendSizes(nil, own.Members), r.Members) {
		return nil
	}
	return fmt.Errorf("%w, of other content, in the node's own store", catalog.ErrConflict)
}

// sumOf reads a block of the store and returns its checksum.
func sumOf(s *inventory.Store, b inventory.Block, at func(dir *string)) (wire.Sum, error) {
	sum := wire.NewSummer()
	buf := make([]byte, wire.ChunkBytes)
	for _, m := range b.Members {
		at(&s.Paths[m.Root])
		f, err := s.Open(m)
		if err != nil {
			return wire.Sum{}, err
		}
		sum.Member(m.Bytes)
		for left := m.Bytes; left > 0 && err == nil; left -= wire.ChunkBytes {
			at(&s.Paths[m.Root])
			chunk := buf[:min(left, wire.ChunkBytes)]
			if _, err = io.ReadFull(f, chunk); err == nil {
				sum.Chunk(crc32.Checksum(chunk, wire.Castagnoli))
			}
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return wire.Sum{}, err
		}
	}
	return sum.Total(), nil
}

// failAll notes one fault on several blocks.
func failAll(blocks []*landed, err error) {
	for _, l := range blocks {
		l.fault = cmp.Or(l.fault, err)
	}
}
