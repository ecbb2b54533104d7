package vault

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Segments describe themselves: when the catalog is lost, the landed blocks are found again in them. Every frame is
// verified on the way, and a block counts if all of it is there. A removed block is not found: its bytes were punched out,
// or its opening frame was voided.

// pageBytes is the least that the kernel reads of a file: what shares its page with a bad sector cannot be read either.
const pageBytes = 4096

// salvaged is what has been found in one segment.
type salvaged struct {
	whole  func(catalog.Record) error
	broken func(Held) // its opening can be read, and the rest not

	gaps []catalog.Stretch // stretches that belong to no whole block
	end  int64             // of the last whole block
	from string            // the node that the next blocks were carried from

	fault  error // the first of the disk
	faults int

	f    *os.File
	no   uint32
	when time.Time
	size int64
	in   *wire.Reader
	try  *wire.Reader // tries whether a frame begins somewhere
	at   int64        // of the next frame
	gap  int64        // where a stretch of no use began; -1: there is none
}

// salvage reads a segment from one end to the other. What the disk does not give is left out, and is told by the error, with what was found.
func salvage(path string, no uint32, whole func(catalog.Record) error, broken func(Held)) (_ *salvaged, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	s := &salvaged{whole: whole, broken: broken, f: f, no: no, when: info.ModTime(), size: info.Size(), gap: -1}
	s.in, s.try = wire.NewReader(nil, wire.ChunkBytes), wire.NewReader(nil, wire.ChunkBytes)
	s.seek(0)
	for s.at < s.size {
		if err := s.next(); err != nil {
			return s, err
		}
	}
	return s, s.fault
}

func (s *salvaged) seek(at int64) {
	s.at = at
	s.in.Reset(io.NewSectionReader(s.f, at, max(0, s.size-at)))
}

// frame reads the next frame. It returns ErrCorrupt if there is none, and the disk's own errors as they are.
func (s *salvaged) frame() (wire.Frame, error) {
	f, err := s.in.Next()
	if err != nil {
		if diskio.IsFault(err) {
			return f, err
		}
		return f, wire.ErrCorrupt
	}
	s.at += int64(len(f.Raw))
	return f, nil
}

// next takes the next frame or block of the segment.
func (s *salvaged) next() error {
	at := s.at
	f, err := s.frame()
	switch {
	case errors.Is(err, wire.ErrCorrupt):
		s.lose(at)
		return s.skip(at)
	case err != nil:
		to, err := s.beyond(err, at)
		s.seek(to)
		return err
	case f.Type == wire.FrameHello:
		s.keep(at)
		if h, err := wire.ParseHello(f.Payload); err == nil {
			s.from = h.Node
		}
		return nil
	case f.Type != wire.FrameOpen: // of a block whose opening is not there
		s.lose(at)
		return nil
	}
	o, err := wire.ParseOpening(f.Payload)
	if err != nil {
		s.lose(at)
		return nil
	}
	r := catalog.Record{Opening: o, From: s.from, Landed: s.when, Segment: s.no, Offset: at, OpenLen: int64(len(f.Raw)), Length: framesLength(o, int64(len(f.Raw)))}
	if r.Origin == "" {
		r.Origin = s.from
	}
	r.Sum, err = s.body(f.Transfer, o)
	switch {
	case errors.Is(err, wire.ErrCorrupt):
		s.lose(at)
		if at+r.Length <= s.size { // else the segment ends amid the block, which was never whole
			s.broken(HeldOf(r))
		}
		s.seek(min(at+r.Length, s.size))
		return nil
	case err != nil:
		to, err := s.beyond(err, at)
		s.seek(min(max(to, at+r.Length), s.size))
		return err
	}
	s.keep(at)
	s.end = s.at
	return s.whole(r)
}

// framesLength returns the length of a whole block in a segment.
func framesLength(o wire.Opening, open int64) int64 {
	n := open + wire.HeaderBytes + int64(len(wire.Sum{}))
	for _, m := range o.Members {
		n += m.Bytes + wire.Chunks(m.Bytes)*wire.HeaderBytes
	}
	return n
}

// body reads a block's frames behind its opening.
func (s *salvaged) body(transfer uint32, o wire.Opening) (sum wire.Sum, err error) {
	sums := wire.NewSummer()
	for _, m := range o.Members {
		sums.Member(m.Bytes)
		for left := m.Bytes; left > 0; left -= wire.ChunkBytes {
			f, err := s.frame()
			if err == nil && (f.Type != wire.FrameData || f.Transfer != transfer || int64(len(f.Payload)) != min(left, wire.ChunkBytes)) {
				err = wire.ErrCorrupt
			}
			if err != nil {
				return sum, err
			}
			sums.Chunk(f.Sum)
		}
	}
	f, err := s.frame()
	sum = sums.Total()
	if err == nil && (f.Type != wire.FrameClose || f.Transfer != transfer || !bytes.Equal(f.Payload, sum[:])) {
		err = wire.ErrCorrupt
	}
	return sum, err
}

// lose notes where a stretch of no use begins; keep notes that it ends.
func (s *salvaged) lose(at int64) {
	if s.gap < 0 {
		s.gap = at
	}
}

func (s *salvaged) keep(at int64) {
	if s.gap >= 0 && s.gap < at {
		s.gaps = append(s.gaps, catalog.Stretch{At: s.gap, Length: at - s.gap})
	}
	s.gap = -1
}

// skip goes on behind bytes that are no valid frame: behind the frame that their header speaks of, if one follows
// there, or else at the next opening or hello.
func (s *salvaged) skip(at int64) error {
	var h [wire.HeaderBytes]byte
	if _, err := s.f.ReadAt(h[:], at); err != nil {
		to, err := s.beyond(err, at)
		s.seek(to)
		return err
	}
	t, n := wire.FrameType(h[0]), binary.BigEndian.Uint32(h[4:])
	if t >= wire.FrameOpen && t <= wire.FrameReceipts && h[1]|h[2]|h[3] == 0 && n <= uint32(wire.MaxPayload[t]) { // voidMark, too
		if to := at + wire.HeaderBytes + int64(n); to < s.size && s.begins(to) {
			s.seek(to)
			return nil
		}
	}
	to, err := s.search(at + 1)
	s.seek(to)
	return err
}

// begins reports whether a frame begins there.
func (s *salvaged) begins(at int64) bool {
	s.try.Reset(io.NewSectionReader(s.f, at, s.size-at))
	_, err := s.try.Next()
	return err == nil
}

// search returns where the next opening or hello is. It skips holes.
func (s *salvaged) search(from int64) (int64, error) {
	buf := make([]byte, 64<<10)
	for from < s.size {
		if data, err := unix.Seek(int(s.f.Fd()), from, unix.SEEK_DATA); err == nil {
			from = max(from, data)
		} else if err == unix.ENXIO {
			return s.size, nil
		}
		n, err := s.f.ReadAt(buf, from)
		if n < wire.HeaderBytes {
			if from, err = s.beyond(err, from+int64(n)); err != nil {
				return s.size, err
			}
			continue
		}
		for i := range n - wire.HeaderBytes + 1 {
			h := buf[i:]
			if t := wire.FrameType(h[0]); (t == wire.FrameOpen || t == wire.FrameHello) && h[1]|h[2]|h[3] == 0 && s.begins(from+int64(i)) {
				return from + int64(i), nil
			}
		}
		from += int64(n - wire.HeaderBytes + 1)
	}
	return s.size, nil
}

// beyond returns where to go on after a read failed: at the end of the file, or behind what the disk does not give. Each time that is twice
// as far, because a disk may take half a minute to fail: so a segment has at most 17 such reads.
func (s *salvaged) beyond(err error, at int64) (to int64, _ error) {
	switch {
	case errors.Is(err, io.EOF):
		return s.size, nil
	case !diskio.IsFault(err):
		return s.size, err
	}
	s.fault = cmp.Or(s.fault, err)
	to = at&^(pageBytes-1) + pageBytes<<s.faults
	s.faults++
	return min(to, s.size), nil
}

// voidMark replaces an opening frame's type when its block is not kept. No reader of a segment takes such a frame.
const voidMark = byte(wire.FrameReceipts)
