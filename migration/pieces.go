package migration

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pieces gathers what a stream appends to a segment and writes it in whole pages, past the page cache where the file system
// has a way: its copy, and the kernel's writing it back, cost more than encryption does, and would push out of memory what
// the engines on this machine read. A page that a flush cut, and what is too little to be worth the disk's attention, goes
// through the page cache; no page is written both ways before it is whole.
type pieces struct {
	mem    []byte // begins on a page
	lo, hi int    // in mem: not written yet. lo lies in its page as at does in the file's
	at     int64  // where in the file the next write goes

	to  segmentWays
	err error // of a write: bytes are missing, and nothing more is appended behind them

	past straight
}

// straight is how fast the disk took some direct writes, one after the other.
type straight struct {
	bytes int64
	took  time.Duration
}

// slow says of a disk, each time that there is enough to say, whether it is better asked through the page cache. A rotating
// one seeks between the pieces of several streams, 8 ms each time, and the kernel has more to put into an order. It limits
// the drain then, and not the processor. Network disks of 125 MiB/s still give each of four streams twice as much.
func (s *straight) slow(bytes int64, took time.Duration) bool {
	const enough, perSecond = 8 << 20, 16 << 20
	s.bytes += bytes
	s.took += took
	if s.bytes < enough {
		return false
	}
	slow := float64(s.bytes) < perSecond*s.took.Seconds()
	*s = straight{}
	return slow
}

const (
	// pageBytes is what direct writes must be aligned to at most: in the file, in memory and in length (open(2), O_DIRECT).
	pageBytes = 4 << 10
	// pieceBytes is when it is written: what direct writes of 64, 128, 256 and 512 KiB cost is in docs/benchmarks.md.
	pieceBytes = 256 << 10
	// largestFrame is what there is always room for.
	largestFrame = headerBytes + ChunkBytes
)

func newPieces() *pieces {
	mem := make([]byte, 2*pageBytes+pieceBytes+largestFrame)
	skip := int(-uintptr(unsafe.Pointer(&mem[0])) & (pageBytes - 1))
	return &pieces{mem: mem[skip:]}
}

// reset goes on at a place of a file. What was not written is forgotten.
func (g *pieces) reset(to segmentWays, at int64) {
	g.to, g.at, g.err, g.past = to, at, nil, straight{}
	g.empty()
}

func (g *pieces) empty() {
	g.lo = int(g.at % pageBytes)
	g.hi = g.lo
}

// room is where a frame may be read to that is going to be appended: it need not be copied then. It is valid until the next
// call of anything.
func (g *pieces) room() []byte { return g.mem[g.hi:][:largestFrame] }

// append takes p, which is no larger than a frame.
func (g *pieces) append(p []byte) error {
	if g.err != nil {
		return g.err
	}
	if len(p) > 0 && &p[0] != &g.mem[g.hi] {
		copy(g.mem[g.hi:], p)
	}
	if g.hi += len(p); g.hi-g.lo >= pieceBytes {
		g.out()
	}
	return g.err
}

// out writes all whole pages.
func (g *pieces) out() {
	if head := int(-g.at & (pageBytes - 1)); head > 0 {
		g.write(g.to.cached, head) // the rest of a page that a flush cut
	}
	g.writeDirect((g.hi - g.lo) &^ (pageBytes - 1))
	if g.err == nil {
		rest := g.mem[g.lo:g.hi]
		g.empty()
		g.hi += copy(g.mem[g.lo:], rest)
	}
}

func (g *pieces) writeDirect(n int) {
	if g.to.direct == nil {
		g.write(g.to.cached, n)
		return
	}
	began := time.Now()
	g.write(g.to.direct, n)
	if errors.Is(g.err, syscall.EINVAL) { // not on this file system, or not with pages of this size
		g.to.direct, g.err = nil, nil
		g.write(g.to.cached, n)
		return
	}
	if g.err != nil {
		return
	}
	took := time.Since(began)
	g.to.took(g.at, int64(n), took)
	if g.past.slow(int64(n), took) {
		g.to.direct = nil // until the next segment
	}
}

// flush writes what was gathered.
func (g *pieces) flush() error {
	if g.write(g.to.cached, g.hi-g.lo); g.err == nil {
		g.empty()
	}
	return g.err
}

func (g *pieces) write(w io.WriterAt, n int) {
	if n == 0 || g.err != nil {
		return
	}
	_, g.err = w.WriteAt(g.mem[g.lo:g.lo+n], g.at)
	if g.err == nil {
		g.lo += n
		g.at += int64(n)
	}
}

// segmentWays are the two ways into the file of a segment.
type segmentWays struct {
	cached io.WriterAt // the file
	direct *os.File    // past the page cache; nil where its file system has no such way

	took func(end, bytes int64, took time.Duration) // told of each direct write
}

func waysInto(f *os.File, took func(end, bytes int64, took time.Duration)) segmentWays {
	direct, err := os.OpenFile(f.Name(), os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		direct = nil
	}
	return segmentWays{f, direct, took}
}
