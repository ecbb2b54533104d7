package vault

import (
	"os"

	"golang.org/x/sys/unix"
)

// pieces gathers appends to a file, and has each write except a flush's end at a piece's border. A write that ends elsewhere
// leaves a page of the page cache half written, and the next write has to touch that page again. A large append is written
// from where it is, still warm from being decrypted, in one system call with what was gathered before it; only its last part
// is copied.
type pieces struct {
	w   Writer
	at  int64  // where in the file the next write goes
	buf []byte // less than a piece, not written yet
	err error  // of a write: bytes are missing, so nothing more is appended behind them
}

// pieceBytes divides the size of a chunk. The larger a write, the larger and fewer are the folios that the kernel takes
// for it: 64 / 256 / 1024 KiB cost 0.27 / 0.21 / 0.15 CPU s/GiB (measured; docs/design/measured.md).
const pieceBytes = 256 << 10

// Writer writes to a disk.
type Writer interface {
	// WriteBoth writes head and then tail, of which one may be empty.
	WriteBoth(head, tail []byte) (int, error)
}

func newPieces(w Writer, at int64) *pieces {
	return &pieces{w: w, at: at}
}

// inFile writes to a file at its current offset.
type inFile struct{ *os.File }

func (f inFile) WriteBoth(head, tail []byte) (n int, err error) {
	if len(head) > 0 && len(tail) > 0 {
		if n, err = unix.Writev(int(f.Fd()), [][]byte{head, tail}); err != nil && err != unix.EINTR {
			return 0, &os.PathError{Op: "writev", Path: f.Name(), Err: err}
		}
		n = max(n, 0)
	}
	// Write all of it, or what a short writev left.
	for _, p := range [...][]byte{head[min(n, len(head)):], tail[max(n-len(head), 0):]} {
		if len(p) > 0 {
			m, err := f.Write(p)
			if n += m; err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// Write appends p. It returns how much of it was taken.
func (g *pieces) Write(p []byte) (taken int, err error) {
	if room := g.room(); len(p) >= room {
		taken = room + (len(p)-room)/pieceBytes*pieceBytes
		if g.put(p[:taken]); g.err != nil {
			return 0, g.err
		}
	}
	if g.err == nil {
		if g.buf == nil {
			g.buf = make([]byte, 0, pieceBytes)
		}
		g.buf = append(g.buf, p[taken:]...)
		taken = len(p)
	}
	return taken, g.err
}

// Flush writes what was gathered.
func (g *pieces) Flush() error {
	if len(g.buf) > 0 {
		g.put(nil)
	}
	return g.err
}

// put writes what was gathered, and p behind it.
func (g *pieces) put(p []byte) {
	if g.err == nil {
		var n int
		n, g.err = g.w.WriteBoth(g.buf, p)
		g.at, g.buf = g.at+int64(n), g.buf[:0]
	}
}

// rest frees the buffer until the next append.
func (g *pieces) rest() {
	if len(g.buf) == 0 {
		g.buf = nil
	}
}

// room returns how many bytes fit before the end of the piece: an append of fewer stays in memory.
func (g *pieces) room() int { return pieceBytes - int(g.at%pieceBytes) - len(g.buf) }

// buffered returns how many bytes were appended and not written.
func (g *pieces) buffered() int { return len(g.buf) }

// reset goes on at another place in the file, or in another file.
func (g *pieces) reset(w Writer, at int64) { g.w, g.at, g.buf, g.err = w, at, g.buf[:0], nil }
