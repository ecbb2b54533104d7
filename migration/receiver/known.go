package receiver

import (
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// recognise finds out which complete blocks are here already, with one look into the catalog for the whole batch: one look
// for each block cost more than receiving it. A block that is here with the same bytes only needs a receipt. If one is,
// more are likely: a sender that lost its receipts sends the blocks again on a new stream. From then on each block is
// looked up as it comes, and takes no space.
func (in *inbound) recognise(batch []*landed) {
	batch = slices.DeleteFunc(slices.Clone(batch), func(l *landed) bool { return l.looked })
	if len(batch) == 0 {
		return
	}
	in.again = false
	found, err := in.known(batch)
	if err != nil {
		failAll(batch, err)
		return
	}
	var own inventory.Glance
	defer own.Close()
	at := in.goesOn()
	for _, l := range batch {
		err := error(fs.ErrNotExist)
		old, ok := found[l]
		if ok {
			err = in.meet(l, old)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = in.compare(l, &own, at)
		}
		if errors.Is(err, catalog.ErrSuperseded) {
			l.already, l.outdone, err = true, true, nil
		}
		l.fault, l.looked = err, true
		if l.noRoom != nil && l.fault == nil && !l.already {
			l.fault, l.awaits = l.noRoom, old.Sum != l.Sum
		}
		in.again = in.again || l.already
	}
	in.trim(batch)
}

// trim cuts blocks that were here already off the end of the segment. If other blocks follow them in it, their space
// becomes free when the batch is recorded.
func (in *inbound) trim(batch []*landed) {
	if in.seg == nil || in.open.Load() {
		return
	}
	end := in.seg.End
	for _, l := range slices.Backward(batch) {
		if !l.already || l.segment != in.seg || l.Offset+l.Length != end {
			break
		}
		end, l.segment = l.begin, nil
	}
	if end < in.seg.End {
		in.work.Begin(&in.seg.Dir)
		in.seg.Forget(end)
		in.work.End()
	}
}

// earlier is the record that the catalog has under an id, or why it cannot be read.
type earlier struct {
	catalog.Record
	err error
}

// known looks up the ids of a batch.
func (in *inbound) known(batch []*landed) (found map[*landed]earlier, err error) {
	err = in.asks(func(c *catalog.Catalog) error {
		return c.Look(len(batch), func(look *catalog.Lookup) {
			for _, l := range batch {
				r, err := look.Record(l.ID)
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if found == nil {
					found = map[*landed]earlier{}
				}
				found[l] = earlier{r, err}
			}
		})
	})
	return found, err
}

// mostReadBack is the largest block that is compared with its earlier copy when it comes again. A larger block replaces its
// earlier copy: all of its bytes have come before they could be compared, and its sender would have to wait while the copy is
// read.
const mostReadBack = 64 << 20

// meet reads back what landed before under a block's id. It returns fs.ErrNotExist if that is gone.
func (in *inbound) meet(l *landed, old earlier) error {
	err := old.err
	replaces := old.Bytes() > mostReadBack && l.noRoom == nil && old.Origin == l.Origin
	if err == nil {
		err = in.on(in.r.lies(old.Record, 0), func() error {
			if replaces {
				return in.r.present(old.Record, in.goesOn())
			}
			return in.r.intact(old.Record, in.goesOn())
		})
	}
	switch {
	case err == nil && replaces:
		return nil
	case err == nil:
		l.already = old.Sum == l.Sum && old.Bytes() == l.Bytes() || errors.Is(old.Against(&l.Record), catalog.ErrSuperseded)
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		in.r.cfg.Log.Warn("a block that landed before is not whole any more, and is replaced", "block", l.ID, "err", err)
		return nil
	}
	// The record of a copy that is gone must not stand against the block that comes.
	if gone := in.r.lay(old.Record); gone != nil {
		return gone
	}
	return err
}

// compare returns ErrConflict if the node's own store has other bytes under a block's id, and ErrSuperseded if those are a
// newer version. A copy on a disk that does not answer counts as none.
func (in *inbound) compare(l *landed, own *inventory.Glance, at func(dir *string)) error {
	s := in.r.stores[inventory.BlockID(l.ID).Store()]
	if s == nil {
		return nil
	}
	defer in.work.End()
	if own.Lacks(s, inventory.BlockID(l.ID), at) {
		return nil
	}
	return contradictsOwn(s, l.Record, in.r.cfg.Node, at)
}

// goesOn returns a step to be called during long work on a disk. Each call shows that the disk still answers, so that nobody
// takes it for one that hangs; once a second it also tells the sender, so that the sender does not give this node up.
func (in *inbound) goesOn() (step func(dir *string)) {
	said := time.Now()
	return func(dir *string) {
		now := time.Now()
		in.work.BeginAt(dir, now)
		if now.Sub(said) >= diskio.LookAfter {
			said = now
			in.beat.Add(1)
			in.out.live()
		}
	}
}
