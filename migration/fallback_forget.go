package migration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// What a withdrawn drain put into the fallback, or one whose later pass found a peer, goes out of date like any peer's copy, and would be
// given to readers whenever those who have the block do not answer. Nobody answers for a fallback, so the node that the block was born on
// puts a record in the place of the one that is there, which says so. The bytes go when all that is old there does.

var errForgotten = errors.New("what is there is out of date")

// forget is what Fetcher.Forget is for a holder.
func (f *Fallback) forget(ctx context.Context, id inventory.BlockID, node, tag string) error {
	ctx, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	r, err := f.record(ctx, id)
	switch {
	case errors.Is(err, errForgotten), errors.Is(err, wire.ErrCorrupt): // nobody reads it
		return fs.ErrNotExist
	case err != nil:
		return fmt.Errorf("have %s forget %s: %w", f.Peer(), id, err)
	case r.Origin != node:
		return errNotOwned
	case r.tag() != tag:
		return errAnother
	}
	if err := f.putRecord(ctx, fallbackRecord{ID: r.ID, Origin: r.Origin, Place: r.Place, Modified: r.Modified, Forgotten: true}, false); err != nil {
		return fmt.Errorf("have %s forget %s: %w", f.Peer(), id, err)
	}
	return nil
}

// tag is what inventory.Tag is where the block landed at a peer.
func (r fallbackRecord) tag() string {
	var bytes int64
	for _, m := range r.Members {
		bytes += m.Bytes
	}
	return inventory.Tag(bytes, r.Modified.UnixNano())
}
