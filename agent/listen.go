package agent

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lifeboat/lifeboat/accepted"
	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/localsock"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/wire"
)

const (
	dialTimeout = 5 * time.Second
	// maxHeaderBytes is above a block's id of 4 KiB with each byte escaped: net/http would take 1 MB on each connection.
	maxHeaderBytes = 16 << 10
	// handshakeTimeout bounds how long a connection may take to show its certificate, or the header of a request.
	handshakeTimeout = 10 * time.Second
	// acceptPause keeps a process that is out of file descriptors from spinning.
	acceptPause = 100 * time.Millisecond
	// farewellTimeout is how long requests under way may take when the agent stops.
	farewellTimeout = 2 * time.Second
)

const httpProtocol = "http/1.1"

// doors are where others come in: peers and readers with certificates, the loopback page, the machine's own socket.
type doors struct {
	log                *slog.Logger
	identity           *certs.Identity
	peer, http, socket net.Listener
	guests             guests // at the peer address

	blocks, page http.Handler // of readers at the peer address, and on the loopback address
	calls        *http.Server // on the socket
	take         func(ctx context.Context, stream net.Conn, node string) error
}

func (d *doors) close() {
	for _, each := range []net.Listener{d.peer, d.http, d.socket} {
		if each != nil {
			each.Close()
		}
	}
}

func (a *Agent) listen() (err error) {
	a.at.log, a.at.identity = a.log, a.deps.Identity
	if a.at.peer, err = a.deps.Listen("tcp", a.cfg.Listen.Peer); err != nil {
		return fmt.Errorf("listen.peer: %w", err)
	}
	if a.at.http, err = a.deps.Listen("tcp", a.cfg.Listen.HTTP); err != nil {
		return fmt.Errorf("listen.http: %w", err)
	}
	on := localsock.Network{Listen: a.deps.Listen, Dial: a.deps.Dial}
	if a.at.socket, err = localsock.Listen(context.Background(), on, a.cfg.Listen.Socket); err != nil {
		return fmt.Errorf("listen.socket: %w", err)
	}
	return nil
}

// Run serves all three listeners until ctx ends.
func (d *doors) Run(ctx context.Context) error {
	by := func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, peerKey{}, c) }
	blocks := &http.Server{
		Handler: d.blocks, ConnContext: by, ReadHeaderTimeout: handshakeTimeout,
		IdleTimeout: time.Minute, MaxHeaderBytes: maxHeaderBytes, ConnState: d.guests.note, ErrorLog: d.quiet(),
	}
	local := &http.Server{
		Handler: d.page, ReadHeaderTimeout: handshakeTimeout,
		IdleTimeout: time.Minute, MaxHeaderBytes: maxHeaderBytes, ConnState: accepted.NewStrangers(d.log).Note, ErrorLog: d.quiet(),
	}
	readers := accepted.At(d.peer.Addr())

	g, ctx := errgroup.WithContext(ctx)
	serve := func(s *http.Server, l net.Listener) {
		g.Go(func() error {
			if err := s.Serve(l); ctx.Err() == nil {
				return err
			}
			return nil // it ended because it was told to
		})
	}
	serve(blocks, readers)
	serve(local, d.http)
	serve(d.calls, d.socket)
	g.Go(func() error { return d.acceptPeers(ctx, readers) })
	g.Go(func() error {
		<-ctx.Done()
		d.peer.Close()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTimeout)
		defer cancel()
		for _, s := range []*http.Server{blocks, local, d.calls} {
			if s.Shutdown(last) != nil {
				s.Close()
			}
		}
		return nil
	})
	return g.Wait()
}

func (d *doors) quiet() *stdlog.Logger { return slog.NewLogLogger(d.log.Handler(), slog.LevelDebug) }

// acceptPeers accepts connections at the peer address. The protocol that the TLS handshake agrees on tells streams of blocks
// from readers.
func (d *doors) acceptPeers(ctx context.Context, readers *accepted.Listener) error {
	defer readers.Close()
	var conns sync.WaitGroup
	strangers := accepted.NewStrangers(d.log)
	defer conns.Wait()
	tls := d.identity.Server([]string{wire.Protocol, httpProtocol}, certs.RoleNode, certs.RoleOperator, certs.RoleApp)
	for {
		raw, err := d.peer.Accept()
		if ctx.Err() != nil {
			if err == nil {
				raw.Close()
			}
			return nil
		}
		if err != nil {
			d.log.Warn("cannot accept a peer", "err", err)
			await.Sleep(ctx, acceptPause)
			continue
		}
		strangers.Enter(raw)
		conns.Go(func() { d.welcome(ctx, wire.Server(raw, tls), func() { strangers.Leave(raw) }, readers) })
	}
}

func (d *doors) welcome(ctx context.Context, conn *wire.Conn, known func(), readers *accepted.Listener) {
	hello, cancel := context.WithTimeout(ctx, handshakeTimeout)
	err := conn.HandshakeContext(hello)
	cancel()
	known()
	if err != nil {
		d.log.Debug("a stranger was refused", "peer", conn.RemoteAddr(), "err", err)
		conn.Close()
		return
	}
	state := conn.ConnectionState()
	who, err := certs.PeerName(state)
	if err == nil && !d.guests.enter(conn, who) {
		err = fmt.Errorf("%d of its connections are open, no more are taken", mostOfOne)
	}
	if err == nil {
		err = d.identity.Trusts(state) // it may have been revoked since the handshake
	}
	if err != nil {
		d.log.Debug("a peer was turned away", "peer", who, "err", err)
		d.guests.leave(conn)
		conn.Close()
		return
	}
	if state.NegotiatedProtocol != wire.Protocol {
		readers.Hand(conn)
		return
	}
	defer d.guests.leave(conn)
	if who.Role != certs.RoleNode {
		d.log.Warn("only nodes may send blocks", "peer", who)
		conn.Close()
		return
	}
	if err := d.take(ctx, conn, who.Name); err != nil {
		d.log.Warn("a stream of blocks broke off", "node", who.Name, "err", err)
	}
}

// peerHandler serves readers whose certificate was checked.
func (a *Agent) peerHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/blocks/", a.reader)
	mux.HandleFunc("POST /blocks/", a.at.guests.question(a.reader.ServeHTTP))
	mux.HandleFunc("DELETE /blocks/", a.forget)
	mux.HandleFunc("POST /home", a.at.guests.question(a.home))
	mux.HandleFunc("POST /home/doubt", a.behind.doubt)
	mux.HandleFunc("GET /healthz", healthy)
	return byID(mux)
}

// byID refuses what is no block's id before a mux sees it. A mux would send the reader of cache/-/y/../x on to another block, with a status
// that curl -f takes for success.
func byID(mux http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, is := strings.CutPrefix(r.URL.Path, "/blocks/"); is && id != "" {
			if _, err := inventory.ParseBlockID(id); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		mux.ServeHTTP(w, r)
	})
}

// home serves POST /home: it tells a node which of the blocks that were born here it need not carry first.
func (a *Agent) home(w http.ResponseWriter, r *http.Request) {
	if _, is := fromNode(r); !is {
		http.Error(w, "only nodes are told what a node has", http.StatusForbidden)
		return
	}
	a.reader.ServeHome(w, r, a.incidents.leaving())
}

// fromNode returns the name of the node that a request came from; false: it came from an operator or an app.
func fromNode(r *http.Request) (name string, is bool) {
	who, err := guestOf(r)
	return who.Name, err == nil && who.Role == certs.RoleNode
}

func guestOf(r *http.Request) (certs.Name, error) {
	return certs.PeerName(r.Context().Value(peerKey{}).(*wire.Conn).ConnectionState())
}

// forget serves DELETE /blocks/: it removes a copy of a block. Only the node that the block was born on may ask for that.
func (a *Agent) forget(w http.ResponseWriter, r *http.Request) {
	node, is := fromNode(r)
	if !is {
		http.Error(w, "only the node that a block was born on has a copy of it removed", http.StatusForbidden)
		return
	}
	a.receiver.ServeForget(w, r, node)
}

// peerKey is the context key of the connection that a request came by.
type peerKey struct{}

func healthy(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

// pageHandler serves the loopback address: metrics for everybody, blocks for bearers of the token.
func (a *Agent) pageHandler() (http.Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthy)
	mux.Handle("GET /metrics", a.metrics())
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", "Bearer") // a 401 must say how (RFC 9110, 15.5.2)
		http.Error(w, "blocks are read here only with the bearer token of listen.read_token_file; without one, read them on the socket or, "+
			"with a certificate, on the peer address", http.StatusUnauthorized)
	})
	if a.cfg.Listen.ReadTokenFile == "" {
		mux.Handle("/blocks/", refuse)
		return mux, nil
	}
	b, err := os.ReadFile(a.cfg.Listen.ReadTokenFile)
	token := strings.TrimSpace(string(b))
	if err != nil {
		return nil, fmt.Errorf("listen.read_token_file: %w", err)
	}
	if len(token) < 16 {
		return nil, fmt.Errorf("listen.read_token_file %s: a token of %d characters, want at least 16", a.cfg.Listen.ReadTokenFile, len(token))
	}
	mux.HandleFunc("/blocks/", func(w http.ResponseWriter, r *http.Request) {
		scheme, got, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare([]byte(got), []byte(token)) != 1 {
			refuse(w, r)
			return
		}
		a.reader.ServeHTTP(w, r)
	})
	return byID(mux), nil
}

// errNotAnswered is of a node whose connections open, and no more: its kernel answers, and its agent does not, or the path between lets only
// small packets through.
var errNotAnswered = errors.New("it takes connections and answers nothing: its agent hangs, or large packets are lost on the way (MTU)")

// dialPeer opens a stream for blocks; dialHolder one for reading.
func (a *Agent) dialPeer(ctx context.Context, p migration.Peer) (net.Conn, error) {
	return a.dialNode(ctx, p.Node, p.Address, wire.Protocol)
}

func (a *Agent) dialHolder(ctx context.Context, h reading.Holder) (net.Conn, error) {
	return a.dialNode(ctx, h.Node, h.Address, httpProtocol)
}

func (a *Agent) dialNode(ctx context.Context, node, address, protocol string) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, errNotAnswered)
	defer cancel()
	raw, err := a.deps.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("reach %s: %w", address, api.Plain(err)) // the caller adds the node
	}
	conn := wire.Client(raw, a.deps.Identity.Client([]string{protocol}, certs.Name{Role: certs.RoleNode, Name: node}))
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		if cause := context.Cause(ctx); errors.Is(cause, errNotAnswered) {
			err = cause
		}
		return nil, fmt.Errorf("handshake at %s: %w", address, api.Plain(err))
	}
	return conn, nil
}
