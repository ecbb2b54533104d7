// Package accepted lets several servers live behind one port: whoever listens there tells connections apart by what the TLS handshake
// agreed on, and hands each to the server that it is for. And it keeps those few of whom nothing is known (Strangers).
package accepted

import (
	"net"
	"sync"
)

// Listener is a net.Listener of connections that another has accepted.
type Listener struct {
	at     net.Addr
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

// At is for a server that is found there.
func At(at net.Addr) *Listener {
	l := &Listener{at: at, conns: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.closed) })
	return l
}

// Hand gives the server a connection, once it has accepted those before; one that has ended has it closed.
func (l *Listener) Hand(conn net.Conn) {
	select {
	case l.conns <- conn:
	case <-l.closed:
		conn.Close()
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error { l.close(); return nil }

// Closed is closed with the listener.
func (l *Listener) Closed() <-chan struct{} { return l.closed }

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.at }
