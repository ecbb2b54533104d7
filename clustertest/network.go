package clustertest

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// network joins machines in memory. A cut link loses nothing: bytes wait until it heals, as TCP would send them again, and dials wait
// too.
type network struct {
	mu        sync.Mutex // guards what follows
	listeners map[string]*listener
	machines  map[netip.Addr]string // the machine that has an address
	cut       map[link]bool
	changed   chan struct{} // closed and replaced when a link is cut or healed
	pipes     map[*pipe]bool
	carried   map[way]int64
}

// link is two machines, in the order of their names. way is a direction.
type link struct{ a, b string }
type way struct{ from, to string }

func linkOf(a, b string) link { return link{min(a, b), max(a, b)} }

func newNetwork() *network {
	return &network{
		listeners: map[string]*listener{}, machines: map[netip.Addr]string{}, cut: map[link]bool{},
		changed: make(chan struct{}), pipes: map[*pipe]bool{}, carried: map[way]int64{},
	}
}

// host is the network of one process on a machine. It ends when the process does, also for goroutines that still run.
type host struct {
	net     *network
	machine string

	mu        sync.Mutex // guards what follows
	crashed   bool
	listeners []*listener
	conns     []*pipeConn
}

// attach gives a new process on a machine its network. An address belongs to the machine from then on.
func (n *network) attach(machine string, addresses ...string) *host {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range addresses {
		n.machines[netip.MustParseAddr(a)] = machine
	}
	return &host{net: n, machine: machine}
}

// crash takes the network away at once. Connections go before listeners: an agent whose listener is closed stops, and would say goodbye
// over them.
func (h *host) crash() {
	h.mu.Lock()
	h.crashed = true
	listeners, conns := h.listeners, h.conns
	h.mu.Unlock()
	for _, c := range conns {
		c.crash()
	}
	for _, l := range listeners {
		l.Close()
	}
}

// place is the key of a listener. Addresses that are local to a machine mean another listener on each machine.
func (h *host) place(network, address string) string {
	ap, err := netip.ParseAddrPort(address)
	if network == "unix" || err == nil && (ap.Addr().IsLoopback() || ap.Addr().IsLinkLocalUnicast()) {
		return h.machine + " " + address
	}
	return address
}

// Listen is net.Listen on this machine.
func (h *host) Listen(network, address string) (net.Listener, error) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	at := addr{network, address}
	place := h.place(network, address)
	if h.crashed || h.net.listeners[place] != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: at, Err: syscall.EADDRINUSE}
	}
	l := &listener{host: h, place: place, at: at, changed: make(chan struct{})}
	h.net.listeners[place] = l
	h.listeners = append(h.listeners, l)
	return l, nil
}

// Dial is net.Dialer.DialContext from this machine.
func (h *host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: addr{network, address}, Err: err}
	}
	place := h.place(network, address)
	for {
		h.net.mu.Lock()
		l, changed := h.net.listeners[place], h.net.changed
		to := h.machine
		if ap, err := netip.ParseAddrPort(place); err == nil {
			to = h.net.machines[ap.Addr()]
		}
		cut := h.net.cut[linkOf(h.machine, to)]
		h.net.mu.Unlock()
		switch {
		case h.dead():
			return fail(syscall.ENETDOWN)
		case ctx.Err() != nil:
			return fail(ctx.Err())
		case !cut && l == nil:
			return fail(syscall.ECONNREFUSED)
		case !cut:
			c, err := h.connect(l)
			if err != nil {
				return fail(err)
			}
			return c, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func (h *host) dead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.crashed
}

func (h *host) connect(l *listener) (net.Conn, error) {
	n, far := h.net, l.host
	p, here, there := newPipe(func() bool { return n.flows(h.machine, far.machine) })
	for _, side := range []struct {
		*pipeConn
		local, remote net.Addr
		way           way
	}{
		{here, addr{l.at.network, h.machine}, l.at, way{h.machine, far.machine}},
		{there, l.at, addr{l.at.network, h.machine}, way{far.machine, h.machine}},
	} {
		e := side.mine()
		e.local, e.remote, e.sent = side.local, side.remote, func(b int) { n.count(side.way, b) }
	}
	n.mu.Lock()
	n.pipes[p] = true
	n.mu.Unlock()
	if !h.keep(here) || !far.keep(there) || !l.take(there) {
		return nil, syscall.ECONNREFUSED
	}
	return here, nil
}

// keep notes a connection for crash to end. It returns false after the crash.
func (h *host) keep(c *pipeConn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns = append(h.conns, c)
	return !h.crashed
}

func (n *network) flows(a, b string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.cut[linkOf(a, b)]
}

func (n *network) count(w way, bytes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.carried[w] += int64(bytes)
}

// bytes is how much one machine has sent to another.
func (n *network) bytes(from, to string) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.carried[way{from, to}]
}

// set cuts or heals links.
func (n *network) set(cut bool, links ...link) {
	n.mu.Lock()
	for _, l := range links {
		n.cut[l] = cut
	}
	close(n.changed)
	n.changed = make(chan struct{})
	var pipes []*pipe
	for p := range n.pipes {
		pipes = append(pipes, p)
	}
	n.mu.Unlock()
	for _, p := range pipes {
		p.wake()
	}
}

// listener takes connections like a kernel: they are established before the process accepts them.
type listener struct {
	host  *host
	place string
	at    addr

	mu      sync.Mutex // guards what follows
	waiting []*pipeConn
	closed  bool
	changed chan struct{} // closed and replaced when something waits or the listener closes
}

func (l *listener) take(c *pipeConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, c)
	l.wake()
	return !l.closed
}

func (l *listener) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		changed := l.changed
		switch {
		case l.closed:
			l.mu.Unlock()
			return nil, &net.OpError{Op: "accept", Net: l.at.network, Addr: l.at, Err: net.ErrClosed}
		case len(l.waiting) > 0:
			c := l.waiting[0]
			l.waiting = l.waiting[1:]
			l.mu.Unlock()
			return c, nil
		}
		l.mu.Unlock()
		<-changed
	}
}

// Close resets the connections that were never accepted.
func (l *listener) Close() error {
	n := l.host.net
	n.mu.Lock()
	if n.listeners[l.place] == l {
		delete(n.listeners, l.place)
	}
	n.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.waiting {
		c.crash()
	}
	l.waiting = nil
	l.closed = true
	l.wake()
	return nil
}

func (l *listener) Addr() net.Addr { return l.at }

type addr struct{ network, address string }

func (a addr) Network() string { return a.network }
func (a addr) String() string  { return a.address }
