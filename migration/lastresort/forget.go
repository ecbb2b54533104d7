package lastresort

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// What a withdrawn drain put into the fallback, or one whose later pass found a peer, goes out of date like any peer's copy, and would be
// given to readers whenever those who have the block do not answer. Nobody answers for a fallback, so the node that the block was born on
// puts a record in the place of the one that is there, which says so. The bytes go when all that is old there does.

// ErrForgotten says that nobody is to read what is there.
var ErrForgotten = errors.New("what is there is out of date")

// Forget has a version forgotten of a block that was born on a node. fs.ErrNotExist says that there is none, catalog.ErrKept that what is
// there stays.
func (s *Storage) Forget(ctx context.Context, id inventory.BlockID, node, tag string) error {
	r, err := s.Record(ctx, id)
	switch {
	case errors.Is(err, ErrForgotten), errors.Is(err, wire.ErrCorrupt): // nobody reads it
		return fs.ErrNotExist
	case err != nil:
		return fmt.Errorf("have %s forget %s: %w", s.Peer(), id, err)
	}
	if err := catalog.Forgettable(node, tag, r.Origin, r.tag()); err != nil {
		return err
	}
	if err := s.PutRecord(ctx, Record{ID: r.ID, Origin: r.Origin, Place: r.Place, Modified: r.Modified, Forgotten: true}, false); err != nil {
		return fmt.Errorf("have %s forget %s: %w", s.Peer(), id, err)
	}
	return nil
}

// tag is what inventory.Tag is where the block landed at a peer.
func (r Record) tag() string {
	var bytes int64
	for _, m := range r.Members {
		bytes += m.Bytes
	}
	return inventory.Tag(bytes, r.Modified.UnixNano())
}
