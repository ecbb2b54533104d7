package plan

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/fields"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Spool is a queue of blocks on disk: [4 bytes length][record]... The newest stay in memory until they fill a buffer.
type Spool struct {
	Path    string
	room    *diskio.Allowance
	Left    inventory.Count // pushed and not popped
	most    int64           // bytes of the largest that was pushed
	f       *os.File
	written int64  // bytes in the file
	read    int64  // bytes of the file already in head
	head    []byte // of buf
	buf     []byte
	tail    []byte
	last    inventory.Block // that was popped: the next one shares its strings
	members inventory.Roster
}

// Push never loses the block: an error says that it stays in memory.
func (s *Spool) Push(b inventory.Block) error {
	s.Left.Blocks++
	s.Left.Bytes += b.Bytes()
	s.most = max(s.most, b.Bytes())
	at := len(s.tail)
	s.tail = appendBlock(append(s.tail, 0, 0, 0, 0), b)
	binary.BigEndian.PutUint32(s.tail[at:], uint32(len(s.tail)-at-4))
	if len(s.tail) < spoolBuffer {
		return nil
	}
	return s.write()
}

// write puts the newest blocks, which are in memory, on disk. If it fails they stay in memory.
func (s *Spool) write() error {
	if s.f == nil {
		f, err := os.OpenFile(s.Path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return fmt.Errorf("spool the plan: %w", err)
		}
		s.f = f
	}
	if err := s.room.Take(len(s.tail)); err != nil {
		return fmt.Errorf("spool the plan: %w", err)
	}
	if _, err := s.f.WriteAt(s.tail, s.written); err != nil {
		s.room.GiveBack(int64(len(s.tail)))
		return fmt.Errorf("spool the plan: %w", err)
	}
	s.written += int64(len(s.tail))
	s.tail = s.tail[:0]
	return nil
}

// Pop takes the oldest block off; there must be one.
func (s *Spool) Pop() (inventory.Block, error) {
	for len(s.head) < 4 || len(s.head)-4 < int(binary.BigEndian.Uint32(s.head)) {
		if err := s.refill(); err != nil {
			return inventory.Block{}, fmt.Errorf("read the plan back: %w", err)
		}
	}
	n := 4 + int(binary.BigEndian.Uint32(s.head))
	b, err := parseBlock(s.head[4:n], s.last, &s.members)
	if err != nil {
		return inventory.Block{}, fmt.Errorf("read the plan back: %w", err)
	}
	s.head, s.last = s.head[n:], b
	s.Left.Blocks--
	s.Left.Bytes -= b.Bytes()
	return b, nil
}

// refill reads on in the file, and once all of that was read, in what is still in memory.
func (s *Spool) refill() error {
	left := s.written - s.read
	if left == 0 {
		if len(s.tail) == 0 {
			return io.ErrUnexpectedEOF
		}
		s.buf, s.tail = append(append(s.buf[:0], s.head...), s.tail...), s.tail[:0]
		s.head = s.buf
		return nil
	}
	part := len(s.head)
	s.buf = append(s.buf[:0], s.head...)
	s.buf = slices.Grow(s.buf, int(min(left, spoolBuffer)))[:part+int(min(left, spoolBuffer))]
	if _, err := s.f.ReadAt(s.buf[part:], s.read); err != nil {
		return err
	}
	s.read += int64(len(s.buf) - part)
	s.head = s.buf
	return nil
}

// Close removes what is on disk.
func (s *Spool) Close() error {
	if s.f == nil {
		return nil
	}
	s.room.GiveBack(s.written)
	return errors.Join(s.f.Close(), os.Remove(s.Path))
}

// appendBlock and parseBlock write and read the spool's record of a block. A member's name is not written where it is the block's,
// nor its path where that is its name: so it is with every block of one file.
func appendBlock(b []byte, blk inventory.Block) []byte {
	b = fields.AppendString(fields.AppendString(fields.AppendString(b, string(blk.ID)), blk.Kind), blk.Layout)
	b = fields.AppendString(binary.AppendVarint(b, int64(blk.Value)), blk.Origin)
	members := uint64(len(blk.Members)) << 2
	if blk.Traced {
		members |= 2
	}
	if blk.Spare {
		members |= 1
	}
	b = binary.AppendUvarint(b, members)
	name := blk.ID.Name()
	for _, m := range blk.Members {
		b = binary.AppendVarint(fields.AppendString(b, unless(m.Name, name)), m.Bytes)
		b = binary.AppendVarint(b, m.ModTime.UnixNano())
		b = binary.AppendVarint(b, m.ChangeTime)
		b = fields.AppendString(binary.AppendVarint(b, int64(m.Root)), unless(m.Path, m.Name))
	}
	return b
}

// parseBlock shares the strings of the block before, where they are the same.
func parseBlock(record []byte, before inventory.Block, lists *inventory.Roster) (blk inventory.Block, err error) {
	d := fields.Decode(record)
	blk.ID, blk.Kind, blk.Layout, blk.Value = inventory.BlockID(d.Text()), d.Like(before.Kind), d.Like(before.Layout), time.Duration(d.Varint())
	blk.Origin = d.Like(before.Origin)
	members, name := d.Uvarint(), blk.ID.Name()
	n := min(members>>2, wire.MaxMembers)
	blk.Traced, blk.Spare = members&2 != 0, members&1 != 0
	blk.Members = lists.Of(int(n))
	for i := range blk.Members {
		m := &blk.Members[i]
		*m = inventory.Member{Name: cmp.Or(d.Text(), name), Bytes: d.Varint(), ModTime: time.Unix(0, d.Varint()), ChangeTime: d.Varint()}
		m.Root, m.Path = int(d.Varint()), cmp.Or(d.Text(), m.Name)
	}
	return blk, d.End("plan")
}

// unless returns s, or "" where that is what is known.
func unless(s, known string) string {
	if s == known {
		return ""
	}
	return s
}
