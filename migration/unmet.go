package migration

import (
	"context"
	"hash/maphash"
)

// A drain is over when a look finds nothing new, mostly long before the machine is: its engines go on writing, and what was on its way
// here goes on landing. So its agent looks again, for as long as there is time to carry what it finds.

// Unmet reports whether there is something to carry of which the account of the drain of cfg, which is over, says nothing: what was
// written, changed or landed since. What that account names as lost or skipped stays so. A disk that hangs holds it up until ctx ends.
func Unmet(ctx context.Context, cfg DrainConfig) (some bool, err error) {
	return unlessHung(ctx, func() (bool, error) { return anyUnmet(ctx, cfg) })
}

func anyUnmet(ctx context.Context, cfg DrainConfig) (bool, error) {
	moved, _, err := recall(cfg.Dir, doubt{})
	if err != nil {
		return false, err
	}
	seed, named := maphash.MakeSeed(), map[uint64]bool{}
	for _, o := range []Outcome{Moved, Lost, Skipped} {
		for e, err := range readLedger(ledgerPath(cfg.Dir, o)) {
			if err != nil {
				return false, err
			}
			if _, known := e.version(); !known || o != Moved {
				named[maphash.String(seed, e.ID)] = true
			}
		}
	}
	for it, err := range Inventory(ctx, renewed(cfg.Stores, orWell(cfg.Disks), cfg.Log), cfg.Vault) {
		if err != nil || !it.Carried() || named[maphash.String(seed, string(it.ID))] {
			continue
		}
		if first, _ := moved.first(it.Block, false); first {
			return true, nil
		}
	}
	return false, ctx.Err()
}
