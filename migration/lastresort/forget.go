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

// A block in the fallback goes out of date like any peer's copy: when its drain was withdrawn, or found a peer for it in a later pass.
// Readers would be given it whenever the nodes that have the block do not answer. No agent runs at a fallback that could be told to
// forget it, so the node that the block was born on replaces the block's record by one that says so. The bytes go later, with all that
// is old there.

// ErrForgotten says that what the fallback has of a block is out of date, and nobody is to read it.
var ErrForgotten = errors.New("what is there is out of date")

// Forget marks what the fallback has of a block as out of date, if it is the version tag and was born on node. Its error is
// fs.ErrNotExist where there is none, and catalog.ErrKept where what is there stays.
func (s *Storage) Forget(ctx context.Context, id inventory.BlockID, node, tag string) error {
	done, err := s.change(ctx, id)
	if err != nil {
		return fmt.Errorf("have %s forget %s: %w", s.Peer(), id, err)
	}
	defer done()
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
	if err := s.write(ctx, Record{ID: r.ID, Origin: r.Origin, Place: r.Place, Modified: r.Modified, Forgotten: true}, false); err != nil {
		return fmt.Errorf("have %s forget %s: %w", s.Peer(), id, err)
	}
	return nil
}

// tag is the inventory.Tag of the recorded version, as a peer computes it of a block that landed there.
func (r Record) tag() string {
	var bytes int64
	for _, m := range r.Members {
		bytes += m.Bytes
	}
	return inventory.Tag(bytes, r.Modified.UnixNano())
}
