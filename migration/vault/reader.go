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

// Reader reads small blocks of the vault one after the other, as a drain sends them. It opens each segment once, and reads a
// block with one call. It verifies what Vault.member verifies.
type Reader struct {
	open []openSegment // those read last
	head []byte        // what lies before a chunk's bytes, as read last
}

type openSegment struct {
	no   uint32
	f    *os.File
	done func() // ends Vault.Read
}

// mostOpen is how many segments are kept open. The blocks that one node sent landed by several connections, each in its own segment,
// so a drain that reads them in order alternates between those.
const mostOpen = 4

// Leave closes the segments that are open.
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

// Read reads a member that is as long as p, and no longer than a chunk. It reports false, and has read nothing, if the block is no
// longer in a segment or the segment cannot be opened: OpenLanded then says why.
func (n *Reader) Read(v *Vault, b inventory.Block, i int, p []byte) (is bool, err error) {
	r, f := n.find(v, b.ID)
	if f == nil {
		return false, nil
	}
	if !r.Is(b.Members[i], i) {
		return true, inventory.ErrChanged // another version has landed since
	}
	at, open, header := framesOf(&r, i), int64(0), int64(wire.HeaderBytes)
	if i == 0 { // the opening frame is verified with the first member
		at, open = r.Offset, r.OpenLen
	}
	if len(p) == 0 { // an empty member has no frame
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

// find looks up a block, and opens the segment that it is in; nil: it is in none that can be opened. It calls Vault.Read before it
// relies on the record, or the block's space could be given to others meanwhile.
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
	return catalog.Record{}, nil // it is being moved about
}

// fill reads the bytes at a place into the head, and those behind it into p. If they are not in memory it asks the disk for them
// and for what follows.
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
