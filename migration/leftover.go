package migration

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
)

// AnyLeft reports whether there is something here that is in no account of the drain of cfg, which is over, as moved or as skipped: a
// process that starts anew may find a disk mounted that was not, and what was written since. A disk that hangs holds it up until ctx ends.
func AnyLeft(ctx context.Context, cfg DrainConfig) (some bool, err error) {
	return unlessHung(ctx, func() (bool, error) { return anyLeft(ctx, cfg) })
}

// AppsLeft are the apps of which a drain in that directory has left something behind because they were over.
func AppsLeft(dir string) ([]string, error) {
	apps := map[string]bool{}
	for e, err := range readLedger(ledgerPath(dir, Skipped)) {
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(e.Reason, itsAppIsOver) {
			apps[BlockID(e.ID).App()] = true
		}
	}
	return slices.Sorted(maps.Keys(apps)), nil
}

func anyLeft(ctx context.Context, cfg DrainConfig) (some bool, err error) {
	history, _, err := recall(cfg.Dir, doubt{})
	if err != nil {
		return false, err
	}
	left := ledgerPath(cfg.Dir, Skipped)
	skipped := newMetIDs(0)
	if info, err := os.Stat(left); err == nil {
		skipped = newMetIDs(32 * info.Size() / lineBytes)
	}
	for e, err := range readLedger(left) {
		if err != nil {
			return false, err
		}
		skipped.add(e.ID)
	}
	look := func(it Item, err error) (goOn bool) {
		if err == nil && it.ID != "" && it.Skip == "" && it.Stays == "" && !skipped.has(string(it.ID)) {
			some, _ = history.first(it.Block, false)
		}
		return !some && ctx.Err() == nil
	}
	for _, s := range cfg.Stores {
		for it, err := range s.Scan(ctx) {
			if !look(it, err) {
				return some, ctx.Err()
			}
		}
	}
	for it, err := range cfg.Vault.carried(cfg.Stores) {
		if !look(it, err) {
			break
		}
	}
	return some, ctx.Err()
}
