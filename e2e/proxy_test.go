package e2e_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy is between a leaving agent and a peer, and does to the connections what bad networks do.
type proxy struct {
	listener net.Listener
	to       string

	mu    sync.Mutex // guards what follows
	open  map[net.Conn]bool
	down  bool
	flips int // bits still to flip in the next bytes
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, to: to, open: map[net.Conn]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.carry(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.cut(true)
		serving.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// cut closes all connections. While down, new ones are refused too.
func (p *proxy) cut(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
	for c := range p.open {
		c.Close()
	}
}

// heal lets new connections through again.
func (p *proxy) heal() { p.mu.Lock(); defer p.mu.Unlock(); p.down = false }

// flip flips a bit in the next bytes that pass.
func (p *proxy) flip() { p.mu.Lock(); defer p.mu.Unlock(); p.flips++ }

func (p *proxy) carry(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer to.Close()
	if !p.come(from, to) {
		return
	}
	defer p.gone(from, to)
	back := make(chan struct{})
	go func() { defer close(back); p.copy(from, to) }()
	p.copy(to, from)
	<-back
}

func (p *proxy) come(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.open[c] = true
	}
	return !p.down
}

func (p *proxy) gone(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.open, c)
	}
}

func (p *proxy) copy(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		if n > 64 && p.flips > 0 { // not in a message of a few bytes
			p.flips--
			buf[n/2] ^= 0x10
		}
		p.mu.Unlock()
		if _, wrote := to.Write(buf[:n]); wrote != nil || err != nil {
			if c, ok := to.(*net.TCPConn); ok && err == io.EOF {
				_ = c.CloseWrite() // the other direction may go on
				return
			}
			to.Close()
			from.Close()
			return
		}
	}
}
