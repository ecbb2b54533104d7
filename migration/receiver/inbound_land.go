package receiver

import (
	"errors"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// land chooses the disk that a block lands on. A block that no disk has room for is taken in all the same if it may be
// here already: then its bytes only have to match.
func (in *inbound) land(f wire.Frame, o wire.Opening) error {
	if err := in.r.turnAway(in.last, o.Bytes()); err != nil {
		return err
	}
	err := in.landOnDisk(f, o)
	if verdictOn(in.transfer, err).Code == wire.VerdictFull && in.landNowhere(o, err) {
		return nil
	}
	return err
}

// landOnDisk begins a small block in a segment, a larger one in its place in a store, and if it has no place there, in
// a segment too.
func (in *inbound) landOnDisk(f wire.Frame, o wire.Opening) error {
	if p, small := in.packs(o); small && in.landInVault(f, o) == nil {
		in.packed.packing = p
		return nil
	}
	if s := in.r.stores[inventory.BlockID(o.ID).Store()]; s != nil && isPlaceOf(s, o) {
		err := in.landInStore(s, o)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errOccupied) && in.placed(o) {
			return err // an older version lies there: it would stay, and be taken for this one
		}
		// The file there is not ours to replace, or its disk takes no more: the vault may take the block.
		if _, full := errors.AsType[*FullError](err); !full && !diskio.IsAway(err) && !diskio.IsSilent(err) && !errors.Is(err, errOccupied) {
			in.r.cfg.Log.Warn("cannot land a block in its place", "block", o.ID, "node", in.node, "err", err)
		}
	}
	return in.landInVault(f, o)
}

// promise sets aside, from the quota, what a block and its record add to what rests here. A block that comes again because its sender lost
// the receipt adds nothing; the catalog is asked about that only if the quota has no room for the whole block.
func (in *inbound) promise(o wire.Opening) (release func(), err error) {
	rests := in.r.cfg.Vault.Takes()
	if in.covered = o.Bytes(); in.covered > allotBytes {
		return in.promiseLarge(o, rests)
	}
	takes := in.covered + in.beside
	release, err = in.r.budget.promise(takes, takes, rests, in.alone)
	if err != nil {
		return in.promiseMore(o, rests, err)
	}
	return release, nil
}

// promiseLarge sets aside as much of a large block as may be held by the sender's announcement alone (wordShare).
func (in *inbound) promiseLarge(o wire.Opening, rests int64) (release func(), err error) {
	first, over := in.r.budget.ByWord(in.node, o.Bytes(), in.r.grant(in.alone).RoomBytes)
	promised, err := in.r.budget.promise(o.Bytes()+in.beside, first+in.beside, rests, in.alone)
	if err != nil {
		over()
		return in.promiseMore(o, rests, err)
	}
	in.covered = first
	return func() { promised(); over() }, nil
}

// promiseMore sets aside by how much a block is larger than the one under its id. If there is none, it returns why.
func (in *inbound) promiseMore(o wire.Opening, rests int64, why error) (release func(), err error) {
	old, unknown := in.had(o)
	was := old.Bytes() + catalog.BesideBytes(&old.Opening, len(old.Opening.Append(nil)))
	switch more := o.Bytes() + in.beside - was; {
	case unknown != nil:
		return nil, why
	case more <= 0:
		return func() {}, nil
	default:
		return in.r.budget.promise(more, more, rests, in.alone)
	}
}

// cover sets room aside for a chunk of a large block beyond what its announcement got, and for (wordShare-1) times as much as has
// come, if there is room.
func (in *inbound) cover(chunk int64) error {
	if in.has <= in.covered {
		return nil
	}
	if _, nothing := in.landing.(nowhereLanding); nothing {
		return nil
	}
	if in.coverMore(min(in.left+chunk, max(chunk, (wordShare-1)*in.has))) == nil {
		return nil
	}
	return in.coverMore(chunk)
}

func (in *inbound) coverMore(bytes int64) error {
	promised, err := in.r.budget.promise(bytes, bytes, in.r.cfg.Vault.Takes(), in.alone)
	if err != nil {
		return err
	}
	dir := in.dirs[0]
	if l, ok := in.landing.(*placeLanding); ok {
		dir = l.store.Paths[l.files[in.member].root]
	}
	_, release, err := in.r.take(bytes, bytes, []string{dir})
	if err != nil {
		promised()
		return err
	}
	in.room.grow(release)
	before := in.promised
	in.promised = func() { before(); promised() }
	in.covered += bytes
	return nil
}

func (in *inbound) landInStore(s *inventory.Store, o wire.Opening) error {
	if err := in.r.sound(s); err != nil {
		return err
	}
	roots, release, err := in.r.homes(s, o, in.covered, in.had)
	if err != nil {
		return err
	}
	var l *placeLanding
	dir := s.Paths[roots[0]]
	err = in.on(&dir, func() error {
		l, err = landInPlace(s, o, roots, in.r.cfg.Vault.Catalog, &in.work)
		return err
	})
	if err != nil {
		in.r.fault(dir, err)
		release(0)
		return err
	}
	in.landing, in.room, in.dirs = l, newAllotment(0, release), l.dirs()
	return nil
}

// landInVault appends to the stream's segment, as long as that segment's disk takes the block, else to a segment on the
// disk that is best now.
func (in *inbound) landInVault(f wire.Frame, o wire.Opening) error {
	v, takes := in.r.cfg.Vault, o.Bytes()+in.besides()
	if in.seg != nil && (in.broken || in.seg.End >= vault.SegmentBytes || v.Fault(in.seg) != nil || in.turned() != nil || !in.further(takes)) {
		in.part()
	}
	if in.seg == nil {
		dir, room, err := in.r.allot(takes, in.covered+in.besides(), v.Usable())
		if err != nil {
			return err
		}
		err = in.on(&dir, func() (err error) {
			in.seg, err = v.Acquire(dir)
			return err
		})
		if err != nil {
			in.seg = nil
			in.r.fault(dir, err)
			room.drop(0)
			return err
		}
		in.ahead = room
		room.grant(takes)
	}
	in.dirs = in.seg.In
	in.seg.Behind.Drops = o.Bytes() > PackedBytes // a smaller block may become a file, for which it is read again soon
	if err := in.gives(f, func() error { return in.packed.into(in.seg, in.node, f) }); err != nil {
		in.r.fault(in.seg.Dir, err)
		in.broken = true // its buffer has lost bytes: nothing more is appended
		in.ahead.drop(0)
		return err
	}
	in.landing, in.room = &in.packed, in.ahead
	return nil
}

// besidesBytes is the least room that is set aside beside a block's bytes, even if its record takes less: a commit writes new pages of
// the catalog before the old ones are free.
const besidesBytes = 1 << 10

// besides returns the room that the block under way takes beside its bytes.
func (in *inbound) besides() int64 { return max(in.beside, besidesBytes) }

// further makes sure of room for one more block on the disk of the stream's segment.
func (in *inbound) further(bytes int64) bool {
	if in.ahead.take(bytes) {
		return true
	}
	_, room, err := in.r.allot(bytes, in.covered+in.besides(), in.seg.In)
	if err != nil {
		return false
	}
	in.ahead.drop(0)
	in.ahead = room
	room.grant(bytes)
	return true
}

// part gives the segment back.
func (in *inbound) part() {
	if in.seg == nil {
		return
	}
	in.flush()
	seg := in.seg
	in.work.Begin(&seg.Dir)
	in.r.cfg.Vault.Release(seg, in.broken)
	in.work.End()
	in.ahead.drop(0)
	in.seg, in.ahead, in.broken = nil, nil, false
}

// on runs work that may hang on a disk, and lets others see at which directory it is.
func (in *inbound) on(dir *string, do func() error) error {
	in.work.Begin(dir)
	defer in.work.End()
	return do()
}

// asks looks something up in the catalog, whose disk may be another than the block's. While that disk is written to, a look may hang with
// it: bbolt locks looks out while it writes its meta page.
func (in *inbound) asks(look func(*catalog.Catalog) error) error {
	v := in.r.cfg.Vault
	return in.on(&v.Dir, func() error { return look(v.Catalog) })
}

// had returns the record under a block's id; fs.ErrNotExist if there is none.
func (in *inbound) had(o wire.Opening) (old catalog.Record, err error) {
	err = in.asks(func(c *catalog.Catalog) (err error) { old, err = c.Get(inventory.BlockID(o.ID)); return err })
	return old, err
}

// placed reports whether files of a block are in place, or about to be.
func (in *inbound) placed(o wire.Opening) (is bool) {
	_ = in.asks(func(c *catalog.Catalog) error { is = c.InPlace(inventory.BlockID(o.ID)); return nil })
	return is
}

// gives has a landing take a frame. A segment gathers frames in memory until there is enough for a write. As long as a
// frame only joins them no disk is touched, so nobody needs to watch and no clock is read.
func (in *inbound) gives(f wire.Frame, do func() error) error {
	switch in.landing.(type) {
	case *placeLanding, nowhereLanding:
	default:
		if in.seg.From == in.node && in.seg.Holds(len(f.Raw)) {
			return do()
		}
	}
	return in.on(in.at(), do)
}

// at returns the directory that the block under way is being written to.
func (in *inbound) at() *string {
	if l, ok := in.landing.(*placeLanding); ok {
		return l.at()
	}
	return &in.dirs[0]
}

// turned returns an error if a disk under the block has turned bad since the last call. If the disk is full, this block
// goes on and no other follows it.
func (in *inbound) turned() error {
	select {
	case <-in.changed:
	default:
		return nil
	}
	in.changed = in.r.disks.Changed()
	for _, dir := range in.dirs {
		if !in.r.disks.Keeps(dir) {
			return &unwellError{dir}
		}
		if in.ahead != nil && !in.r.disks.Writable(dir) {
			in.ahead.left = 0
		}
	}
	return nil
}
