package migration

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Whatever is appended is in the file in its order, by whichever way it went, however often somebody flushes, and whether
// or not it was read to where it belongs.
func TestPieces(t *testing.T) {
	for name, c := range map[string]struct{ way, aligned bool }{
		"past the page cache":   {true, true},
		"a way that is refused": {true, false}, // as where pages are larger
		"no way past it":        {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, 2))
			f, err := os.Create(filepath.Join(t.TempDir(), "segment"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var direct int64
			to := waysInto(f, func(_, bytes int64, _ time.Duration) { direct += bytes })
			if to.direct == nil {
				t.Skip("this file system has no direct I/O")
			}
			defer to.direct.Close()
			g := newPieces()
			if !c.way {
				to.direct = nil
			}
			if !c.aligned {
				g.mem = g.mem[1:]
			}
			g.reset(to, 0)
			var want []byte
			for range 2000 {
				p := make([]byte, rnd.IntN(1<<rnd.IntN(19)))
				if rnd.IntN(2) == 0 {
					p = g.room()[:len(p)]
				}
				for i := range p {
					p[i] = byte(rnd.Uint32())
				}
				want = append(want, p...)
				if err := g.append(p); err != nil {
					t.Fatal(err)
				}
				if got := g.at + int64(g.hi-g.lo); got != int64(len(want)) {
					t.Fatalf("has %d bytes, want %d", got, len(want))
				}
				if rnd.IntN(20) == 0 {
					if err := g.flush(); err != nil || g.at != int64(len(want)) {
						t.Fatalf("%d bytes are written, want %d: %v", g.at, len(want), err)
					}
				}
			}
			if err := g.flush(); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(f.Name())
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("got %d bytes, %v, want the %d that were appended", len(got), err, len(want))
			}
			if past := direct > 1<<20; past != (c.way && c.aligned) {
				t.Errorf("%d of %d bytes went past the page cache", direct, len(want))
			}
		})
	}
}

// A rotating disk that seeks for each piece is left to the kernel; one that is only busy for a moment is not.
func TestSlowDiskIsNotWrittenDirectly(t *testing.T) {
	for name, c := range map[string]struct {
		pieces []time.Duration
		want   bool
	}{
		"an SSD":              {slices.Repeat([]time.Duration{200 * time.Microsecond}, 100), false},
		"a network disk":      {slices.Repeat([]time.Duration{8 * time.Millisecond}, 100), false},
		"a seek for each":     {slices.Repeat([]time.Duration{20 * time.Millisecond}, 32), true},
		"one long seek":       {append(slices.Repeat([]time.Duration{time.Millisecond}, 31), 200*time.Millisecond), false},
		"too little is known": {slices.Repeat([]time.Duration{20 * time.Millisecond}, 31), false},
	} {
		var s straight
		got := false
		for _, took := range c.pieces {
			got = got || s.slow(256<<10, took)
		}
		if got != c.want {
			t.Errorf("%s: slow %t, want %t", name, got, c.want)
		}
	}
}

func TestPiecesEndWithAFault(t *testing.T) {
	full := errors.New("no space left")
	g := newPieces()
	g.reset(segmentWays{cached: fails{full}}, 0)
	if err := g.append(make([]byte, pieceBytes)); !errors.Is(err, full) {
		t.Errorf("got %v, want the fault", err)
	}
	if err := g.append([]byte("behind a gap")); !errors.Is(err, full) {
		t.Errorf("got %v behind a gap", err)
	}
	if err := g.flush(); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
	g.reset(segmentWays{cached: discards{}}, 5)
	if err := errors.Join(g.append([]byte("elsewhere")), g.flush()); err != nil || g.at != 14 {
		t.Errorf("at %d, %v in another segment", g.at, err)
	}
}

type fails struct{ err error }

func (f fails) WriteAt(p []byte, _ int64) (int, error) { return len(p) / 2, f.err }

type discards struct{}

func (discards) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

var _ io.WriterAt = hangs(nil)
