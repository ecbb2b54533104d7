package receiver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// A landed block ends with its app, at an operator's word, or when it has been here long enough. First readers no longer
// find it, then the coordinator hears that it is gone, and last its space comes back.

// removal takes away what landed, once it has ended.
type removal struct {
	cfg *Config
	*volumes
	door      *door
	unpackers *unpackers
	waste     <-chan struct{} // gets one when segments have much space to give back

	lookingForGhosts atomic.Bool // a look is under way, or hangs on a disk
}

// errRemoved says that a block was removed, or became files, while it came again.
var errRemoved = errors.New("what was here is being moved or removed: send it again")

// Remove removes the landed blocks that asked picks, and returns their count. Blocks on disks that do not answer stay, and so
// do blocks that land anew at this moment; the error tells of the former. A reader of a block in a segment reads on to its
// end; a later reader is told why the block is gone.
func (r *removal) Remove(ctx context.Context, why string, asked func(vault.Held) bool) (removed inventory.Count, err error) {
	return r.removeAll(ctx, why, func(rec catalog.Record) bool { return asked(vault.HeldOf(rec)) }, nil)
}

// removeAll removes the blocks that asked picks; with a sift, of each batch of them only those that sift returns.
func (r *removal) removeAll(ctx context.Context, why string, asked func(catalog.Record) bool, sift func(context.Context, []catalog.Record) []catalog.Record) (removed inventory.Count, err error) {
	var batch []catalog.Record
	var errs []error
	made := madeDirs{}
	flush := func() {
		if sift != nil {
			batch = sift(ctx, batch)
		}
		n, err := r.removeBatch(batch, func(gone []catalog.Record) { made.note(r.stores, gone); r.removed(why)(gone) })
		removed, batch = removed.Plus(n), nil
		if err != nil {
			errs = append(errs, err)
		}
	}
	for rec, err := range r.cfg.Vault.Catalog.All() {
		if ctx.Err() != nil {
			errs = append(errs, ctx.Err())
			break
		}
		if err != nil || !asked(rec) { // a record that cannot be read is reported by its readers
			continue
		}
		if batch = append(batch, rec); len(batch) == catalog.Batch {
			flush()
		}
	}
	flush()
	return removed, errors.Join(append(errs, r.giveBack(ctx, made))...)
}

// giveBack frees what removed blocks took: the directories that were made for them, and their space in segments.
func (r *removal) giveBack(ctx context.Context, made madeDirs) error {
	for d := range made {
		if r.hangs(d.store.Paths[d.root]) == nil {
			d.clear()
		}
	}
	return r.cfg.Vault.Reclaim(ctx)
}

// removeBatch removes files first, then records. A crash between the two leaves records of files that are gone: readers
// get a 404, and the next removal takes the records. The other way round a crash would leave files that nobody knows of.
// tell hears of the removed blocks while nothing else is committed.
func (r *removal) removeBatch(batch []catalog.Record, tell func([]catalog.Record)) (removed inventory.Count, err error) {
	var errs []error
	store := func(rec catalog.Record) string { return inventory.BlockID(rec.ID).Store() }
	for len(batch) > 0 {
		n := 1
		for n < len(batch) && store(batch[n]) == store(batch[0]) {
			n++
		}
		gone, err := r.removeOf(store(batch[0]), batch[:n], tell)
		removed, batch, errs = removed.Plus(gone), batch[n:], append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// removeOf is removeBatch for blocks of one store.
func (r *removal) removeOf(store string, batch []catalog.Record, tell func([]catalog.Record)) (inventory.Count, error) {
	var errs []error
	var going []catalog.Record
	var claimed []catalog.Record
	touched := map[*inventory.Store][]place{}
	c := r.cfg.Vault.Catalog
	defer r.unpackers.pause(store)()
	for _, rec := range batch {
		rec = r.cfg.Vault.Now(rec)
		if len(rec.Placed) > 0 {
			if !r.cfg.Vault.ClaimRemoval(inventory.BlockID(rec.ID)) {
				continue // it is landing anew
			}
			defer r.cfg.Vault.Unclaim(inventory.BlockID(rec.ID))
		}
		claimed = append(claimed, rec)
	}
	still, err := c.Unchanged(claimed)
	if err != nil {
		return inventory.Count{}, err
	}
	for _, rec := range still {
		err := r.answers(rec)
		if err == nil {
			err = r.unplace(rec, touched)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", rec.ID, err))
			continue
		}
		going = append(going, rec)
	}
	for s, dirs := range touched {
		if err := syncAll(s, dirs, new(diskio.Work), func(int, time.Duration, error) {}); err != nil {
			return inventory.Count{}, errors.Join(append(errs, err)...)
		}
	}
	c.Writing.Lock()
	defer c.Writing.Unlock()
	gone, err := c.Remove(going)
	var sum inventory.Count
	for _, rec := range gone {
		sum = sum.Plus(inventory.Count{Blocks: 1, Bytes: rec.Bytes()})
	}
	if len(gone) > 0 {
		tell(gone)
	}
	return sum, errors.Join(append(errs, err)...)
}

// madeDir is a directory that was made for blocks that landed in place.
type madeDir struct {
	store *inventory.Store
	place
}

type madeDirs map[madeDir]bool

func (m madeDirs) note(stores map[string]*inventory.Store, gone []catalog.Record) {
	for _, rec := range gone {
		s := stores[inventory.BlockID(rec.ID).Store()]
		if s == nil || rec.Segment != 0 {
			continue
		}
		dir := s.Shape.Made(inventory.BlockID(rec.ID))
		for _, p := range rec.Placed {
			if dir != "" && p.Root < len(s.Roots) {
				m[madeDir{s, place{p.Root, dir}}] = true
			}
		}
	}
}

// clear removes a directory, with the directories below it and then those above it, if all of them are empty. A block
// that lands there at this moment makes the directories it needs again (giveName), or is refused and sent again.
func (d madeDir) clear() {
	root := d.store.Roots[d.root]
	below, err := entriesIn(root, d.path)
	for _, sub := range below {
		if !sub.IsDir() {
			return
		}
		if entries, unread := entriesIn(root, path.Join(d.path, sub.Name())); unread != nil || len(entries) > 0 {
			return
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	for _, sub := range below {
		_ = root.Remove(path.Join(d.path, sub.Name()))
	}
	for dir := d.path; dir != "."; dir = path.Dir(dir) {
		if err := root.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
}

// removed returns a function that tells Gone of removed blocks, with the reason.
func (r *removal) removed(why string) func(gone []catalog.Record) {
	return func(gone []catalog.Record) {
		if r.cfg.Gone == nil {
			return
		}
		ids := make([]inventory.BlockID, 0, len(gone))
		for _, rec := range gone {
			ids = append(ids, inventory.BlockID(rec.ID))
		}
		r.cfg.Gone(ids, why)
	}
}

// unplace removes the files of a block in a store, if they are still the ones that landed: the index first, so that no
// engine sees half a block. A file that an engine has put in their place is the engine's own, and stays.
func (r *removal) unplace(rec catalog.Record, touched map[*inventory.Store][]place) error {
	s := r.stores[inventory.BlockID(rec.ID).Store()]
	if s == nil || len(rec.Placed) > len(rec.Members) {
		return nil
	}
	for _, last := range []bool{true, false} {
		for i, p := range rec.Placed {
			if s.Shape.Last(rec.Members[i].Name) != last || p.Root >= len(s.Roots) {
				continue
			}
			info, err := s.Roots[p.Root].Lstat(p.Path)
			if errors.Is(err, fs.ErrNotExist) || err == nil && info.ModTime().UnixNano() != p.ModTime {
				continue
			}
			if err == nil {
				err = s.Roots[p.Root].Remove(p.Path)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			touched[s] = append(touched[s], place{p.Root, path.Dir(p.Path)})
		}
	}
	return nil
}

// tidyEvery is how often the receiver looks for blocks that have been here too long. To the minute it does not matter,
// and each look reads the whole catalog.
const tidyEvery = time.Hour

// tidy removes blocks that have been here longer than Keep, and gives back space, until ctx ends.
func (r *removal) tidy(ctx context.Context) {
	wait := tidyEvery
	if r.cfg.Keep > 0 {
		wait = max(time.Second, min(wait, r.cfg.Keep/10))
	}
	for {
		r.tidyOnce(ctx, time.Now())
		for next := time.After(wait); next != nil; {
			select {
			case <-next:
				next = nil
			case <-r.waste:
				r.reclaim(ctx)
			case <-ctx.Done():
				return
			}
		}
	}
}

// reclaim gives back the space in segments that commits have left free.
func (r *removal) reclaim(ctx context.Context) {
	if err := r.cfg.Vault.Reclaim(ctx); err != nil && ctx.Err() == nil {
		r.cfg.Log.Warn("the space of blocks that came anew could not be given back: it is tried again", "err", err)
	}
}

func (r *removal) tidyOnce(ctx context.Context, now time.Time) {
	gone, err := inventory.Count{}, error(nil)
	if r.cfg.Keep > 0 {
		a := aged{cfg: r.cfg, now: now, gone: map[string]bool{}}
		gone, err = r.removeAll(ctx, fmt.Sprintf("it was kept for %s", r.cfg.Keep), a.old, a.ended)
	} else {
		err = r.cfg.Vault.Reclaim(ctx)
	}
	if gone.Blocks > 0 {
		r.cfg.Log.Info("removed what was kept for long enough", "blocks", gone.Blocks, "bytes", gone.Bytes, "keep", r.cfg.Keep)
	}
	if err != nil && ctx.Err() == nil {
		r.cfg.Log.Warn("not all that is over could be removed: it is tried again", "err", err)
	}
}
