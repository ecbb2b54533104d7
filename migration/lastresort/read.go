package lastresort

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Content is an open file of a block.
type Content struct {
	io.ReadSeekCloser
	ETag     string
	Modified time.Time
}

// Open opens a file of a block, or a block of one file. Its bytes are verified by the block's record. A block that Spark put there
// itself has no record, and nothing but the storage vouches for its bytes.
func (s *Storage) Open(ctx context.Context, id inventory.BlockID) (*Content, error) {
	for _, base := range id.OnRecord() {
		r, err := s.Record(ctx, base)
		if missing(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return s.openRecorded(ctx, id, r)
	}
	if s.Layout == LayoutSpark && inventory.ApplicationDir.MatchString(id.Scope()) && inventory.MapOutput.MatchString(id.Block().Name()) {
		return s.openSparks(ctx, id)
	}
	return nil, fs.ErrNotExist
}

func (s *Storage) openRecorded(ctx context.Context, id inventory.BlockID, r Record) (*Content, error) {
	if id == r.ID && len(r.Members) > 1 {
		e := &inventory.MembersError{}
		for _, m := range r.Members {
			e.Add(id.Sibling(m.Name), m.Bytes)
		}
		return nil, e
	}
	for i, name := range r.Names() {
		m := r.Members[i]
		if m.Name != id.Name() {
			continue
		}
		get := func(from int64, into []byte) (int, error) { return s.Objects.Get(ctx, name, from, into) }
		return &Content{ReadSeekCloser: &reader{name: name, bytes: m.Bytes, sums: m.Chunks, get: get}, ETag: fmt.Sprintf(`"%s-%d"`, r.Sum, i), Modified: r.Modified}, nil
	}
	return nil, fs.ErrNotExist
}

// openSparks opens what Spark's own fallback storage put there, as it does since 3.2 or as it did in 3.1. Spark writes the
// index before the data and renames nothing, so a map output counts only when the two agree.
func (s *Storage) openSparks(ctx context.Context, id inventory.BlockID) (*Content, error) {
	base := id.Block().Name()
	for _, where := range []func(app, name string) string{SparkName, sparkFirstName} {
		index, data := base+".index", base+".data"
		bytes, _, _, err := s.Objects.Stat(ctx, where(id.Scope(), index))
		if missing(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var untold error // why the storage does not say what the index is
		get := func(from int64, into []byte) (int, error) {
			n, err := s.Objects.Get(ctx, where(id.Scope(), index), from, into)
			if err != nil && !errors.Is(err, io.EOF) && !missing(err) {
				untold = err
			}
			return n, err
		}
		end, err := inventory.ReadIndex(&reader{name: index, bytes: bytes, get: get}, bytes)
		switch {
		case untold != nil:
			return nil, untold
		case err != nil:
			return nil, fs.ErrNotExist // half written
		}
		e := &inventory.MembersError{}
		for _, name := range []string{data, index} {
			bytes, tag, at, err := s.Objects.Stat(ctx, where(id.Scope(), name))
			if missing(err) && end == 0 {
				continue // all partitions are empty
			}
			if err != nil {
				return nil, err
			}
			if name == data && bytes != end {
				return nil, fs.ErrNotExist
			}
			e.Add(id.Sibling(name), bytes)
			if name == id.Name() {
				get := func(from int64, into []byte) (int, error) {
					return s.Objects.Get(ctx, where(id.Scope(), name), from, into)
				}
				return &Content{ReadSeekCloser: &reader{name: name, bytes: bytes, get: get}, ETag: fmt.Sprintf("%q", "fallback-"+tag), Modified: at}, nil
			}
		}
		if id.Block() == id {
			return nil, e
		}
	}
	return nil, fs.ErrNotExist
}

// reader reads a content of the fallback, and lets no byte out before its chunk was verified.
type reader struct {
	name  string
	bytes int64
	sums  []byte // of each chunk; nil: there are none
	get   func(from int64, into []byte) (int, error)

	pos   int64
	at    int64 // of buf, a multiple of a chunk
	buf   []byte
	ahead int64 // chunks to ask for at once
}

// mostAhead is how many chunks are asked for at once when a content is read from end to end. A bucket takes some 30 ms for an
// answer, however short; with 4 MiB in each that is more than 1 Gbit/s.
const mostAhead = 16

func (r *reader) Read(p []byte) (int, error) {
	if r.pos >= r.bytes {
		return 0, io.EOF
	}
	if r.pos < r.at || r.pos >= r.at+int64(len(r.buf)) {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.buf[r.pos-r.at:])
	r.pos += int64(n)
	return n, nil
}

func (r *reader) fill() error {
	first := r.pos / wire.ChunkBytes
	if first*wire.ChunkBytes == r.at+int64(len(r.buf)) && r.ahead > 0 {
		r.ahead = min(2*r.ahead, mostAhead)
	} else {
		r.ahead = 1
	}
	at := first * wire.ChunkBytes
	size := min(r.ahead*wire.ChunkBytes, r.bytes-at)
	if int64(cap(r.buf)) < size {
		r.buf = make([]byte, size)
	}
	buf := r.buf[:size]
	r.at, r.buf = at, buf[:0]
	err := r.load(first, buf)
	if errors.Is(err, wire.ErrCorrupt) { // it may be the answer that was damaged, and not what lies there
		err = r.load(first, buf)
	}
	if err == nil {
		r.buf = buf
	}
	return err
}

// load reads chunks from the first on, and verifies each.
func (r *reader) load(first int64, buf []byte) error {
	at, size := first*wire.ChunkBytes, int64(len(buf))
	n, err := r.get(at, buf)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if int64(n) < size {
		return fmt.Errorf("%s is shorter than it was: %w", r.name, wire.ErrCorrupt)
	}
	for i := int64(0); r.sums != nil && i*wire.ChunkBytes < size; i++ {
		chunk := buf[i*wire.ChunkBytes : min((i+1)*wire.ChunkBytes, size)]
		if crc32.Checksum(chunk, wire.Castagnoli) != binary.BigEndian.Uint32(r.sums[(first+i)*4:]) {
			return fmt.Errorf("%s at byte %d: %w", r.name, at+i*wire.ChunkBytes, wire.ErrCorrupt)
		}
	}
	return nil
}

func (r *reader) Seek(offset int64, whence int) (int64, error) {
	return vault.Seek(&r.pos, r.bytes, offset, whence)
}

func (r *reader) Close() error { return nil }
