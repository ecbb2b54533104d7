package vault

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/fields"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Replay reads blocks out of segments frame by frame, as they came over the wire.
type Replay struct {
	vault  *Vault
	no     uint32 // of the open segment; 0: none is open
	f      *os.File
	done   func()
	frames *wire.Reader
}

// NewReplay begins to read blocks of a vault.
func NewReplay(v *Vault) *Replay {
	return &Replay{vault: v, frames: wire.NewReader(nil, wire.ChunkBytes)}
}

// Close ends that.
func (p *Replay) Close() {
	if p.no != 0 {
		p.f.Close()
		p.done()
		p.no = 0
	}
}

func (p *Replay) open(no uint32, dir string) error {
	if p.no == no {
		return nil
	}
	p.Close()
	done := p.vault.Read(no)
	f, err := os.Open(SegmentFile(dir, no))
	if err != nil {
		done()
		return err
	}
	p.no, p.f, p.done = no, f, done
	return nil
}

// Block hands out the data frames of a block, each with the number of its member. It returns an error unless the frames
// are exactly those of the block's record.
func (p *Replay) Block(r catalog.Record, data func(member int, f wire.Frame) error) error {
	dir, err := p.vault.Home(r.Segment)
	if err = cmp.Or(err, p.vault.Readable(dir)); err != nil {
		return diskio.Away(err)
	}
	if err := p.open(r.Segment, dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = p.vault.lacks(r.Segment, dir)
		}
		return err
	}
	p.frames.Reset(io.NewSectionReader(p.f, r.Offset, r.Length))
	next := func(t wire.FrameType) (wire.Frame, error) {
		f, err := p.frames.Next()
		if err == nil && f.Type != t || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("segment %d does not have it at byte %d: %w", r.Segment, r.Offset, wire.ErrCorrupt)
		}
		return f, err
	}
	f, err := next(wire.FrameOpen)
	if err == nil && !bytes.HasPrefix(f.Payload, fields.AppendString(nil, r.ID)) {
		err = fmt.Errorf("another block is at byte %d of segment %d: %w", r.Offset, r.Segment, wire.ErrCorrupt)
	}
	for i, m := range r.Members {
		for left := m.Bytes; left > 0 && err == nil; left -= wire.ChunkBytes {
			if f, err = next(wire.FrameData); err == nil && int64(len(f.Payload)) != min(left, wire.ChunkBytes) {
				err = fmt.Errorf("a chunk has %d bytes: %w", len(f.Payload), wire.ErrCorrupt)
			}
			if err == nil {
				err = data(i, f)
			}
		}
	}
	if err != nil {
		return err
	}
	if f, err = next(wire.FrameClose); err == nil && string(f.Payload) != string(r.Sum[:]) {
		err = wire.ErrCorrupt
	}
	return err
}

// unpacked returns the record of a block that has become files since r was read.
func (v *Vault) unpacked(r catalog.Record) (now catalog.Record, is bool) {
	now, err := v.Catalog.Get(inventory.BlockID(r.ID))
	return now, err == nil && now.Sum == r.Sum && now.Segment != r.Segment
}

// Now returns the current record of a block, or r if what landed is no longer the same.
func (v *Vault) Now(r catalog.Record) catalog.Record {
	now, err := v.Catalog.Get(inventory.BlockID(r.ID))
	if err != nil || now.Sum != r.Sum || !now.Landed.Equal(r.Landed) {
		return r
	}
	return now
}
