package migration

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// memberContent reads a file of a block that goes to the fallback, as a lane would: by chunks whose checksums it keeps,
// under the drain's cap, and an error in the end if the file changed meanwhile.
type memberContent struct {
	u    *upload
	i    int
	pass func(n int) error // waits until so many bytes may leave; nil: none do
	sums []byte

	dir   string
	f     io.ReadCloser
	buf   []byte
	ready []byte
	read  int64
	took  time.Duration
	given time.Time // when the storage was last given something
}

func (u *upload) content(i int, pass func(n int) error) *memberContent {
	return &memberContent{u: u, i: i, pass: pass, dir: u.to.source.where(inventory.Block{ID: u.e.ID, Members: u.e.Members[i : i+1]})[0]}
}

// pass waits until it is the block's turn and the cap on the drain lets so many bytes through.
func (u *upload) pass(ctx context.Context, n int) error {
	if err := u.turn(ctx); err != nil {
		return err
	}
	if err := u.to.out.limit.wait(ctx, n); err != nil {
		return err
	}
	u.to.out.sent.Add(int64(n))
	u.to.out.gone.Add(int64(n))
	u.leaves(int64(n))
	return nil
}

func (c *memberContent) Read(p []byte) (int, error) {
	if !c.given.IsZero() {
		c.u.asked(time.Since(c.given))
	}
	defer func() { c.given = time.Now() }()
	if len(c.ready) == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p[:min(len(p), capStep)], c.ready)
	if err := c.pass(n); err != nil {
		return 0, err
	}
	c.ready = c.ready[n:]
	return n, nil
}

// next reads a chunk.
func (c *memberContent) next() error {
	m, source := c.u.e.Members[c.i], c.u.to.source
	began := time.Now()
	c.u.work.Begin(&c.dir)
	defer func() {
		c.u.work.End()
		c.took += time.Since(began)
	}()
	if c.f == nil {
		f, err := source.openMember(c.u.e.Block, c.i)
		if err != nil {
			return source.local(c.dir, err)
		}
		c.f, c.buf = f, make([]byte, min(m.Bytes, wire.ChunkBytes))
	}
	left := min(m.Bytes-c.read, wire.ChunkBytes)
	if left == 0 {
		if err := source.same(c.u.e.Block, inventory.StillSame(c.f, m)); err != nil {
			return &localError{err}
		}
		return io.EOF
	}
	chunk := c.buf[:left]
	if _, err := io.ReadFull(c.f, chunk); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = inventory.ErrChanged
		}
		return source.local(c.dir, err)
	}
	c.sums = binary.BigEndian.AppendUint32(c.sums, crc32.Checksum(chunk, wire.Castagnoli))
	c.read += left
	c.ready = chunk
	return nil
}

// drain reads to the end, for the checksums alone.
func (c *memberContent) drain(ctx context.Context) error {
	for ctx.Err() == nil {
		switch err := c.next(); err {
		case nil:
			c.ready = nil
		case io.EOF:
			return nil
		default:
			return err
		}
	}
	return ctx.Err()
}

func (c *memberContent) close() {
	if c.f == nil {
		return
	}
	if c.read > 0 {
		c.u.to.source.disks.Fetched(c.dir, c.read, c.took)
	}
	c.f.Close() // it was only read
}
