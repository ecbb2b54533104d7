// Package pipenet lets tests listen and dial in a synctest bubble, where sockets do not work: connections are net.Pipe's, and
// nothing leaves the process. It is for tests alone, has no buffers, no addresses and no faults; clustertest has all of those.
// Loopback is for tests of what only a kernel does.
package pipenet

import (
	"context"
	"net"
	"net/http"
	"sync"
	"syscall"
)

// Listener is a net.Listener, and the only way to reach it is its own Dial.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

// Listen makes one. (A bufconn would do outside of HTTP: its deadlines may pass once more after another was set, and net/http
// sets one into the past after every answer.)
func Listen() *Listener {
	l := &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

// Dial returns a connection once it is accepted; network and address are there for the shape of a net.Dialer's.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept returns the other end of a connection that is dialled.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close has dialling refused; it may be called again.
func (l *Listener) Close() error { l.close(); return nil }

// Addr says nothing that could be dialled.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// Serve has a handler answer on the other end of a connection.
func Serve(h http.Handler) net.Conn {
	here, there := net.Pipe()
	l := Listen()
	go func() { l.conns <- there; l.Close() }()
	go (&http.Server{Handler: h}).Serve(l)
	return here
}
