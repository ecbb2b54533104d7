package receiver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Small blocks that belong in a store's directories land in segments first, like blocks for the vault. Their receipts come
// as soon, and a sender that is short of time does not wait while files are made. The unpacker makes the files later. Until
// a file has its name, and the record says so, the block is read from its segment.

// PackedBytes is the largest block that counts as small. To make, name and sync a file takes a receiver as long as some 100 KiB
// of a block's bytes do (docs/design/landing.md). At 1 MiB that is a tenth of the time, and writing the bytes twice costs more
// than it saves.
const PackedBytes = 1 << 20

const (
	// lull is how long no block may land for the node to count as quiet: longer than a sender's shortest pause between
	// two looks at its stores (leastPause in migration/scan.go), and less than a reader waits for a file.
	lull = 500 * time.Millisecond
	// unpackPatience is how long a block waits for quiet. Spark gives a fetch up after three tries five seconds apart
	// (spark.shuffle.io.maxRetries and retryWait), so its files are there at the second or the third try.
	unpackPatience = 5 * time.Second
	// unpackShare is the part of its time, one in so many, that unpacking takes while blocks are landing.
	unpackShare = 5

	// mostTwice is how many bytes of files are made before their space in segments is given back: the disk may have no room
	// for every landed block twice.
	mostTwice = 64 << 20

	// unpackAgain is how long until a disk that took no files is tried again, if its health does not change before;
	// recheckEvery, until the unpacker looks whether a file is still in the way.
	unpackAgain  = time.Minute
	recheckEvery = time.Hour
)

// Unpacking counts the blocks that rest in segments and are to become files.
type Unpacking struct {
	Waiting inventory.Count
	// Occupied are those of Waiting whose name is taken by a file that never landed here.
	Occupied inventory.Count
}

// Unpacking returns what waits to become files.
func (us *unpackers) Unpacking() (all Unpacking) {
	for _, u := range us.all {
		u.mu.Lock()
		all.Waiting = all.Waiting.Plus(u.noted).Plus(u.taken).Plus(u.left)
		all.Occupied = all.Occupied.Plus(u.occupied)
		u.mu.Unlock()
	}
	return all
}

// unpackers make files of the small blocks that landed for stores that want files.
type unpackers struct {
	cfg *Config
	*volumes
	door    *door
	streams *streams
	all     []*unpacker
	lately  diskio.Moment // when a block last landed
}

// packing is what a small block's landing in a segment relies on: that no file of its id is in place.
type packing struct {
	by    *unpacker // nil: the block stays in its segment
	moves int64     // of by, when no file was in place
}

// packs reports whether a block lands in a segment first, though its store wants files. A block that comes again after its
// files were made goes straight to where they are.
func (in *inbound) packs(o wire.Opening) (p packing, small bool) {
	u := in.r.unpackerOf(inventory.BlockID(o.ID))
	if u == nil || u.store.Layout != o.Layout || o.Bytes() > PackedBytes {
		return p, false
	}
	p = packing{u, u.moves.Load()} // before the catalog is asked: announce does both in the other order
	return p, !in.placed(o)
}

// overtaken returns an error if files of the block's id were put in place while it landed in a segment: two versions must
// not lie side by side. The block replaces the files when it comes again.
func (l *landed) overtaken(c *catalog.Catalog) error {
	if p := l.packing; p.by == nil || p.by.moves.Load() == p.moves || !c.InPlace(inventory.BlockID(l.ID)) {
		return nil
	}
	return errRemoved
}

// unpacker makes files of the blocks of one store. Each store has its own, so that a disk that hangs holds up no other
// store.
type unpacker struct {
	of    *unpackers
	store *inventory.Store
	wake  chan struct{}
	gate  chan struct{} // holds an item while a goroutine changes the files of blocks that wait
	work  diskio.Work
	moves atomic.Int64    // how often records have announced files
	news  <-chan struct{} // of await: closed once a disk's health has changed, during a pass too

	mu       sync.Mutex
	fresh    []vault.Held    // landed since the last look
	missed   bool            // more landed than fresh has: look through the catalog
	since    time.Time       // when the first of noted landed
	noted    inventory.Count // landed, and not yet looked at
	taken    inventory.Count // being looked at
	left     inventory.Count // blocks that no files could be made of
	occupied inventory.Count // of left
	retry    time.Time       // when to look again at left; zero: nothing is left
	troubled bool            // a disk took no files, so its recovery is worth a look
	said     bool            // logged that a file is in the way
	told     bool            // logged that a disk takes no files
	known    bool            // judged said so when the pass under way began
	release  func()          // ends the wait of a drain for the group under way
}

// mostFresh bounds the memory for landed blocks: beyond it the unpacker looks through the store's part of the catalog.
const mostFresh = 4 << 10

func newUnpackers(cfg *Config, v *volumes, d *door, s *streams) *unpackers {
	us := &unpackers{cfg: cfg, volumes: v, door: d, streams: s}
	for _, s := range cfg.Stores {
		if s.Land == inventory.LandPlace {
			us.all = append(us.all, &unpacker{of: us, store: s, wake: make(chan struct{}, 1), gate: make(chan struct{}, 1)})
		}
	}
	return us
}

// landed notes landed blocks that wait to become files, and passes all of them on to Landed.
func (us *unpackers) landed(held []vault.Held) {
	now := time.Now()
	us.lately.Note(now)
	for _, h := range held {
		if u := us.unpackerOf(h.ID); u != nil && h.Packed {
			u.note(now, h)
		}
	}
	if us.cfg.Landed != nil {
		us.cfg.Landed(held)
	}
}

// unpackerOf returns nil if a block's store wants no files.
func (us *unpackers) unpackerOf(id inventory.BlockID) *unpacker {
	for _, u := range us.all {
		if u.store.Name == id.Store() {
			return u
		}
	}
	return nil
}

func (u *unpacker) note(now time.Time, h vault.Held) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.noted == (inventory.Count{}) {
		u.since = now
		await.Mark(u.wake)
	}
	u.noted = u.noted.Plus(inventory.Count{Blocks: 1, Bytes: h.Bytes})
	if len(u.fresh) < mostFresh {
		u.fresh = append(u.fresh, h)
	} else {
		u.missed = true
	}
}

// run makes files of the blocks that wait, as they land, until ctx ends.
func (us *unpackers) run(ctx context.Context) {
	var working sync.WaitGroup
	for _, u := range us.all {
		u.news = us.disks.Changed()
		working.Go(func() {
			if err := u.count(ctx); err != nil {
				us.cfg.Log.Warn("it is not known which blocks wait to become files: all are looked through", "store", u.store.Name, "err", err)
			}
			for u.await(ctx) {
				u.pass(ctx)
			}
		})
	}
	working.Wait()
}

// count counts the blocks that wait since before this start.
func (u *unpacker) count(ctx context.Context) error {
	var before inventory.Count
	var err error
	for after := []byte(nil); err == nil && ctx.Err() == nil; {
		var found []catalog.Record
		found, after, err = u.packed(after)
		for _, r := range found {
			before = before.Plus(inventory.Count{Blocks: 1, Bytes: r.Bytes()})
		}
		if after == nil {
			break
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if before.Blocks > 0 || err != nil {
		u.since, u.missed = time.Now(), true // blocks that landed meanwhile may count twice, until they are looked at
		u.noted = u.noted.Plus(before)
	}
	return err
}

// await returns true when it is time to unpack, and false when ctx has ended.
func (u *unpacker) await(ctx context.Context) bool {
	for ctx.Err() == nil {
		wait, something := u.wait(time.Now())
		if something && wait <= 0 {
			return true
		}
		var due <-chan time.Time
		if something {
			due = time.After(wait)
		}
		select {
		case <-u.wake:
		case <-due:
		case <-u.news:
			u.news = u.of.disks.Changed()
			u.tryAgain()
		case <-ctx.Done():
		}
	}
	return false
}

// tryAgain has blocks looked at again that a disk took no files of: it may take some now.
func (u *unpacker) tryAgain() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.troubled {
		return
	}
	u.retry, u.troubled = time.Now(), false
	await.Mark(u.wake)
}

// wait returns how long it is until the next look, if there is anything to look for.
func (u *unpacker) wait(now time.Time) (wait time.Duration, something bool) {
	u.mu.Lock()
	noted, since, retry := u.noted.Blocks > 0 || u.missed, u.since, u.retry
	u.mu.Unlock()
	switch {
	case !noted && retry.IsZero():
		return 0, false
	case !noted && retry.After(now):
		return retry.Sub(now), true
	case u.of.door.leaving():
		return diskio.LookAfter, true
	}
	if !noted {
		since = retry
	}
	return min(u.of.untilQuiet(now), since.Add(unpackPatience).Sub(now)), true
}

// untilQuiet returns how long it takes at least until no block is landing; 0: none is.
func (us *unpackers) untilQuiet(now time.Time) time.Duration {
	if us.streams.any(func(in *inbound) bool { return in.open.Load() || in.waiting.Load() > 0 }) {
		return lull
	}
	return max(0, lull-us.lately.Ago(now))
}

// take hands out what is to be looked at: the blocks that have landed, or with all everything in the catalog.
func (u *unpacker) take(now time.Time) (fresh []vault.Held, all bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	all = u.missed || !u.retry.IsZero() && !u.retry.After(now)
	u.taken, u.noted = u.taken.Plus(u.noted), inventory.Count{}
	if all {
		u.taken = u.taken.Plus(u.left)
		u.left, u.occupied, u.retry, u.troubled = inventory.Count{}, inventory.Count{}, time.Time{}, false
	}
	fresh, u.fresh, u.missed = u.fresh, nil, false
	return fresh, all
}

// pass looks at all that waits, in groups, and ends early when the node begins to leave or a disk takes no files.
func (u *unpacker) pass(ctx context.Context) {
	known := u.judged()
	u.mu.Lock()
	u.known = known
	u.mu.Unlock()
	fresh, all := u.take(time.Now())
	began := time.Now()
	var made, returned inventory.Count // returned: made before the last giveBack
	var err error
	for after, more := []byte(nil), true; more && err == nil; err = cmp.Or(err, ctx.Err()) {
		var group []catalog.Record
		if all {
			group, after, err = u.packed(after)
			more = after != nil
		} else {
			group, fresh, err = u.pick(fresh)
			more = len(fresh) > 0
		}
		if err == nil && len(group) > 0 {
			began, n := time.Now(), inventory.Count{}
			n, err = u.group(ctx, group)
			made = made.Plus(n)
			u.rest(ctx, time.Since(began))
		}
		if made.Bytes-returned.Bytes >= mostTwice {
			u.giveBack(ctx)
			returned = made
		}
	}
	u.end(ctx, made, err)
	if made.Blocks == 0 {
		return
	}
	u.giveBack(ctx)
	u.of.cfg.Log.Info("made files of blocks that rested in segments", "store", u.store.Name, "blocks", made.Blocks, "bytes", made.Bytes, "took", time.Since(began).Round(time.Millisecond))
}

// giveBack frees the segments' space of blocks that became files.
func (u *unpacker) giveBack(ctx context.Context) {
	if err := u.of.cfg.Vault.Reclaim(ctx); err != nil && ctx.Err() == nil {
		u.of.cfg.Log.Warn("the space of what became files could not be given back: it is tried again", "err", err)
	}
}

// rest pauses after a group for as long as blocks are landing, so that unpacking takes one part in unpackShare of the time. On a slow
// disk, or a machine that stood still, a group takes so long that the last block lands early in the pause.
func (u *unpacker) rest(ctx context.Context, took time.Duration) {
	for left := (unpackShare - 1) * took; left > 0 && ctx.Err() == nil && u.of.untilQuiet(time.Now()) > 0; left -= lull {
		await.Sleep(ctx, min(left, lull))
	}
}

// errLeaving says that nothing is unpacked now, for the node leaves.
var errLeaving = errors.New("the node is leaving")

// end accounts for a pass. Blocks that the pass did not reach wait on.
func (u *unpacker) end(ctx context.Context, made inventory.Count, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	rest := u.taken
	u.taken = inventory.Count{}
	switch {
	case ctx.Err() != nil, errors.Is(err, errLeaving):
		u.noted, u.missed = u.noted.Plus(rest), true
	case err != nil:
		u.left = u.left.Plus(rest)
		if made.Blocks > 0 { // the segments of those blocks may have taken the room
			u.retry = time.Now()
			break
		}
		if !u.told && u.known && u.judged() {
			u.told = true
			u.of.cfg.Log.Warn("no files can be made of blocks: they stay in their segments and are read from there, and it is tried again",
				"store", u.store.Name, "blocks", u.left.Blocks, "err", err)
		}
		u.retry, u.troubled = time.Now().Add(unpackAgain), true
	case u.left.Blocks > 0 && u.retry.IsZero():
		u.retry = time.Now().Add(recheckEvery)
	}
	u.told = u.told && u.troubled
	u.said = u.said && u.occupied.Blocks > 0
}

// judged reports whether all disks that files need have been looked at, that of the records included, and nothing hangs on them. Each is
// looked at by itself, so after a start the store's may be known a moment before the others, and all of them amid a pass whose blocks found
// no room: a pass that began before that tells of none. When a frozen machine goes on, what was under way seems to hang until the next look.
func (u *unpacker) judged() bool {
	all := append([]string{u.of.cfg.Vault.Dir}, u.store.Paths...)
	return u.of.knows(all) && !slices.ContainsFunc(all, func(dir string) bool { return u.of.hangs(dir) != nil })
}

// pick reads the records of landed blocks, as many as make a group. An error says that the catalog could not be asked.
func (u *unpacker) pick(fresh []vault.Held) (group []catalog.Record, rest []vault.Held, err error) {
	for bytes := int64(0); len(fresh) > 0 && len(group) < groupBlocks && bytes < groupBytes; {
		h := fresh[0]
		r, err := u.of.cfg.Vault.Catalog.Get(h.ID)
		if diskio.IsSilent(err) {
			return nil, fresh, err
		}
		fresh = fresh[1:]
		if err == nil && wants(u.store, r) {
			group, bytes = append(group, r), bytes+r.Bytes()
			continue
		}
		u.done(inventory.Count{Blocks: 1, Bytes: h.Bytes}) // removed, or made a file earlier
	}
	return group, fresh, nil
}

// done counts blocks that wait no more.
func (u *unpacker) done(n inventory.Count) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.taken = u.taken.Less(n)
}

// UnpackNow makes files of all blocks that wait, whether or not blocks are landing.
func (us *unpackers) UnpackNow(ctx context.Context) {
	for _, u := range us.all {
		u.mu.Lock()
		u.missed = true
		u.mu.Unlock()
		u.pass(ctx)
	}
}
