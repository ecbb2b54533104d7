package migration

import (
	"cmp"
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/receiver"
)

// AnyLeft reports whether a block is here that the account of the drain of cfg, which is over, does not name: one that was written,
// changed or landed since, or, where a process starts anew, lies on a disk that was not mounted. A lost block is left, too, if again says so,
// which is told whether the block may well leave now: it was lost because time was up, or while its disk did not answer, or because it kept
// changing, and it has come to rest. An error says that this is not known, as where a disk does not answer. A disk that hangs holds it up
// until ctx ends.
func AnyLeft(ctx context.Context, cfg DrainConfig, again func(b *inventory.Block, late bool) bool) (some bool, err error) {
	return diskio.UnlessHung(ctx, func() (bool, error) { return anyLeft(ctx, cfg, again) })
}

// AppsLeft are the apps of which a drain in that directory has left something behind because they were over.
func AppsLeft(dir string) ([]string, error) {
	apps := map[string]bool{}
	for e, err := range manifest.Read(manifest.Path(dir, manifest.Skipped)) {
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(e.Reason, receiver.ItsAppIsOver) {
			apps[inventory.BlockID(e.ID).App()] = true
		}
	}
	return slices.Sorted(maps.Keys(apps)), nil
}

func anyLeft(ctx context.Context, cfg DrainConfig, again func(b *inventory.Block, late bool) bool) (some bool, err error) {
	history, _, err := recall(cfg.Dir, doubt{})
	if err != nil {
		return false, err
	}
	type fate struct{ named, lost, late, restless bool }
	seed, fates := maphash.MakeSeed(), map[uint64]fate{}
	for _, o := range []manifest.Outcome{manifest.Skipped, manifest.Lost} {
		for e, err := range manifest.Read(manifest.Path(cfg.Dir, o)) {
			if err != nil {
				return false, err
			}
			if !strings.Contains(e.Reason, itIsDeleted) { // a block of that name that is here now is another
				restless := strings.HasSuffix(e.Reason, inventory.ErrChanged.Error())
				late := restless || strings.HasPrefix(e.Reason, timeWasUp) || diskio.SaysSilent(e.Reason) // a block that is met lies on a disk that answers
				fates[maphash.String(seed, e.ID)] = fate{true, o == manifest.Lost, late, restless}
			}
		}
	}
	rests := func(b *inventory.Block) bool { return time.Since(b.Modified()).Abs() > backOffMost } // else a pass would send it in vain
	open := func(b *inventory.Block) bool {
		is := fates[maphash.String(seed, string(b.ID))]
		return !is.named || is.lost && (!is.restless || rests(b)) && again(b, is.late)
	}
	var silent error
	look := func(it inventory.Item, err error) (goOn bool) {
		if diskio.IsSilent(err) {
			silent = err
		}
		if err == nil && it.ID != "" && it.Skip == "" && it.Stays == "" && open(&it.Block) {
			some, _ = history.first(it.Block, false)
		}
		return !some && ctx.Err() == nil
	}
	for it, err := range Inventory(ctx, inventory.Renewed(cfg.Stores, diskio.OrWell(cfg.Disks), cfg.Log), cfg.Vault) {
		if !look(it, err) {
			break
		}
	}
	if some {
		return true, nil
	}
	return false, cmp.Or(ctx.Err(), silent)
}
