package receiver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// The unpacker makes the files of several blocks together, so that they share syncs and transactions. A block goes
// through four states:
//
//	staged, each under a name of the staging directory; a crash leaves what the next start sweeps away
//	announced: their records, still of segments, say what the files in place will be; from here on they are known as ours
//	published, as blocks that land in place are: bytes synced, named, directories synced, an index after the rest
//	settled: their records say that they lie in place, and what they took of segments is free
//
// After a crash between "announced" and "settled" the records are announced still. Files that are in their place, byte
// for byte, are settled; others are made again, over what is there.
const (
	groupBlocks = 512
	groupBytes  = 32 << 20
)

// move is a block whose files are being made from its segment.
type move struct {
	was     catalog.Record
	into    *landed
	there   bool             // its files are in place: a crash came after they were published
	earlier []catalog.Placed // the places that an earlier try announced: files may be there
	room    func()
}

// errBusy says that another goroutine is naming or removing the files of a block.
var errBusy = errors.New("its files are being named or removed")

// group makes the files of some blocks. It returns an error if nothing can be unpacked now; a single block's trouble is
// none.
func (u *unpacker) group(ctx context.Context, records []catalog.Record) (made inventory.Count, err error) {
	leave, err := u.enter(ctx)
	if err != nil {
		return made, err
	}
	defer leave()
	var moves []*move
	defer func() {
		for _, m := range moves {
			m.room()
			u.of.cfg.Vault.Unclaim(inventory.BlockID(m.was.ID))
		}
	}()
	from := vault.NewReplay(u.of.cfg.Vault)
	defer from.Close()
	for _, r := range records {
		if err = ctx.Err(); err == nil && u.of.door.leaving() {
			err = errLeaving
		}
		if err != nil {
			for _, m := range moves {
				takeBack(u.store, m.into, &u.work)
			}
			u.work.End()
			return made, err
		}
		m, fault := u.stage(from, r)
		if fault == nil {
			moves = append(moves, m)
		} else if err = u.leave(r, fault); err != nil {
			break // the moves before this one have their room, and go on
		}
	}
	made, fault := u.put(moves)
	return made, cmp.Or(err, fault)
}

// enter waits until the caller alone changes the files of blocks that wait. The work counts like a block on its way in,
// so a drain that begins waits for it (Settle).
func (u *unpacker) enter(ctx context.Context) (leave func(), err error) {
	select {
	case u.gate <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := u.of.door.accept(false, 0); err != nil {
		<-u.gate
		return nil, errLeaving
	}
	answered := sync.OnceFunc(func() { u.of.door.answered(1) })
	u.mu.Lock()
	u.release = answered
	u.mu.Unlock()
	return func() { answered(); <-u.gate }, nil
}

// look stops a drain's wait for an unpacker that hangs on a disk.
func (u *unpacker) look(now time.Time) {
	dir, took, ok := u.work.On(now)
	if !ok || took < diskio.Suspect || took < diskio.Overdue && u.of.disks.Keeps(dir) {
		return
	}
	u.mu.Lock()
	release := u.release
	u.mu.Unlock()
	if release != nil {
		release()
	}
}

// pause waits until no files are being made of a store's blocks, for diskio.Suspect at most: a disk may hang. Other stores'
// unpackers go on, so that this store's disk holds up no one else.
func (us *unpackers) pause(store string) (resume func()) {
	var held []*unpacker
	late := time.NewTimer(diskio.Suspect)
	defer late.Stop()
	for _, u := range us.all {
		if u.store.Name != store {
			continue
		}
		select {
		case u.gate <- struct{}{}:
			held = append(held, u)
			continue
		default:
		}
		select {
		case u.gate <- struct{}{}:
			held = append(held, u)
		case <-late.C:
			late.Reset(0)
		}
	}
	return func() {
		for _, u := range held {
			<-u.gate
		}
	}
}

// stage writes the files of a block into the staging directory.
func (u *unpacker) stage(from *vault.Replay, r catalog.Record) (_ *move, err error) {
	v, s := u.of.cfg.Vault, u.store
	if err := u.of.sound(s); err != nil {
		return nil, err
	}
	if !v.ClaimRemoval(inventory.BlockID(r.ID)) { // to make files and to remove them both need that nobody else touches them
		return nil, errBusy
	}
	m := &move{was: r, earlier: r.Placed, room: func() {}}
	defer func() {
		if err != nil {
			m.room()
			v.Unclaim(inventory.BlockID(r.ID))
		}
	}()
	into := r
	into.Segment, into.Offset, into.OpenLen, into.Length = 0, 0, 0, 0
	if len(r.Placed) > 0 && u.there(into) {
		m.there, m.into = true, &landed{Record: into, lying: &lying{store: s}}
		return m, nil
	}
	roots, room, err := u.of.homes(s, r.Opening, r.Bytes(), func(wire.Opening) (catalog.Record, error) { return r, nil })
	if err != nil {
		return nil, err
	}
	m.room = func() { room(r.Bytes()) }
	u.work.Begin(&s.Paths[roots[0]])
	defer u.work.End()
	l, err := landInPlace(s, r.Opening, roots, v.Catalog, &u.work)
	if err != nil {
		u.of.fault(s.Paths[roots[0]], err)
		return nil, err
	}
	var refused error // by the store's disk, not by the segment's
	err = from.Block(r, func(member int, f wire.Frame) error {
		u.work.Begin(&s.Paths[roots[member]])
		refused = l.data(member, f)
		return refused
	})
	if err == nil {
		m.into, refused = l.finish(wire.Frame{}, into)
		err = refused
	}
	if refused != nil {
		u.of.fault(*l.at(), refused)
	}
	if err != nil {
		l.abort()
	}
	if refused != nil {
		return m, refused
	}
	if err != nil {
		return m, &packedError{err}
	}
	return m, nil
}

// packedError is trouble with a block's bytes in its segment, not with the place for its files.
type packedError struct{ err error }

func (e *packedError) Error() string { return e.err.Error() }
func (e *packedError) Unwrap() error { return e.err }

// there reports whether all files of a block are in place already, with the bytes of its record.
func (u *unpacker) there(r catalog.Record) bool {
	if len(r.Placed) != len(r.Members) {
		return false
	}
	defer u.work.End()
	return u.of.intact(r, u.work.Begin) == nil
}

// put gives staged files their names, and then has their records say so.
func (u *unpacker) put(moves []*move) (made inventory.Count, err error) {
	if len(moves) == 0 {
		return made, nil
	}
	u.work.Begin(&u.store.Paths[0])
	defer u.work.End()
	if moves, err = u.announce(moves); err != nil {
		return made, err
	}
	var blocks []*landed
	var dirs []place // of files that are there already: a crash may have come before their directories were synced
	for _, m := range moves {
		blocks = append(blocks, m.into)
		for _, p := range m.into.Placed {
			if m.there {
				dirs = append(dirs, parents(place{p.Root, p.Path})...)
			}
		}
	}
	if err := syncAll(u.store, dirs, &u.work, func(int, time.Duration, error) {}); err != nil {
		for _, l := range blocks {
			takeBack(u.store, l, &u.work)
		}
		return made, err
	}
	publish(u.store, blocks, nil, u.of.cfg.Vault.Catalog, u.of.disks, &u.work)
	return u.settle(moves)
}

// announce writes into the records where the files will be, and returns the blocks whose records had not changed.
func (u *unpacker) announce(moves []*move) (still []*move, err error) {
	c := u.of.cfg.Vault.Catalog
	var was, into []catalog.Record
	for _, m := range moves {
		r := m.was
		r.Placed = m.into.Placed
		was, into = append(was, m.was), append(into, r)
	}
	c.Writing.Lock()
	defer c.Writing.Unlock()
	turned, err := c.Turn(was, into)
	u.moves.Add(1) // after the write: who sees the new count sees the records too (packs); who does not asks again (overtaken)
	for i, m := range moves {
		if turned[i] {
			m.was = into[i]
			still = append(still, m)
			continue
		}
		takeBack(u.store, m.into, &u.work)
		if err == nil {
			u.again(m.was)
		}
	}
	return still, err
}

// settle has the records of published blocks say that they lie in place. A block that could not be published stays in
// its segment.
func (u *unpacker) settle(moves []*move) (made inventory.Count, err error) {
	c := u.of.cfg.Vault.Catalog
	var was, into []catalog.Record
	for _, m := range moves {
		r := m.into.Record
		if m.into.fault != nil {
			r = m.was
			r.Placed = m.earlier
		}
		was, into = append(was, m.was), append(into, r)
	}
	c.Writing.Lock()
	defer c.Writing.Unlock()
	turned, err := c.Turn(was, into)
	if err != nil {
		return made, err // the records are announced still, and the next pass finds the files
	}
	var files []catalog.Change
	defer func() { u.of.cfg.Vault.Unread.Note(files) }()
	for i, m := range moves {
		n := inventory.Count{Blocks: 1, Bytes: m.was.Bytes()}
		switch {
		case m.into.fault != nil:
			err = cmp.Or(err, u.leave(m.was, m.into.fault))
		case turned[i]:
			made, files = made.Plus(n), append(files, catalog.Change{Record: &into[i]})
			u.done(n)
		default:
			u.again(m.was)
		}
	}
	return made, err
}

// again looks at a block that has changed meanwhile, and notes it if it waits still.
func (u *unpacker) again(r catalog.Record) {
	u.done(inventory.Count{Blocks: 1, Bytes: r.Bytes()})
	now, err := u.of.cfg.Vault.Catalog.Get(inventory.BlockID(r.ID))
	if diskio.IsSilent(err) { // the next pass reads what the record has become
		now, err = r, nil
	}
	if err == nil && wants(u.store, now) {
		u.note(time.Now(), vault.HeldOf(now))
	}
}

// leave notes why a block stays in its segment. It returns an error if the next block would fare no better.
func (u *unpacker) leave(r catalog.Record, why error) error {
	_, packed := errors.AsType[*packedError](why)
	_, full := errors.AsType[*FullError](why)
	others := full && u.of.most(u.of.open(u.store.Paths)) >= r.Bytes() // only the disk that the layout wants is full
	if !packed && !others && (full || diskio.IsSilent(why) || diskio.IsFault(why)) {
		return why
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	n := inventory.Count{Blocks: 1, Bytes: r.Bytes()}
	u.taken, u.left = u.taken.Less(n), u.left.Plus(n)
	if others {
		u.troubled = true
		if !u.told && u.known && u.judged() {
			u.told = true
			u.of.cfg.Log.Warn("no files can be made of some blocks: they stay in their segments and are read from there, and it is tried again", "store", u.store.Name, "one", r.ID, "err", why)
		}
		return nil
	}
	if occupied := errors.Is(why, errOccupied); occupied || errors.Is(why, errApart) {
		if occupied {
			u.occupied = u.occupied.Plus(n)
		}
		if !u.said {
			u.said = true
			u.of.cfg.Log.Warn("a file or a mount is in the way of a block: the block stays in its segment and is read from there; further ones are not named", "block", r.ID, "err", why)
		}
		return nil
	}
	if diskio.IsAway(why) || errors.Is(why, errBusy) { // the receiver has already logged a disk that is away
		u.retry = time.Now().Add(unpackAgain)
		return nil
	}
	u.of.cfg.Log.Warn("no file can be made of a block: it stays in its segment", "block", r.ID, "err", why)
	return nil
}

// packed returns a group of the store's blocks that are to be unpacked, beginning behind the id after, and the last id that it
// looked at.
func (u *unpacker) packed(after []byte) (group []catalog.Record, last []byte, err error) {
	wanted := func(r catalog.Record) bool { return wants(u.store, r) } // a record that cannot be read is reported by its readers
	return u.of.cfg.Vault.Catalog.Some(u.store.Name, after, wanted, groupBlocks, groupBytes)
}

// wants reports whether a block rests in a segment and belongs in the store's directories.
func wants(s *inventory.Store, r catalog.Record) bool {
	return r.Segment != 0 && isPlaceOf(s, r.Opening)
}

// deepest is the most directories that are made for one file. Each directory takes a block of the disk and an inode, which no quota
// counts, and is synced; a name of 4 KiB could have 2,000. A block with a deeper file stays in its segment, and is read from there.
const deepest = 32

// isPlaceOf reports whether a block belongs in the directories of a store.
func isPlaceOf(s *inventory.Store, o wire.Opening) bool {
	return s.Land == inventory.LandPlace && s.Layout == o.Layout && inventory.BlockID(o.ID).Store() == s.Name &&
		!slices.ContainsFunc(o.Members, func(m wire.MemberSize) bool { return strings.Count(m.Name, "/") > deepest })
}
