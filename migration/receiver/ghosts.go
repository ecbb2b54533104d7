package receiver

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// An engine may remove or replace the files of blocks that landed in place, for instance with its app's other files, and may
// rewrite a block that came home to the vault. It tells nobody. The record that stays is a ghost: it counts against the quota and
// sends readers here, for as long as blocks are kept.

// takenOver is why a ghost is not held any more.
const takenOver = "an engine removed or replaced its files there"

// DropGhosts looks for ghosts among the landed blocks and removes them. It returns for how long it worked.
func (r *removal) DropGhosts(ctx context.Context) time.Duration {
	if r.door.leaving() || r.storesAway() || !r.lookingForGhosts.CompareAndSwap(false, true) {
		return 0
	}
	worked, hangs := diskio.InStints(ctx, r.storesAway, r.door.leaving, func(ctx context.Context, rest func() bool) {
		defer r.lookingForGhosts.Store(false)
		gone, err := r.removeAll(ctx, takenOver, func(rec catalog.Record) bool { return rest() && r.ghost(rec) }, nil)
		if gone.Blocks > 0 {
			r.cfg.Log.Info("engines removed or replaced what had landed: it is not held any more", "blocks", gone.Blocks, "bytes", gone.Bytes)
		}
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Warn("not all blocks that engines removed could be struck from the catalog: it is tried again", "err", err)
		}
	})
	if hangs {
		r.cfg.Log.Warn("a disk hangs that has blocks which landed in place: files that engines removed count until it answers")
	}
	return worked
}

// lay removes the record of a ghost, unless another version has taken its place since it was read.
func (r *removal) lay(ghost catalog.Record) error {
	c := r.cfg.Vault.Catalog
	c.Writing.Lock()
	defer c.Writing.Unlock()
	gone, err := c.Remove([]catalog.Record{ghost})
	if len(gone) > 0 {
		r.removed(takenOver)(gone)
	}
	return err
}

// ghost reports whether a file of a block in place is no longer the one that landed, or whether an engine has rewritten a block that
// came home to the vault. In a directory without a staging directory nothing ever landed: a disk that is not mounted, or mounted
// elsewhere, looks like that, and its records are no ghosts.
func (r *removal) ghost(rec catalog.Record) bool {
	s := r.stores[inventory.BlockID(rec.ID).Store()]
	if rec.Segment != 0 || s == nil {
		return rec.Outdone(s, r.cfg.Node)
	}
	for _, p := range rec.Placed {
		if p.Root >= len(s.Roots) || s.AwayWhy[p.Root] != nil {
			return false
		}
		info, err := s.Roots[p.Root].Lstat(p.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			_, err := s.Roots[p.Root].Lstat(inventory.StagingDir)
			return err == nil
		case err != nil:
			return false
		case info.ModTime().UnixNano() != p.ModTime:
			return true
		}
	}
	return false
}
