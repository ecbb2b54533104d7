package migration

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"go.etcd.io/bbolt"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/fields"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// packed returns some of a store's blocks whose bytes are in segments, behind the id after, and the last id that it looked
// at: nil when that was the store's last. It reads little at a time: a long transaction would make the catalog's file grow.
func (c *catalog) packed(s *inventory.Store, after []byte) (found []record, last []byte, err error) {
	const mostRead = 8 * listBatch
	prefix := []byte(s.Name + "/")
	err = c.view(func(tx *bbolt.Tx) error {
		cur := tx.Bucket(bucketBlocks).Cursor()
		k, v := cur.Seek([]byte(cmp.Or(string(after), string(prefix))))
		if after != nil && bytes.Equal(k, after) {
			k, v = cur.Next()
		}
		var bytesFound int64
		for read := 0; bytes.HasPrefix(k, prefix); k, v = cur.Next() {
			if read == mostRead || len(found) == groupBlocks || bytesFound >= groupBytes {
				return nil
			}
			read++
			last = append(last[:0], k...)
			r, err := parseRecord(v)
			if err == nil && wants(s, r) { // what cannot be read is named when it is asked for
				found = append(found, r)
				bytesFound += r.Bytes()
			}
		}
		last = nil
		return nil
	})
	if err != nil {
		err = fmt.Errorf("read catalog: %w", err)
	}
	return found, last, err
}

// wants reports whether a block rests in a segment and belongs in the store's directories.
func wants(s *inventory.Store, r record) bool {
	return r.Segment != 0 && s.Land == inventory.LandPlace && s.Layout == r.Layout && inventory.BlockID(r.ID).Store() == s.Name
}

// placed reports whether files of a block are in place, or about to be.
func (c *catalog) placed(id inventory.BlockID) (is bool) {
	err := c.view(func(tx *bbolt.Tx) error {
		v := tx.Bucket(bucketBlocks).Get([]byte(id))
		if v == nil {
			return nil
		}
		r, err := parseRecord(v)
		is = len(r.Placed) > 0
		return err
	})
	return is || err != nil
}

// turn writes records anew, those that are still as they were read.
func (c *catalog) turn(was, into []record) (turned []bool, err error) {
	turned = make([]bool, len(was))
	err = c.update(func(tx *bbolt.Tx, w weights) error {
		for i, r := range was {
			if !stands(tx, r) {
				continue
			}
			if err := w.put(tx, into[i]); err != nil {
				return err
			}
			turned[i] = true
		}
		return nil
	})
	if err != nil {
		return make([]bool, len(was)), fmt.Errorf("write catalog: %w", err)
	}
	return turned, nil
}

// replay reads blocks out of segments, frame by frame as they came.
type replay struct {
	vault  *Vault
	no     uint32 // of the segment that is open; 0: none is
	f      *os.File
	done   func()
	frames *wire.Reader
}

func newReplay(v *Vault) *replay {
	return &replay{vault: v, frames: wire.NewReader(nil, wire.ChunkBytes)}
}

func (p *replay) close() {
	if p.no != 0 {
		p.f.Close()
		p.done()
		p.no = 0
	}
}

func (p *replay) open(no uint32, dir string) error {
	if p.no == no {
		return nil
	}
	p.close()
	done := p.vault.read(no)
	f, err := os.Open(segmentFile(dir, no))
	if err != nil {
		done()
		return err
	}
	p.no, p.f, p.done = no, f, done
	return nil
}

// block hands out the data frames of a block, each with the number of its member, and returns an error unless they are all
// that its record says.
func (p *replay) block(r record, data func(member int, f wire.Frame) error) error {
	dir, err := p.vault.home(r.Segment)
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
func (v *Vault) unpacked(r record) (now record, is bool) {
	now, err := v.catalog.get(inventory.BlockID(r.ID))
	return now, err == nil && now.Sum == r.Sum && now.Segment != r.Segment
}

// now returns the record of a block as it is, r if what landed is no longer the same.
func (v *Vault) now(r record) record {
	now, err := v.catalog.get(inventory.BlockID(r.ID))
	if err != nil || now.Sum != r.Sum || !now.Landed.Equal(r.Landed) {
		return r
	}
	return now
}
