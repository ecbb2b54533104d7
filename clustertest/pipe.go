package clustertest

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// windowBytes is how many bytes a connection holds in each direction that were written and not yet read, as sockets' buffers do.
// net.Pipe holds none: two ends that write at the same time, as TLS does when both close, would wait for each other.
const windowBytes = 256 << 10

// pipe is one connection. flows reports whether bytes get through now.
type pipe struct {
	flows func() bool // called with mu held

	mu      sync.Mutex // guards what follows
	changed sync.Cond  // of mu: anything
	ends    [2]end
	reset   bool // by a crash at either side: unread bytes are lost
}

// end is one side of a pipe.
type end struct {
	inbox         []byte // written by the other side, not yet read
	closed        bool   // by this side
	gone          bool   // this side's process has crashed
	read, write   time.Time
	local, remote net.Addr
	sent          func(n int)
}

// pipeConn is one end of a pipe as a net.Conn.
type pipeConn struct {
	*pipe
	me int
}

func newPipe(flows func() bool) (p *pipe, here, there *pipeConn) {
	p = &pipe{flows: flows}
	p.changed.L = &p.mu
	return p, &pipeConn{p, 0}, &pipeConn{p, 1}
}

func (p *pipe) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed.Broadcast()
}

// crash ends a side as if its process was killed: it reads and writes no more, and the other side gets a reset as soon as the link is
// not cut.
func (c *pipeConn) crash() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends[c.me].gone, c.reset = true, true
	c.changed.Broadcast()
}

func (c *pipeConn) mine() *end   { return &c.ends[c.me] }
func (c *pipeConn) theirs() *end { return &c.ends[1-c.me] }

// wait waits until something changes or the deadline passes. It is called and returns with mu held, and releases it meanwhile.
func (c *pipeConn) wait(deadline time.Time) {
	if !deadline.IsZero() {
		timer := time.AfterFunc(time.Until(deadline), c.wake)
		defer timer.Stop()
	}
	c.changed.Wait()
}

// fault is the error for a read or a write of this side now, or nil.
func (c *pipeConn) fault(deadline time.Time) error {
	switch {
	case c.mine().closed:
		return net.ErrClosed
	case c.mine().gone || c.reset && c.flows():
		return syscall.ECONNRESET
	case !deadline.IsZero() && !time.Now().Before(deadline):
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (c *pipeConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if err := c.fault(c.mine().read); err != nil {
			return 0, c.named("read", err)
		}
		if len(b) == 0 {
			return 0, nil
		}
		if c.flows() {
			if n := copy(b, c.mine().inbox); n > 0 {
				c.mine().inbox = c.mine().inbox[n:]
				c.changed.Broadcast()
				return n, nil
			}
			if c.theirs().closed {
				return 0, io.EOF
			}
		}
		c.wait(c.mine().read)
	}
}

func (c *pipeConn) Write(b []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if err := c.fault(c.mine().write); err != nil {
			return n, c.named("write", err)
		}
		if c.theirs().closed && c.flows() {
			return n, c.named("write", syscall.EPIPE)
		}
		if room := min(len(b), windowBytes-len(c.theirs().inbox)); room > 0 {
			c.theirs().inbox = append(c.theirs().inbox, b[:room]...)
			b, n = b[room:], n+room
			c.mine().sent(room)
			c.changed.Broadcast()
		}
		if len(b) == 0 {
			return n, nil
		}
		c.wait(c.mine().write)
	}
}

func (c *pipeConn) named(op string, err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, new(syscall.Errno)) {
		return &net.OpError{Op: op, Net: "tcp", Source: c.mine().local, Addr: c.mine().remote, Err: err}
	}
	return err
}

// Close closes this side. The other side can still read what was written before.
func (c *pipeConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mine().closed {
		return c.named("close", net.ErrClosed)
	}
	c.mine().closed = true
	c.changed.Broadcast()
	return nil
}

func (c *pipeConn) LocalAddr() net.Addr  { return c.mine().local }
func (c *pipeConn) RemoteAddr() net.Addr { return c.mine().remote }

func (c *pipeConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *pipeConn) SetReadDeadline(t time.Time) error {
	return c.set(func(e *end) { e.read = t })
}

func (c *pipeConn) SetWriteDeadline(t time.Time) error {
	return c.set(func(e *end) { e.write = t })
}

func (c *pipeConn) set(change func(*end)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c.mine())
	c.changed.Broadcast()
	return nil
}
