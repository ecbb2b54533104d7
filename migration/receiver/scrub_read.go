package receiver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/fields"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// scrubSegment reads a stretch of a segment from one end to the other: frames follow each other, and each has a checksum.
// Only where a frame does not match does it ask the catalog which block lies there. It returns a SilentError if the stretch is to be read
// once more, as a disk did not answer.
func (sc *scrubber) scrubSegment(ctx context.Context, work *diskio.Work, no uint32, s vault.UnreadStretch) error {
	dir, err := sc.cfg.Vault.Home(no)
	if err = cmp.Or(err, sc.hangs(dir)); err != nil {
		return err // its blocks are not held now; readers are told so
	}
	done := sc.cfg.Vault.Read(no)
	defer done()
	walk := segmentWalk{sc: sc, work: work, dir: dir, no: no, path: vault.SegmentFile(dir, no), at: s.From, to: s.To, urgent: s.Urgent}
	if err := walk.run(ctx); err != nil && ctx.Err() == nil {
		if _, empty, unread := sc.cfg.Vault.Catalog.Free(no); unread == nil && empty {
			return nil // all of it was removed meanwhile, or became files
		}
		sc.fault(dir, err)
		return sc.sift(ctx, work, no, walk.at, s)
	}
	return nil
}

// segmentWalk is one reading of a stretch of a segment.
type segmentWalk struct {
	sc     *scrubber
	work   *diskio.Work
	dir    string
	no     uint32
	path   string
	at, to int64
	urgent bool

	ids []inventory.BlockID // met since the last pause
}

// run returns the first fault; w.at is where the faulty frame begins.
func (w *segmentWalk) run(ctx context.Context) error {
	w.work.Begin(&w.dir)
	defer w.work.End()
	f, err := os.Open(w.path)
	if err != nil {
		return err
	}
	defer f.Close()
	diskio.DropCached(f, w.at, w.to-w.at)
	frames := wire.NewReader(io.NewSectionReader(f, w.at, w.to-w.at), wire.ChunkBytes)
	paused := w.at
	for w.at < w.to && ctx.Err() == nil {
		w.work.Begin(&w.dir)
		fr, err := frames.Next()
		if err != nil {
			end := w.sc.cfg.Vault.Catalog.Hole(w.no, w.at)
			if end <= w.at {
				return err
			}
			w.at = end // a hole: what was there has been removed
			frames.Reset(io.NewSectionReader(f, w.at, max(0, w.to-w.at)))
			continue
		}
		if fr.Type == wire.FrameOpen {
			d := fields.Decode(fr.Payload)
			w.ids = append(w.ids, inventory.BlockID(d.Text()))
		}
		w.at += int64(len(fr.Raw))
		if n := w.at - paused; n >= scrubStep {
			w.pause(ctx, n)
			paused = w.at
		}
	}
	w.pause(ctx, w.at-paused)
	return nil
}

// pause gives others the disk for a while, and checks the records of the blocks that were read since the last pause.
func (w *segmentWalk) pause(ctx context.Context, bytes int64) {
	w.work.End()
	w.sc.scrubbed.Add(bytes)
	for _, id := range w.sc.cfg.Vault.Catalog.Unsound(w.ids) {
		w.sc.forgetUnsound(id)
	}
	w.ids = w.ids[:0]
	w.sc.paces(ctx, bytes, w.urgent)
}

// sift checks each block that lies in a segment behind an offset, because something there is not as it landed. It returns a SilentError if
// the catalog does not say which do.
func (sc *scrubber) sift(ctx context.Context, work *diskio.Work, no uint32, from int64, s vault.UnreadStretch) error {
	for rec, err := range sc.cfg.Vault.Catalog.All() {
		switch {
		case ctx.Err() != nil, diskio.IsSilent(err):
			return err
		case err != nil && rec.ID != "":
			sc.forgetUnsound(inventory.BlockID(rec.ID))
		case err == nil && rec.Segment == no && rec.Offset+rec.Length > from && rec.Offset < s.To:
			sc.check(rec, work)
			sc.paces(ctx, rec.Bytes(), s.Urgent)
		}
	}
	return nil
}

// scrubPlaced reads back the blocks that lie in place, and checks all records on the way. It returns a SilentError if the catalog does not say
// which do.
func (sc *scrubber) scrubPlaced(ctx context.Context, work *diskio.Work, p vault.UnreadPlaced) error {
	var read int64
	for rec, err := range sc.cfg.Vault.Catalog.All() {
		switch {
		case ctx.Err() != nil, diskio.IsSilent(err):
			return err
		case err != nil && rec.ID != "":
			sc.forgetUnsound(inventory.BlockID(rec.ID))
		case err == nil && rec.Segment == 0 && !rec.Landed.Before(p.Landed):
			sc.check(rec, work)
			sc.scrubbed.Add(rec.Bytes())
			read += rec.Bytes()
		}
		if read += recordCost; read >= scrubStep {
			sc.paces(ctx, read, p.Urgent)
			read = 0
		}
	}
	return nil
}

// recordCost is how many bytes a look at one record counts for, beside the bytes of its block.
const recordCost = 256

// lookAt checks a block that a reader found broken or gone. If the block is fine, the coordinator is told that it is
// held, for the reader has said otherwise.
func (sc *scrubber) lookAt(ctx context.Context, work *diskio.Work, id inventory.BlockID) {
	rec, err := sc.cfg.Vault.Catalog.Get(id)
	switch {
	case errors.Is(err, wire.ErrCorrupt):
		sc.forgetUnsound(id)
	case err != nil:
	case sc.answers(rec) == nil && sc.removal.ghost(rec):
		made := madeDirs{}
		_, _ = sc.removal.removeBatch([]catalog.Record{rec}, func(gone []catalog.Record) { made.note(sc.stores, gone); sc.removal.removed(takenOver)(gone) }) // else DropGhosts logs why
		for d := range made {
			d.clear()
		}
	case sc.check(rec, work) == nil && sc.cfg.Landed != nil:
		sc.cfg.Landed([]vault.Held{vault.HeldOf(rec)})
	}
	sc.paces(ctx, rec.Bytes(), true)
}

// check reads a block back off its disk, and a second time if it was not whole. A block that fails twice is condemned.
func (sc *scrubber) check(rec catalog.Record, work *diskio.Work) error {
	err := sc.offDisk(rec, work)
	if rotten(err) {
		err = sc.offDisk(rec, work)
	}
	if rotten(err) {
		sc.condemn(rec, err)
		return err
	}
	return nil // it is whole, or an engine's now, or its disk does not answer, which is not the block's fault
}

// offDisk is intact for what the disk holds: it first drops the block's pages from the page cache.
func (sc *scrubber) offDisk(rec catalog.Record, work *diskio.Work) error {
	if err := sc.answers(rec); err != nil {
		return err
	}
	defer work.End()
	s := sc.stores[inventory.BlockID(rec.ID).Store()]
	next := func(i int, dir *string) {
		work.Begin(dir)
		var f *os.File
		var err error
		from, bytes := int64(0), rec.Members[i].Bytes
		switch {
		case rec.Segment != 0:
			f, err = os.Open(vault.SegmentFile(*dir, rec.Segment))
			from, bytes = rec.Offset, rec.Length
		case s == nil || i >= len(rec.Placed) || rec.Placed[i].Root >= len(s.Roots):
			return
		default:
			f, err = s.Open(inventory.Member{Root: rec.Placed[i].Root, Path: rec.Placed[i].Path})
		}
		if err == nil {
			diskio.DropCached(f, from, bytes)
			f.Close()
		}
	}
	return sc.each(rec, next, func(_ *string, m wire.MemberSize, c io.Reader) error { return readThrough(m, c, work.GoesOn) })
}

// rotten reports whether a read failed because the bytes are not what landed, or because the disk does not give them
// back; other errors may pass. File systems with checksums of their own return EIO, EBADMSG or EUCLEAN where those do
// not match.
func rotten(err error) bool {
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	return errors.Is(err, wire.ErrCorrupt) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EBADMSG) || errors.Is(err, syscall.EUCLEAN)
}

// condemn removes a block whose bytes here are not what landed, and reports it.
func (sc *scrubber) condemn(rec catalog.Record, why error) {
	gone, err := sc.removal.removeBatch([]catalog.Record{rec}, func(gone []catalog.Record) {
		for _, g := range gone {
			sc.broke(vault.HeldOf(g), why)
		}
	})
	if err != nil {
		sc.cfg.Log.Error("a block from another node is broken and cannot be removed: it is refused to readers", "block", rec.ID, "err", errors.Join(why, err))
	} else if gone.Blocks == 0 {
		sc.cfg.Log.Debug("a block that was broken has been replaced meanwhile", "block", rec.ID)
	}
}

// forgetUnsound removes the record of a block if the record cannot be read: nobody knows any more where the block lies
// and what its bytes should be.
func (sc *scrubber) forgetUnsound(id inventory.BlockID) {
	c := sc.cfg.Vault.Catalog
	c.Writing.Lock()
	defer c.Writing.Unlock()
	if len(c.Unsound([]inventory.BlockID{id})) == 0 {
		return
	}
	why := fmt.Errorf("its record in %s: %w", c.Path(), wire.ErrCorrupt)
	if err := c.Forget(id); err != nil {
		sc.cfg.Log.Error("the record of a block from another node is broken and cannot be removed", "block", id, "err", err)
		return
	}
	sc.broke(vault.Held{ID: id}, why)
}

// broke reports a block that rested here, was broken, and is gone.
func (sc *scrubber) broke(h vault.Held, why error) {
	sc.broken.Add(1)
	sc.cfg.Log.Error("a block from another node is broken here: it is removed", "block", h.ID, "node", h.From, "bytes", h.Bytes, "err", why)
	if sc.cfg.Broken != nil {
		sc.cfg.Broken(h)
	}
}

// Scrubbed returns how many bytes were read back since the start, and how many blocks were found broken.
func (sc *scrubber) Scrubbed() (bytes, broken int64) { return sc.scrubbed.Load(), sc.broken.Load() }

// Suspect has a block checked that a reader found broken. It reports false when too many wait to be checked.
func (sc *scrubber) Suspect(id inventory.BlockID) bool { return sc.cfg.Vault.Unread.Suspect(id) }
