package migration

import "io"

// pieces gathers appends to a file and writes them so that each write but a flush's ends where a piece of the file does. What
// is cut anywhere else leaves a page of the page cache half written, which the next write has to touch again. What is large is
// written from where it is, still warm from being decrypted; only its ends are copied.
type pieces struct {
	w   io.Writer
	at  int64  // where in the file the next write goes
	buf []byte // less than a piece, not written
	err error  // of a write: bytes are missing, and nothing more is appended behind them
}

// pieceBytes divides the size of a chunk, and is what small blocks cost a system call for.
const pieceBytes = 64 << 10

func newPieces(w io.Writer, at int64) *pieces {
	return &pieces{w: w, at: at, buf: make([]byte, 0, pieceBytes)}
}

// Write appends p. It returns how much of it was taken.
func (g *pieces) Write(p []byte) (taken int, err error) {
	for len(p) > 0 && g.err == nil {
		room := pieceBytes - int(g.at%pieceBytes) - len(g.buf) // up to the end of the piece
		if len(g.buf) == 0 && len(p) >= room {
			n := room + (len(p)-room)/pieceBytes*pieceBytes
			if g.write(p[:n]); g.err == nil {
				taken, p = taken+n, p[n:]
			}
			continue
		}
		n := min(room, len(p))
		g.buf = append(g.buf, p[:n]...)
		taken, p = taken+n, p[n:]
		if n == room {
			g.Flush()
		}
	}
	return taken, g.err
}

// Flush writes what was gathered.
func (g *pieces) Flush() error {
	if len(g.buf) > 0 && g.err == nil {
		g.write(g.buf)
		g.buf = g.buf[:0]
	}
	return g.err
}

func (g *pieces) write(p []byte) {
	var n int
	n, g.err = g.w.Write(p)
	g.at += int64(n)
}

// Buffered is how much was appended and not written.
func (g *pieces) Buffered() int { return len(g.buf) }

// reset goes on at another place of the file, or of another one.
func (g *pieces) reset(w io.Writer, at int64) { g.w, g.at, g.buf, g.err = w, at, g.buf[:0], nil }
