package vault

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// Whatever is appended comes out in its order, and no write ends inside a piece unless somebody flushed.
func TestPieces(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	file, err := os.Create(filepath.Join(t.TempDir(), "segment"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var want []byte
	written, flushing := 0, false
	g := newPieces(writerFunc(func(head, tail []byte) (int, error) {
		if end := written + len(head) + len(tail); end%pieceBytes != 0 && !flushing {
			t.Fatalf("a write ends at byte %d", end)
		}
		n, err := inFile{file}.WriteBoth(head, tail)
		written += n
		return n, err
	}), 0)
	for range 600 {
		p := make([]byte, rnd.IntN(1<<rnd.IntN(20)))
		for i := range p {
			p[i] = byte(rnd.Uint32())
		}
		want = append(want, p...)
		if n, err := g.Write(p); n != len(p) || err != nil {
			t.Fatalf("took %d of %d bytes, %v", n, len(p), err)
		}
		if got := written + g.buffered(); got != len(want) {
			t.Fatalf("has %d bytes, want %d", got, len(want))
		}
		if rnd.IntN(20) == 0 {
			flushing = true
			if err := g.Flush(); err != nil || g.buffered() != 0 {
				t.Fatalf("%d bytes are left, %v", g.buffered(), err)
			}
			flushing = false
			g.rest()
		}
	}
	flushing = true
	if err := g.Flush(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file.Name()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v, want the %d that were appended", len(got), err, len(want))
	}
}

func TestPiecesEndWithAFault(t *testing.T) {
	full := errors.New("no space left")
	g := newPieces(writerFunc(func(_, _ []byte) (int, error) { return 10, full }), 0)
	if n, err := g.Write(make([]byte, 3*pieceBytes)); n != 0 || !errors.Is(err, full) {
		t.Errorf("took %d bytes, %v, want none and the fault", n, err)
	}
	if n, err := g.Write([]byte("behind a gap")); n != 0 || !errors.Is(err, full) {
		t.Errorf("took %d bytes, %v behind a gap", n, err)
	}
	if err := g.Flush(); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
}

type writerFunc func(head, tail []byte) (int, error)

func (f writerFunc) WriteBoth(head, tail []byte) (int, error) { return f(head, tail) }
