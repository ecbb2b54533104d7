package migration

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// spool is a queue of blocks on disk: [4 bytes length][record]... The newest stay in memory until they fill a buffer.
type spool struct {
	path    string
	left    Count // pushed and not popped
	f       *os.File
	written int64 // bytes in the file
	read    int64 // bytes of the file already in head
	head    []byte
	tail    []byte
}

// push never loses the record: an error says that it stays in memory.
func (s *spool) push(record []byte, bytes int64) error {
	s.left.Blocks++
	s.left.Bytes += bytes
	s.tail = binary.BigEndian.AppendUint32(s.tail, uint32(len(record)))
	s.tail = append(s.tail, record...)
	if len(s.tail) < spoolBuffer {
		return nil
	}
	if s.f == nil {
		f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return fmt.Errorf("spool the plan: %w", err)
		}
		s.f = f
	}
	if _, err := s.f.WriteAt(s.tail, s.written); err != nil {
		return fmt.Errorf("spool the plan: %w", err)
	}
	s.written += int64(len(s.tail))
	s.tail = s.tail[:0]
	return nil
}

// pop takes the oldest block off; there must be one.
func (s *spool) pop() (Block, error) {
	for len(s.head) < 4 || len(s.head)-4 < int(binary.BigEndian.Uint32(s.head)) {
		if err := s.refill(); err != nil {
			return Block{}, fmt.Errorf("read the plan back: %w", err)
		}
	}
	n := 4 + int(binary.BigEndian.Uint32(s.head))
	b, err := parseBlock(s.head[4:n])
	if err != nil {
		return Block{}, fmt.Errorf("read the plan back: %w", err)
	}
	s.head = s.head[n:]
	s.left.Blocks--
	s.left.Bytes -= b.Bytes()
	return b, nil
}

// refill reads on in the file, and once all of that was read, in what is still in memory.
func (s *spool) refill() error {
	left := s.written - s.read
	if left == 0 {
		if len(s.tail) == 0 {
			return io.ErrUnexpectedEOF
		}
		s.head, s.tail = append(s.head, s.tail...), nil
		return nil
	}
	part := len(s.head)
	buf := make([]byte, part+int(min(left, spoolBuffer)))
	copy(buf, s.head)
	if _, err := s.f.ReadAt(buf[part:], s.read); err != nil {
		return err
	}
	s.read += int64(len(buf) - part)
	s.head = buf
	return nil
}

func (s *spool) close() error {
	if s.f == nil {
		return nil
	}
	return errors.Join(s.f.Close(), os.Remove(s.path))
}

// appendBlock and parseBlock are the spool's record of a block.
func appendBlock(b []byte, blk Block) []byte {
	b = appendString(appendString(appendString(b, string(blk.ID)), blk.Kind), blk.Layout)
	b = binary.AppendVarint(b, int64(blk.value))
	b = binary.AppendUvarint(b, uint64(len(blk.Members)))
	for _, m := range blk.Members {
		b = binary.AppendVarint(appendString(b, m.Name), m.Bytes)
		b = binary.AppendVarint(b, m.ModTime.UnixNano())
		b = binary.AppendVarint(b, m.ctim)
		b = appendString(binary.AppendVarint(b, int64(m.root)), m.path)
	}
	return b
}

func parseBlock(record []byte) (blk Block, err error) {
	d := decoder{p: record}
	blk.ID, blk.Kind, blk.Layout, blk.value = BlockID(d.string()), d.string(), d.string(), time.Duration(d.varint())
	for range min(d.uvarint(), maxMembers) {
		m := Member{Name: d.string(), Bytes: d.varint(), ModTime: time.Unix(0, d.varint()), ctim: d.varint()}
		m.root, m.path = int(d.varint()), d.string()
		blk.Members = append(blk.Members, m)
	}
	return blk, d.end("plan")
}
