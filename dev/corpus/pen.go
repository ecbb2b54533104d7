package corpus

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"io"
	"math/rand/v2"
	"os"
)

const (
	// poolBytes of random bytes are made once. Files are copied from random places of them, which is several times faster
	// than making new bytes for each file.
	poolBytes  = 16 << 20
	pieceBytes = 1 << 20
)

type pool []byte

func newPool(seed uint64) pool {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	p := make(pool, poolBytes)
	rand.NewChaCha8(key).Read(p) // never fails
	return p
}

// pen writes files one after another. It belongs to one goroutine.
type pen struct {
	pool pool
	rng  *rand.Rand
	pcg  *rand.PCG
	sum  hash.Hash
	w    *bufio.Writer
}

func newPen(p pool) *pen {
	pcg := rand.NewPCG(0, 0)
	return &pen{pool: p, pcg: pcg, rng: rand.New(pcg), sum: sha256.New(), w: bufio.NewWriterSize(nil, 256<<10)}
}

// reseed makes the next bytes independent of what was written before.
func (p *pen) reseed(seed, job uint64) { p.pcg.Seed(seed, job) }

// file writes a file through fill and returns its size and SHA-256.
func (p *pen) file(path string, fill func(w io.Writer) error) (bytes int64, sum [32]byte, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return 0, sum, err
	}
	defer f.Close()
	p.sum.Reset()
	p.w.Reset(f)
	c := counter{w: io.MultiWriter(p.w, p.sum)}
	if err := fill(&c); err != nil {
		return 0, sum, err
	}
	if err := p.w.Flush(); err != nil {
		return 0, sum, err
	}
	p.sum.Sum(sum[:0])
	return c.n, sum, f.Close()
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// random writes that many bytes. The first eight are drawn anew for each file: else two files from one place in the pool
// would be equal.
func (p *pen) random(w io.Writer, bytes int64) error {
	var head [8]byte
	binary.LittleEndian.PutUint64(head[:], p.rng.Uint64())
	n := min(bytes, int64(len(head)))
	if _, err := w.Write(head[:n]); err != nil {
		return err
	}
	for left := bytes - n; left > 0; {
		size := min(left, pieceBytes)
		at := p.rng.Int64N(poolBytes - size + 1)
		if _, err := w.Write(p.pool[at : at+size]); err != nil {
			return err
		}
		left -= size
	}
	return nil
}
