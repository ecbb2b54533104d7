package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Conn is a TLS connection that crosses into the kernel in large pieces. crypto/tls writes each 16 KiB record by itself
// and reads about one at a time; gathering them to 256 KiB saved a tenth of the CPU (measured; docs/design/measured.md).
type Conn struct {
	*tls.Conn
	raw *gatheringConn
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
	g := newGatheringConn(raw, receiptsPiece, sentPiece)
	return &Conn{tls.Client(g, cfg), g}
}

func Server(raw net.Conn, cfg *tls.Config) *Conn {
	g := newGatheringConn(raw, blocksPiece, receiptsPiece)
	return &Conn{tls.Server(g, cfg), g}
}

// HandshakeContext does the handshake, if it was not done before.
func (c *Conn) HandshakeContext(ctx context.Context) error {
	err := c.Conn.HandshakeContext(ctx)
	if err == nil {
		c.raw.known.Store(true)
	}
	return err
}

// Read reads what has come, in as few system calls as that takes.
func (c *Conn) Read(p []byte) (int, error) {
	if err := c.HandshakeContext(context.Background()); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
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
	err := c.Conn.CloseWrite()
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
	c.raw.hold()
	n, err := c.Conn.Write(p)
	if flushErr := c.raw.flush(); err == nil {
		err = flushErr
	}
	return n, err
}

// gatheringConn gathers writes between hold and flush, and reads ahead once the other end is known.
type gatheringConn struct {
	net.Conn
	kernel  syscall.RawConn // nil: it is no socket
	waits   func()          // called before a read that may wait; nil: nobody is told
	in, out int             // bytes that are gathered
	known   atomic.Bool     // the handshake is done
	r       *bufio.Reader   // TLS reads from one place at a time

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
	if c.r == nil {
		if !c.known.Load() {
			return arriving{c}.Read(p)
		}
		c.r = bufio.NewReaderSize(arriving{c}, c.in)
	}
	return c.r.Read(p)
}

func (c *gatheringConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.holding {
		return c.Conn.Write(p)
	}
	return c.w.Write(p)
}

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
