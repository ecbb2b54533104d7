package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/wire/record"
)

// Conn is a TLS connection that crosses into the kernel in large pieces. Package tls writes each 16 KiB record by itself and
// reads about one at a time; gathering them to 256 KiB saved a tenth of the CPU (measured; docs/design/measured.md). Where
// package record is faster, package tls does no more than the handshake.
type Conn struct {
	*tls.Conn
	raw     *gatheringConn
	secrets record.Secrets
	goOn    func(net.Conn, *record.Secrets, *bufio.Reader, int) (*record.Conn, error)
	met     sync.Once                   // the handshake is done
	records atomic.Pointer[record.Conn] // nil: package tls speaks them
	err     error                       // why nobody does
}

const (
	// blocksPiece is the size of the pieces in which blocks go, from client to server.
	blocksPiece = 256 << 10
	// sentPiece has room for what a lane sends at once, with the 22 bytes that TLS adds to a record. What did not fit would be a
	// system call of its own, and wake up the other end for some hundred bytes.
	sentPiece = blocksPiece + 72<<10
	// receiptsPiece is the size of the pieces that come back: a verdict is some bytes, and readers ask for less than drains carry.
	receiptsPiece = 64 << 10
)

// Client and Server wrap a raw connection. The handshake happens at the first use, or when asked for. Until it is done the other end is a
// stranger, for whom there are no buffers: they take 16 times what TLS does by itself.
func Client(raw net.Conn, cfg *tls.Config) *Conn {
	c := &Conn{raw: newGatheringConn(raw, receiptsPiece, sentPiece), goOn: record.Client}
	c.Conn = tls.Client(c.raw, c.secrets.Learn(cfg))
	return c
}

func Server(raw net.Conn, cfg *tls.Config) *Conn {
	c := &Conn{raw: newGatheringConn(raw, blocksPiece, receiptsPiece), goOn: record.Server}
	c.Conn = tls.Server(c.raw, c.secrets.Learn(cfg))
	return c
}

// HandshakeContext does the handshake, if it was not done before.
func (c *Conn) HandshakeContext(ctx context.Context) error {
	if err := c.Conn.HandshakeContext(ctx); err != nil {
		return err
	}
	c.met.Do(c.meet)
	return c.err
}

// meet decides who speaks after the handshake. If package tls said anything more beside package record, both would seal with
// the same nonce, so it is cut off.
func (c *Conn) meet() {
	if !c.secrets.Fits(c.ConnectionState()) {
		c.raw.phase.Store(known)
		return
	}
	c.raw.phase.Store(taken)
	r, err := c.goOn(c.raw.Conn, &c.secrets, c.raw.reader(), c.raw.out)
	if c.err = err; err == nil {
		c.records.Store(r)
	}
}

// Read reads what has come, in as few system calls as that takes.
func (c *Conn) Read(p []byte) (int, error) {
	if err := c.HandshakeContext(context.Background()); err != nil {
		return 0, err
	}
	if r := c.records.Load(); r != nil {
		return r.Read(p)
	}
	return c.Conn.Read(p)
}

// Close tells the other end, and closes the connection.
func (c *Conn) Close() error {
	if r := c.records.Load(); r != nil {
		return r.Close()
	}
	return c.Conn.Close()
}

// Cut ends the connection at once. Close would first tell the other end, and wait for it.
func (c *Conn) Cut() error { return c.raw.Conn.Close() }

// Cut ends a connection whose other end is not to be waited for.
func Cut(c net.Conn) error {
	if c, ok := c.(interface{ Cut() error }); ok {
		return c.Cut()
	}
	return c.Close()
}

// CloseWrite tells the other end that no more comes. After a record that was interrupted, TLS can say nothing any more: then the
// end of the TCP stream says it, and the other end answers for what it has.
func (c *Conn) CloseWrite() error {
	bye := c.Conn.CloseWrite
	if r := c.records.Load(); r != nil {
		bye = r.CloseWrite
	}
	err := bye()
	if half, ok := c.raw.Conn.(interface{ CloseWrite() error }); ok && err != nil {
		return half.CloseWrite()
	}
	return err
}

// BeforeWaiting makes the goroutine that reads call f before each read that may wait, as nothing has come.
func (c *Conn) BeforeWaiting(f func()) { c.raw.waits = f }

// Write sends p in as few system calls as its size allows.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.HandshakeContext(context.Background()); err != nil { // before hold: a handshake that is held back never ends
		return 0, err
	}
	if r := c.records.Load(); r != nil {
		return r.Write(p)
	}
	c.raw.hold()
	n, err := c.Conn.Write(p)
	if flushErr := c.raw.flush(); err == nil {
		err = flushErr
	}
	return n, err
}

// Phases of a connection.
const (
	stranger = iota // until the handshake is done
	known
	taken // by package record
)

// gatheringConn gathers writes between hold and flush, and reads ahead once the other end is known.
type gatheringConn struct {
	net.Conn
	kernel  syscall.RawConn // nil: it is no socket
	waits   func()          // called before a read that may wait; nil: nobody is told
	in, out int             // bytes that are gathered
	steps   record.Steps
	phase   atomic.Int32  // of the connection
	r       *bufio.Reader // TLS reads from one place at a time

	mu      sync.Mutex // TLS may write an alert from the reading side
	w       *bufio.Writer
	holding bool
}

// keepAlive notices within half a minute that the other machine is gone: machines that vanish without a word are what this
// program is about.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

func newGatheringConn(c net.Conn, in, out int) *gatheringConn {
	var kernel syscall.RawConn
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetKeepAliveConfig(keepAlive) // a closed connection says so at its next use
		kernel, _ = t.SyscallConn()
	}
	return &gatheringConn{Conn: c, kernel: kernel, in: in, out: out}
}

// arriving reads what comes over a connection, and calls waits before it may wait.
type arriving struct{ *gatheringConn }

func (a arriving) Read(p []byte) (int, error) {
	if a.waits != nil && !a.hasCome() {
		a.waits()
	}
	return a.Conn.Read(p)
}

// hasCome reports whether the kernel has something that was not read. It is false where that is not known.
func (c *gatheringConn) hasCome() bool {
	if c.kernel == nil {
		return false
	}
	n := 0
	_ = c.kernel.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
	return n > 0
}

func (c *gatheringConn) Read(p []byte) (int, error) {
	if c.phase.Load() == stranger {
		return c.steps.Read(arriving{c}, p)
	}
	return c.reader().Read(p)
}

func (c *gatheringConn) reader() *bufio.Reader {
	if c.r == nil {
		c.r = bufio.NewReaderSize(arriving{c}, c.in)
	}
	return c.r
}

func (c *gatheringConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase.Load() == taken {
		return 0, errTaken
	}
	if !c.holding {
		return c.Conn.Write(p)
	}
	return c.w.Write(p)
}

var errTaken = errors.New("package tls may say nothing after the handshake")

func (c *gatheringConn) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.w == nil {
		c.w = bufio.NewWriterSize(c.Conn, c.out)
	}
	c.holding = true
}

func (c *gatheringConn) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holding = false
	return c.w.Flush()
}

// Queued returns how many bytes the kernel has taken that the other end's machine has not acknowledged: on a narrow link, what it
// carries in seconds. 0 where the kernel does not say.
func (c *Conn) Queued() (n int64) {
	if c.raw.kernel != nil {
		_ = c.raw.kernel.Control(func(fd uintptr) {
			unsent, _ := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
			n = int64(unsent)
		})
	}
	return n
}

// OnItsWay reports whether the other end's machine has something to acknowledge yet, or bytes wait here for the link, or for a full queue
// on it. Bytes that wait because the other end reads nothing, and so has no window open, are not on their way. False where the kernel does
// not say.
func (c *Conn) OnItsWay() bool {
	tcp := c.tcp()
	return tcp.Unacked > 0 || tcp.Notsent_bytes > 0 && tcp.Snd_wnd > 0 // Linux 5.4 says the latter
}

// Acknowledged returns how many bytes the other end's machine has acknowledged; 0 where the kernel does not say.
func (c *Conn) Acknowledged() (bytes int64) { return int64(c.tcp().Bytes_acked) }

// tcp is what the kernel says of the connection; nothing where it is not TCP.
func (c *Conn) tcp() (info unix.TCPInfo) {
	if c.raw.kernel == nil {
		return info
	}
	_ = c.raw.kernel.Control(func(fd uintptr) {
		if is, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			info = *is
		}
	})
	return info
}

// KeepLittle bounds how many bytes the kernel keeps unsent; 0: it decides by itself. Where that cannot be set, a drain sends on for a
// moment after its end.
func (c *Conn) KeepLittle(bytes int) {
	if c.raw.kernel == nil {
		return
	}
	_ = c.raw.kernel.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes)
	})
}
