package coordinator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc/credentials"

	"github.com/lifeboat/lifeboat/accepted"
	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
)

// raftProtocol is the protocol that a connection for raft names in its handshake (RFC 7301). Raft shares the port with all calls: one
// address to configure, one hole in the firewall.
const raftProtocol = "lifeboat-raft/1"

// streams are raft's connections to the other coordinators. Both ends show a certificate of role coordinator.
type streams struct {
	identity *certs.Identity
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	nameAt   func(address string) string // the coordinator that should be there; "": not known

	*accepted.Listener

	mu     sync.Mutex // guards what follows
	open   map[*stream]bool
	silent bool // this coordinator's disk hangs, and no other is to take it for a live leader
}

func newStreams(id *certs.Identity, own string, dial func(ctx context.Context, network, address string) (net.Conn, error)) *streams {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return &streams{
		identity: id, dial: dial, nameAt: func(string) string { return "" },
		Listener: accepted.At(textAddr(own)), open: map[*stream]bool{},
	}
}

// Dial implements raft.StreamLayer. The certificate must have the name of the coordinator that should be at the address: two addresses
// that lead to one coordinator would give it two votes.
func (s *streams) Dial(address raft.ServerAddress, patience time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go func() {
		select {
		case <-s.Closed():
			cancel()
		case <-ctx.Done():
		}
	}()
	raw, err := s.dial(ctx, "tcp", string(address))
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, s.identity.Client([]string{raftProtocol}, certs.Name{Role: certs.RoleCoordinator, Name: s.nameAt(string(address))}))
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("coordinator %s: %w", address, err), raw.Close())
	}
	if conn.ConnectionState().NegotiatedProtocol != raftProtocol {
		return nil, errors.Join(fmt.Errorf("coordinator %s runs alone: give it the list of peers", address), conn.Close())
	}
	return s.keep(conn)
}

// take takes a connection that another coordinator made.
func (s *streams) take(conn net.Conn) {
	if kept, err := s.keep(conn); err == nil {
		s.Hand(kept)
	}
}

// keep notes a connection, so that Close ends it: raft's transport does not close incoming connections.
func (s *streams) keep(conn net.Conn) (net.Conn, error) {
	k := &stream{Conn: conn, of: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	if s.silent {
		return nil, errors.Join(errSilent, conn.Close())
	}
	s.open[k] = true
	return k, nil
}

var errSilent = errors.New("the disk of data_dir hangs: this coordinator says nothing to the others")

// Close implements net.Listener, and ends every connection.
func (s *streams) Close() error {
	s.hangUp(nil)
	return s.Listener.Close()
}

// hangUp ends every connection. Later ones are noted in next, or refused if that is nil. It closes them without the lock: TLS writes a
// goodbye, which blocks if the other end does not read.
func (s *streams) hangUp(next map[*stream]bool) {
	s.mu.Lock()
	open := s.open
	if open != nil {
		s.open = next
	}
	s.mu.Unlock()
	for k := range open {
		k.Conn.Close()
	}
}

type stream struct {
	net.Conn
	of *streams
}

func (k *stream) Close() error {
	k.of.mu.Lock()
	delete(k.of.open, k)
	k.of.mu.Unlock()
	return k.Conn.Close()
}

// doors does the handshake with all callers, and passes connections on by their protocol: raft's to streams, those of joining machines to
// the porch, and the rest to gRPC.
type doors struct {
	credentials.TransportCredentials
	streams   *streams // nil: this coordinator is alone
	porch     *porch
	lobby     *lobby
	strangers *accepted.Strangers
	connected *connected
	refused   *refusals
}

// ServerHandshake implements credentials.TransportCredentials.
func (d doors) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	d.strangers.Enter(raw)
	defer d.strangers.Leave(raw)
	caller, err := greet(raw)
	if err != nil {
		return nil, nil, errors.Join(err, raw.Close())
	}
	leave, ok := d.lobby.enter(handshakePatience)
	if !ok {
		return nil, nil, errors.Join(errors.New("too many shake hands at once"), raw.Close())
	}
	conn, info, err := d.TransportCredentials.ServerHandshake(caller)
	leave()
	if err != nil {
		d.refused.tell(raw.RemoteAddr(), err)
		return nil, nil, err
	}
	said, ok := info.(credentials.TLSInfo)
	if ok && said.State.NegotiatedProtocol == api.JoinProtocol {
		if err := conn.SetDeadline(time.Time{}); err != nil { // the handshake's
			return nil, nil, errors.Join(err, conn.Close())
		}
		d.porch.Hand(struct{ net.Conn }{conn}) // wrapped, because net/http drops a *tls.Conn of a protocol that it does not know
		return nil, nil, credentials.ErrConnDispatched
	}
	var name certs.Name
	if ok {
		name, err = certs.PeerName(said.State)
	}
	if !ok || said.State.NegotiatedProtocol != raftProtocol {
		kept, full := d.connected.admit(conn, name)
		if full != nil {
			d.refused.tell(raw.RemoteAddr(), full)
			return nil, nil, errors.Join(full, conn.Close())
		}
		return kept, info, nil
	}
	if err != nil || name.Role != certs.RoleCoordinator || d.streams == nil {
		return nil, nil, errors.Join(fmt.Errorf("%q may not speak raft", name), err, conn.Close())
	}
	if err := conn.SetDeadline(time.Time{}); err != nil { // the handshake's
		return nil, nil, errors.Join(err, conn.Close())
	}
	d.streams.take(conn)
	return nil, nil, credentials.ErrConnDispatched
}

// Clone implements credentials.TransportCredentials.
func (d doors) Clone() credentials.TransportCredentials {
	return doors{d.TransportCredentials.Clone(), d.streams, d.porch, d.lobby, d.strangers, d.connected, d.refused}
}
