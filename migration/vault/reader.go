package vault

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Reader reads small blocks of the vault, one after the other, as they leave: a segment is opened once, and a block is read with
// one call. What is verified of it is what Vault.reader verifies.
type Reader struct {
	open []openSegment // the last ones that blocks were in
	head []byte        // what was read last before a chunk's bytes
}

type openSegment struct {
	no   uint32
	f    *os.File
	done func() // that it is read
}

// mostOpen is how many segments are kept open. As many as its connections took what a node sent, and so its blocks alternate between
// them.
const mostOpen = 4

// Leave keeps no segment open.
func (n *Reader) Leave() {
	for _, s := range n.open {
		s.leave()
	}
	n.open = n.open[:0]
}

func (s openSegment) leave() {
	s.f.Close() // it was only read
	s.done()
}

// Read reads a member that is as long as p, and no longer than a chunk. It reports false, and has read nothing, where the block is
// not in a segment any more or that cannot be opened: whoever looks for it alone says why.
func (n *Reader) Read(v *Vault, b inventory.Block, i int, p []byte) (is bool, err error) {
	r, f := n.find(v, b.ID)
	if f == nil {
		return false, nil
	}
	if !r.Is(b.Members[i], i) {
		return true, inventory.ErrChanged // another version has landed since
	}
	at, open, header := framesOf(&r, i), int64(0), int64(wire.HeaderBytes)
	if i == 0 { // how a block begins is verified with its first member
		at, open = r.Offset, r.OpenLen
	}
	if len(p) == 0 { // nothing has no frame
		header = 0
	}
	n.head = slices.Grow(n.head[:0], int(open+header))[:open+header]
	if err := n.fill(f, at, p); err != nil {
		return true, err
	}
	switch {
	case open > 0 && !opens(n.head[:open], r.ID):
		return true, errElsewhere(&r)
	case header > 0 && !wire.IsFrame(wire.FrameData, n.head[open:], p):
		return true, fmt.Errorf("%s at byte %d: %w", f.Name(), at+open, wire.ErrCorrupt)
	}
	return true, nil
}

// find looks up a block, and opens the segment that it is in; nil: there is none. That a segment is read is said before it is relied
// on that the block is there: what is free of it may be given to others otherwise.
func (n *Reader) find(v *Vault, id inventory.BlockID) (catalog.Record, *os.File) {
	for range 2 {
		r, err := v.Catalog.Get(id)
		if err != nil || r.Segment == 0 {
			return r, nil
		}
		if i := slices.IndexFunc(n.open, func(s openSegment) bool { return s.no == r.Segment }); i >= 0 {
			return r, n.open[i].f
		}
		dir, err := v.Home(r.Segment)
		if err != nil || v.Readable(dir) != nil {
			return r, nil
		}
		done := v.Read(r.Segment)
		f, err := os.Open(SegmentFile(dir, r.Segment))
		if err != nil {
			done()
			return r, nil
		}
		if len(n.open) == mostOpen {
			n.open[0].leave()
			n.open = slices.Delete(n.open, 0, 1)
		}
		n.open = append(n.open, openSegment{r.Segment, f, done})
	}
	return catalog.Record{}, nil // it moves about
}

// fill reads what is at a place into the head, and what follows into p. What memory lacks the disk is asked for, with what follows.
func (n *Reader) fill(f *os.File, at int64, p []byte) error {
	fd := int(f.Fd())
	got, _ := diskio.Retry(func() (int, error) { return unix.Preadv2(fd, [][]byte{n.head, p}, at, unix.RWF_NOWAIT) })
	if got == len(n.head)+len(p) {
		return nil
	}
	diskio.Prefetch(fd, at, at+diskio.Window)
	_, err := f.ReadAt(n.head, at)
	if err == nil && len(p) > 0 {
		_, err = f.ReadAt(p, at+int64(len(n.head)))
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s is shorter than it was: %w", f.Name(), wire.ErrCorrupt)
	}
	return err
}
