package vault

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// chunkReader serves a landed member and lets no byte out before the chunk that it is part of has been verified. It is
// an io.ReadSeeker for http.ServeContent and for a drain that carries the block on.
type chunkReader struct {
	f     *os.File
	bytes int64
	from  chunkSource
	ahead int64  // how many bytes a disk is asked for when the next are not in memory
	done  func() // called by Close; may be nil

	modified int64 // when the file was, in Unix nanoseconds, if an engine may write it anew while it is read; else 0

	pos  int64
	have int64 // number of the chunk in buf; -1: none
	buf  []byte
	body []byte
}

// chunkSource finds and checks one chunk of a file.
type chunkSource interface {
	// place returns where in the file the chunk of that number begins.
	place(number int64) int64
	// read reads the chunk of that number and size with one read into buf, verifies it, and returns its bytes.
	read(f *os.File, number int64, bytes int, buf []byte) ([]byte, error)
}

// newChunkReader reads a file of so many bytes, chunk by chunk. When a chunk is not in memory, the disk is asked for ahead
// bytes at once.
func newChunkReader(f *os.File, bytes int64, from chunkSource, ahead int64) *chunkReader {
	return &chunkReader{f: f, bytes: bytes, from: from, ahead: ahead, have: -1}
}

func (r *chunkReader) Read(p []byte) (int, error) {
	if r.pos >= r.bytes {
		return 0, io.EOF
	}
	n := r.pos / wire.ChunkBytes
	if n != r.have {
		if r.buf == nil {
			r.buf = make([]byte, wire.HeaderBytes+min(r.bytes, wire.ChunkBytes))
		}
		diskio.PrefetchMissing(int(r.f.Fd()), r.from.place(n), r.ahead)
		body, err := r.from.read(r.f, n, int(min(wire.ChunkBytes, r.bytes-n*wire.ChunkBytes)), r.buf)
		if err != nil {
			r.have = -1
			if r.anew() {
				return 0, inventory.ErrChanged
			}
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("%s is shorter than it was: %w", r.f.Name(), wire.ErrCorrupt)
			}
			return 0, err
		}
		r.body, r.have = body, n
	}
	c := copy(p, r.body[r.pos-n*wire.ChunkBytes:])
	r.pos += int64(c)
	return c, nil
}

// anew reports whether an engine has written the file since it was opened: then it is the engine's, and not broken.
func (r *chunkReader) anew() bool {
	if r.modified == 0 {
		return false
	}
	info, err := r.f.Stat()
	return err == nil && info.ModTime().UnixNano() != r.modified
}

func (r *chunkReader) Seek(offset int64, whence int) (int64, error) {
	return Seek(&r.pos, r.bytes, offset, whence)
}

// Seek implements io.Seeker for a content of so many bytes.
func Seek(pos *int64, bytes, offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += *pos
	case io.SeekEnd:
		offset += bytes
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek to %d", offset)
	}
	*pos = offset
	return offset, nil
}

func (r *chunkReader) Close() error {
	if r.done != nil {
		r.done()
	}
	return r.f.Close()
}

// framedChunks are the data frames of a member in a segment, one after the other from an offset.
type framedChunks struct{ at int64 }

func (c framedChunks) place(number int64) int64 {
	return c.at + number*(wire.HeaderBytes+wire.ChunkBytes)
}

func (c framedChunks) read(f *os.File, number int64, bytes int, buf []byte) ([]byte, error) {
	raw := buf[:wire.HeaderBytes+bytes]
	at := c.place(number)
	if _, err := f.ReadAt(raw, at); err != nil {
		return nil, err
	}
	if !wire.IsFrame(wire.FrameData, raw[:wire.HeaderBytes], raw[wire.HeaderBytes:]) {
		return nil, fmt.Errorf("%s at byte %d: %w", f.Name(), at, wire.ErrCorrupt)
	}
	return raw[wire.HeaderBytes:], nil
}

// PlacedChunks are the bytes of a plain file whose checksums are in the catalog.
type PlacedChunks struct{ Sums []byte }

func (PlacedChunks) place(number int64) int64 { return number * wire.ChunkBytes }

func (c PlacedChunks) read(f *os.File, number int64, bytes int, buf []byte) ([]byte, error) {
	if int64(len(c.Sums)) < (number+1)*4 {
		return nil, fmt.Errorf("%s: no checksum for chunk %d: %w", f.Name(), number, wire.ErrCorrupt)
	}
	p := buf[:bytes]
	if _, err := f.ReadAt(p, c.place(number)); err != nil {
		return nil, err
	}
	if !c.Has(number, p) {
		return nil, fmt.Errorf("%s at byte %d: %w", f.Name(), c.place(number), wire.ErrCorrupt)
	}
	return p, nil
}

// Has reports whether p are the bytes of the chunk of that number.
func (c PlacedChunks) Has(number int64, p []byte) bool {
	return len(p) == 0 || int64(len(c.Sums)) >= (number+1)*4 && crc32.Checksum(p, wire.Castagnoli) == binary.BigEndian.Uint32(c.Sums[number*4:])
}
