package migration

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// scanPart looks through a part of a store for as long as its disks answer. If a disk hangs, the look that it holds up is left behind,
// and the part's other disks are read once more without it, but for what was met already. It returns false if that look hangs too
// while disks of the part answer: another look may come to their end.
func (v *survey) scanPart(ctx context.Context, s *inventory.Store, part int, take func(inventory.Item, error) bool) (ended bool) {
	dirs := s.PartDirs(part)
	began := time.Now()
	before := v.looks.before(dirs, began)
	look := func(yield func(inventory.Item, error) bool) bool {
		return v.askFor(ctx, dirs, yield) && s.Shape.Scan(ctx, s, part, before, yield)
	}
	if index := v.index(ctx, s, part, before.Since); index != nil {
		defer index.Close()
		began = index.Began
		look = func(yield func(inventory.Item, error) bool) bool { return index.Scan(ctx, yield) }
	}
	if len(dirs) > 1 && before.Since.IsZero() { // later looks remember what they meet, as it is news
		take = v.takeOnce(began, take)
	}
	for tries := len(dirs); ; tries-- {
		passed, whole, hung := v.lookUnlessHung(ctx, dirs, look, take)
		switch {
		case whole:
			v.scanned(s, dirs, began, passed)
			return true
		case hung && tries > 1 && slices.ContainsFunc(dirs, v.source.disks.Readable):
			v.log.Warn("a disk does not answer: the others of its store are read once more without it", "store", s.Name)
			began = time.Now()
			continue
		case hung:
			v.abandoned(s, dirs, began)
			ended = !slices.ContainsFunc(dirs, v.source.disks.Readable)
		default:
			ended = true
		}
		v.missed.Store(true)
		return ended
	}
}

// lookUnlessHung looks through directories, and leaves the look behind if it hangs. passed are those whose disks did not answer when the
// look came to them, whether they answer in the end or not.
func (v *survey) lookUnlessHung(ctx context.Context, dirs []string, look func(yield func(inventory.Item, error) bool) bool, take func(inventory.Item, error) bool) (passed map[string]bool, whole, hung bool) {
	var beat atomic.Int64
	var over atomic.Bool
	without := map[string]bool{} // not what is returned: a look that was left behind may go on
	ended := make(chan bool, 1)
	go func() {
		whole := look(func(it inventory.Item, err error) bool {
			beat.Add(1)
			if e, is := errors.AsType[*diskio.SilentError](err); is {
				without[e.Dir] = true
			}
			return !over.Load() && take(it, err)
		})
		ended <- whole && ctx.Err() == nil
	}()
	owes := func() bool {
		return slices.ContainsFunc(dirs, func(dir string) bool { return !v.source.disks.Readable(dir) })
	}
	barked := make(chan struct{})
	defer diskio.Watch(diskio.Overdue, &beat, owes, func() { close(barked) })()
	select {
	case whole = <-ended:
		return without, whole, false
	case <-barked:
		over.Store(true)
		return nil, false, true
	}
}

// takeOnce wraps take so that it is given no block twice that has not changed since began, not even when a look that was left behind
// goes on beside the one that follows it. It remembers a word of each block, for as long as a store's disks are looked through for
// the first time.
func (v *survey) takeOnce(began time.Time, take func(inventory.Item, error) bool) func(inventory.Item, error) bool {
	var mu sync.Mutex
	seed, taken := maphash.MakeSeed(), map[uint64]struct{}{}
	again := func(id inventory.BlockID) bool {
		mu.Lock()
		defer mu.Unlock()
		n := len(taken)
		taken[maphash.String(seed, string(id))] = struct{}{}
		return len(taken) == n
	}
	return func(it inventory.Item, err error) bool {
		if err == nil && it.ID != "" && again(it.ID) && v.looks.older(it.Changed(), began) {
			return take(inventory.Item{}, nil)
		}
		return take(it, err)
	}
}

// index returns the index that takes the place of the first look at a part of a store, in a drain that carries everything; nil:
// none does. The next look is then for what changed since the index was begun, as if the drain had begun then.
func (v *survey) index(ctx context.Context, s *inventory.Store, part int, since time.Time) *inventory.IndexScan {
	if !since.IsZero() || len(v.source.only) > 0 {
		return nil
	}
	index := v.known.Open(ctx, s, part)
	if index != nil {
		index.Past = inventory.Past{Places: v.looks.places, Began: index.Began}
		v.looks.indexed(s.PartDirs(part), index.Began)
	}
	return index
}

// scanned notes which directories a scan that began at began has read, and which it could not read.
func (v *survey) scanned(s *inventory.Store, dirs []string, began time.Time, passed map[string]bool) {
	all := true
	for _, dir := range dirs {
		if !passed[dir] && v.source.disks.Readable(dir) && s.Readable(dir) == nil {
			v.looks.read([]string{dir}, began)
		} else {
			v.looks.missed(dir, diskio.Silence(dir).Error())
			all = false
		}
	}
	if all {
		for _, id := range v.account.history.gone(s.Name) {
			v.account.ledger.Add(manifest.Entry{ID: string(id), Outcome: manifest.Skipped, Reason: itIsDeleted})
		}
	}
}

// abandoned notes a scan that hangs. Later looks are for what changed since it began; what it had not met is lost.
func (v *survey) abandoned(s *inventory.Store, dirs []string, began time.Time) {
	for _, dir := range dirs {
		why := diskio.Silence(dir).Error()
		if v.source.disks.Readable(dir) {
			why = fmt.Sprintf("not all of it was read: another disk of store %s does not answer", s.Name)
		}
		if v.looks.missed(dir, why) && v.source.disks.Readable(dir) {
			v.looks.passBy(dir, began)
		}
	}
}

// vaultMissed notes a look at the vault whose catalog does not say all that lies there. One that hangs is asked again.
func (v *survey) vaultMissed(began time.Time, why error) {
	v.missed.Store(true)
	v.source.disks.Fault(v.source.vault.Dir, why)
	for _, dir := range v.source.vault.Paths() {
		if v.looks.missed(dir, why.Error()) && !diskio.IsSilent(why) {
			v.looks.passBy(dir, began)
		}
	}
}
