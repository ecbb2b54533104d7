package lastresort

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Record says what a block in a fallback is made of. Its sum is over all that it says of the bytes, so a record that
// was changed by accident is known as such, and the bytes are known by their record.
type Record struct {
	ID       inventory.BlockID `json:"id"`
	Kind     string            `json:"kind"`
	Layout   string            `json:"layout"` // of its store
	Place    string            `json:"place"`  // the fallback's layout that it lies by
	Origin   string            `json:"origin"` // the node that it was born on
	Modified time.Time         `json:"modified"`
	Sum      string            `json:"sum"` // as everywhere in the fleet, hexadecimal
	Members  []Member          `json:"members"`
	// Forgotten says that what lies there is out of date: its node has had it forgotten.
	Forgotten bool `json:"forgotten,omitempty"`
}

type Member struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	Chunks []byte `json:"crc32c"` // of each 256 KiB, four bytes big-endian, base64
}

// maxRecord bounds what is read of a record: enough for a block of 1 TiB.
const maxRecord = 32 << 20

// Total returns the block's wire.Sum in hexadecimal, as the receiver of a stream computes it.
func (r Record) Total() string {
	s := wire.NewSummer()
	for _, m := range r.Members {
		s.Member(m.Bytes)
		for c := m.Chunks; len(c) >= 4; c = c[4:] {
			s.Chunk(binary.BigEndian.Uint32(c))
		}
	}
	sum := s.Total()
	return hex.EncodeToString(sum[:])
}

func (r Record) Sizes() []wire.MemberSize {
	sizes := make([]wire.MemberSize, len(r.Members))
	for i, m := range r.Members {
		sizes[i] = wire.MemberSize{Name: m.Name, Bytes: m.Bytes}
	}
	return sizes
}

func parseRecord(id inventory.BlockID, b []byte) (r Record, err error) {
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("its record is not readable: %w: %w", err, wire.ErrCorrupt)
	}
	if r.ID != id {
		return r, fmt.Errorf("its record is that of %q: %w", r.ID, wire.ErrCorrupt)
	}
	if r.Forgotten {
		return r, ErrForgotten
	}
	if len(r.Members) == 0 || len(r.Members) > wire.MaxMembers || r.Place != LayoutBlocks && r.Place != LayoutSpark {
		return r, fmt.Errorf("its record has %d files placed as %q: %w", len(r.Members), r.Place, wire.ErrCorrupt)
	}
	for _, m := range r.Members {
		if _, err := inventory.ParseBlockID(string(id.Sibling(m.Name))); err != nil {
			return r, fmt.Errorf("its record names a file %w: %w", err, wire.ErrCorrupt)
		}
		if m.Bytes < 0 || int64(len(m.Chunks)) != 4*wire.Chunks(m.Bytes) {
			return r, fmt.Errorf("its record has %d bytes of checksums for %d bytes: %w", len(m.Chunks), m.Bytes, wire.ErrCorrupt)
		}
		if r.Place == LayoutSpark && !inventory.MapOutputFile.MatchString(m.Name) {
			return r, fmt.Errorf("its record places %q as a shuffle file: %w", m.Name, wire.ErrCorrupt)
		}
	}
	if r.Place == LayoutSpark && !inventory.ApplicationDir.MatchString(id.Scope()) {
		return r, fmt.Errorf("its record places it in an application %q: %w", id.Scope(), wire.ErrCorrupt)
	}
	if _, err := inventory.ParseBlockID("x/" + r.Origin + "/x"); err != nil || r.Total() != r.Sum {
		return r, fmt.Errorf("its record contradicts itself: %w", wire.ErrCorrupt)
	}
	return r, nil
}

// Record reads a block's record. Its error is fs.ErrNotExist when there is none, ErrForgotten when nobody is to read what is there.
func (s *Storage) Record(ctx context.Context, id inventory.BlockID) (Record, error) {
	r, err := s.readRecord(ctx, id)
	if errors.Is(err, wire.ErrCorrupt) { // as in reader.fill; and somebody may have replaced it between two pieces
		return s.readRecord(ctx, id)
	}
	return r, err
}

func (s *Storage) readRecord(ctx context.Context, id inventory.BlockID) (Record, error) {
	var all []byte
	for size := 16 << 10; ; size *= 4 {
		more := make([]byte, size)
		n, err := s.Objects.Get(ctx, recordName(id), int64(len(all)), more)
		all = append(all, more[:n]...)
		switch {
		case errors.Is(err, io.EOF):
			return parseRecord(id, all)
		case err != nil:
			return Record{}, err
		case len(all) > maxRecord:
			return Record{}, fmt.Errorf("its record is larger than %d bytes: %w", maxRecord, wire.ErrCorrupt)
		}
	}
}

// PutRecord makes a block that is there count.
func (s *Storage) PutRecord(ctx context.Context, r Record, fresh bool) error {
	done, err := s.change(ctx, r.ID)
	if err != nil {
		return err
	}
	defer done()
	return s.write(ctx, r, fresh)
}

// change returns once nobody else in this process changes the record of a block. Forget looks at it and then replaces it: one that was put
// in between would be lost.
func (s *Storage) change(ctx context.Context, id inventory.BlockID) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := s.changing[id]; other != nil; other = s.changing[id] {
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if s.changing == nil {
		s.changing = map[inventory.BlockID]chan struct{}{}
	}
	mine := make(chan struct{})
	s.changing[id] = mine
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.changing, id)
		close(mine)
	}, nil
}

func (s *Storage) write(ctx context.Context, r Record, fresh bool) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.Objects.Put(ctx, recordName(r.ID), int64(len(b)), bytes.NewReader(b), fresh)
}

// Whole reports whether all files that a record names are there, in their sizes, and since when the oldest is.
func (s *Storage) Whole(ctx context.Context, r Record) (whole bool, since time.Time, err error) {
	for i, name := range r.Names() {
		bytes, _, at, err := s.Objects.Stat(ctx, name)
		if missing(err) || err == nil && bytes != r.Members[i].Bytes {
			return false, since, nil
		}
		if err != nil {
			return false, since, err
		}
		if since.IsZero() || at.Before(since) {
			since = at
		}
	}
	return true, since, nil
}

// RecordSince returns since when a block is there, whose oldest file is there since files: since its record, if that is older; zero if it
// has none. A drain that put the files again may have been killed before it put the record.
func (s *Storage) RecordSince(ctx context.Context, r Record, files time.Time) (time.Time, error) {
	_, _, at, err := s.Objects.Stat(ctx, recordName(r.ID))
	if missing(err) {
		return time.Time{}, nil
	}
	if at.Before(files) {
		return at, err
	}
	return files, err
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
