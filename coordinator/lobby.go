package coordinator

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/lifeboat/lifeboat/certs"
)

const (
	// handshakesEach is how many handshakes run at a time for each processor. One costs the processor about a millisecond and the caller
	// a round trip or two, so 32 keep a processor busy with callers 40 ms away. More would make all of them slower, until none is done
	// within its caller's patience and all callers begin again.
	handshakesEach = 32

	// holdUp is for how long a handshake counts. A caller that dawdles takes up no place after that.
	holdUp = time.Second
)

// lobby bounds how many callers shake hands at a time. Of those that wait it lets in the newest first: a caller that has waited for
// long has given up by the time that it is let in, or is about to.
type lobby struct {
	mu      sync.Mutex // guards what follows
	free    int
	waiting []chan struct{} // the newest last; closed when its caller may go on
}

func newLobby() *lobby { return &lobby{free: handshakesEach * runtime.GOMAXPROCS(0)} }

// enter waits until the caller may go on, at most for patience. If ok, the caller must call leave.
func (l *lobby) enter(patience time.Duration) (leave func(), ok bool) {
	l.mu.Lock()
	if l.free > 0 {
		l.free--
		l.mu.Unlock()
		return l.stay(), true
	}
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return l.stay(), true
	case <-time.After(patience):
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, turn); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		return func() {}, false
	}
	return l.stay(), true // its turn came at the last moment
}

// stay counts a caller until it leaves, or until holdUp has passed.
func (l *lobby) stay() (leave func()) {
	once := sync.OnceFunc(l.next)
	late := time.AfterFunc(holdUp, once)
	return func() {
		late.Stop()
		once()
	}
}

func (l *lobby) next() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.waiting); n > 0 {
		close(l.waiting[n-1])
		l.waiting = l.waiting[:n-1]
		return
	}
	l.free++
}

// mostOfOne is how many connections the certificates of one name may have here, so that none takes all that the process can open. A node
// has one connection; all executors of an app share a certificate.
const mostOfOne = 1024

// mostCalls is how many calls of one node may be under way: more than an agent has, whose one connection takes maxStreams. The message of a
// call that does not end takes up to maxMessageBytes.
const mostCalls = maxStreams + 28

// connected counts the connections with a certificate, by name, and the calls of nodes.
type connected struct {
	mu    sync.Mutex // guards what follows
	of    map[certs.Name]int
	calls map[certs.Name]int
}

// call is a tap.ServerInHandle: it counts a call of a node until it is over, or refuses it before its message is read.
func (c *connected) call(ctx context.Context, _ *tap.Info) (context.Context, error) {
	who, err := caller(ctx)
	if err != nil || who.Role != certs.RoleNode { // authorise refuses whom nobody knows
		return ctx, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[who] >= mostCalls {
		return nil, status.Errorf(codes.ResourceExhausted, "%s has %d calls under way, no more are taken: lifeboat revoke %[1]s if somebody else has its key", who, mostCalls)
	}
	if c.calls == nil {
		c.calls = map[certs.Name]int{}
	}
	c.calls[who]++
	context.AfterFunc(ctx, func() { c.over(who) })
	return ctx, nil
}

func (c *connected) over(who certs.Name) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[who]--; c.calls[who] == 0 {
		delete(c.calls, who)
	}
}

// admit counts a connection until it is closed, unless there are too many of that name.
func (c *connected) admit(conn net.Conn, who certs.Name) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[who] >= mostOfOne {
		return nil, fmt.Errorf("%s has %d connections, no more are taken: close some, or lifeboat revoke %[1]s if somebody else has its key", who, mostOfOne)
	}
	if c.of == nil {
		c.of = map[certs.Name]int{}
	}
	c.of[who]++
	return &counted{Conn: conn, leave: sync.OnceFunc(func() { c.leave(who) })}, nil
}

func (c *connected) leave(who certs.Name) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[who]--; c.of[who] == 0 {
		delete(c.of, who)
	}
}

type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}

// textAddr is a TCP address as text, which need not be an IP address.
type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

// greeted is a connection whose first byte has come. A connection without one takes no place in the lobby.
type greeted struct {
	net.Conn
	first [1]byte
	left  int
}

// greet waits for the first byte.
func greet(conn net.Conn) (*greeted, error) {
	g := &greeted{Conn: conn}
	n, err := conn.Read(g.first[:])
	g.left = n
	return g, err
}

// Read returns the first byte again, and then the rest.
func (g *greeted) Read(b []byte) (int, error) {
	if g.left > 0 && len(b) > 0 {
		g.left = 0
		b[0] = g.first[0]
		return 1, nil
	}
	return g.Conn.Read(b)
}
