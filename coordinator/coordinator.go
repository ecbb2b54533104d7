// Package coordinator is the thin centre of a fleet: it knows which nodes live, which are leaving and by when, which nodes hold which
// landed blocks, and what was lost. Agents call its Membership service, people its Operator service and its HTTP pages.
//
// Decisions (registrations, states, orders with their absolute deadlines, manifests) go through raft's log and are on the
// disk before any caller hears of them. What heartbeats carry, and the holders of blocks, is soft: it is in memory, and the nodes repeat
// it to a new leader. The package moves no block, decides for no agent when to drain, and is needed for no drain: an agent that cannot
// reach it uses the peers that it last heard of.
//
// New starts nothing. Run serves until its context ends and leaves nothing behind but data_dir.
//
// What is decided, and by which rules, is package registry; where blocks are is kept in package blockmap, raft's log on the disk in package
// raftstore, and package hosts reads the host files.
//
// The files by subject, in an order to read them. Most subjects belong to a type, which is named before them. The types take from each other
// what openFleet gives them, and decide through fleet.do; the calls of agents and people ask all of them.
//
//	ledger, what is agreed on:       raft, raftlog, nodes, streams; peers, addresses, restore
//	  office, who leads:             leader, hang, pulse, gate, redirect
//	  succession, who should lead:   succession, agree, attendance, members, colleagues
//	fleet, what hangs together:      fleet, govern, reap, steady, watcher, metrics
//	leases, who is heard:            leases, pace, clocks
//	  silence, who is not:           silence, brake, bursts
//	  roster, who takes blocks:      roster
//	  bars, who is given work:       bars
//	locations, where blocks are:     locations, locations_list, candidates, fallbacks, broken; reports, held
//	accounts, what became of them:   accounts, manifests, goodbye
//	lives, what runs where:          apps, executors; lives_beats, lives_list, lives_page
//	leavers, what they wait for:     waits, leaving
//	maintenance, what is worked on:  maintenance, maintenance_calls, maintenance_page
//	hostFiles, who is to be there:   hosts_refresh
//	access, whose word counts:       auth, tokens, join, revoked; lobby, refusals, denials, quotas
//	auditor, what operators ask:     auditor, audit
//	publisher, who follows:          events, events_hub, events_audience, events_call, events_page, event_types, events_moved
//	  hooks, who is posted to:       webhooks, webhooks_metrics
//	agents call:                     membership, excluded; wire
//	other coordinators call:         coordination
//	people call:                     operator, deactivate, forget; http, page
//	the daemon:                      config, coordinator
package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/lifeboat/lifeboat/accepted"
	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/raftstore"
)

const (
	// Pings keep idle connections open, such as that of a follower of events behind a firewall that forgets. They do not find dead agents:
	// leases do.
	pingAfter    = 20 * time.Second
	pingPatience = 10 * time.Second
	// pingLeast is the least time between a client's pings: gRPC's clients ping every 10 s at most, more often is abuse.
	pingLeast = 5 * time.Second

	// handshakePatience keeps a slow or hostile handshake from holding a connection for long while thousands reconnect.
	handshakePatience = 10 * time.Second

	// maxStreams is per connection. An agent has one heartbeat, a report and a goodbye under way at most.
	maxStreams = 100

	// maxHeaderBytes bounds the headers of a call or a request: gRPC would take 16 MB on each connection.
	maxHeaderBytes = 16 << 10

	// connBuffer is the write buffer of a connection. It is small, because messages are small and with thousands of agents buffers are most of
	// what connections cost. There is no read buffer: TLS has one of its own.
	connBuffer = 4 << 10

	// window is how many bytes an agent may send ahead when it reports thousands of blocks. With a fixed window gRPC does not measure the
	// bandwidth, for which it sends a ping after each message: that was a good part of the cost of a beat.
	window = 256 << 10

	// farewell is how long calls under way may take to end when the coordinator stops.
	farewell = 2 * time.Second
)

// Deps are what the caller of New provides.
type Deps struct {
	Log      *slog.Logger
	Identity *certs.Identity
	GRPC     net.Listener // nil: listen on the configured address
	HTTP     net.Listener // nil: listen on the configured address
	// Dial reaches the other coordinators. Nil: a plain net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Web posts to webhooks. Nil: a client that goes by the environment's proxies.
	Web *http.Client
	// Verify checks the cloud's documents of machines that join. Nil: machines cannot join by a document.
	Verify  Verifier
	Version string // of this build, for status
	Ready   func() // called once calls are answered; may be nil
}

// Coordinator is one coordinator: one of several, or the only one.
type Coordinator struct {
	cfg       Config
	deps      Deps
	authority *certs.Authority // nil: it issues no certificates
}

// New checks its arguments, and starts nothing.
func New(cfg Config, deps Deps) (*Coordinator, error) {
	if deps.Identity == nil {
		return nil, errors.New("coordinator without an identity: set tls")
	}
	if got := deps.Identity.Name(); got.Role != certs.RoleCoordinator {
		return nil, fmt.Errorf("identity is %q, want role %s", got, certs.RoleCoordinator)
	}
	if cfg.Heartbeat <= 0 || cfg.Lease < 3*cfg.Heartbeat {
		return nil, fmt.Errorf("heartbeat %s, lease %s: a lease must cover three heartbeats; raise lease to %s", cfg.Heartbeat, cfg.Lease, 3*cfg.Heartbeat)
	}
	if _, ok := cfg.own(); !ok && len(cfg.Peers) > 0 {
		return nil, fmt.Errorf("peers %v without %s itself: give every coordinator the same list", namesOf(cfg.Peers), cfg.Name)
	}
	if name := deps.Identity.Name().Name; len(cfg.Peers) > 0 && name != cfg.Name {
		return nil, fmt.Errorf("the certificate is of coordinator %s, and the settings' name is %s: the others would not know it", name, cfg.Name)
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	c := &Coordinator{cfg: cfg, deps: deps}
	if cfg.Issue.CAKey != "" {
		var err error
		if c.authority, err = certs.LoadAuthority(cfg.TLS.CA, cfg.Issue.CAKey); err != nil {
			return nil, fmt.Errorf("issue.ca_key: %w", err)
		}
	}
	return c, nil
}

// Run serves until ctx ends. An error means that the coordinator cannot do its work.
func (c *Coordinator) Run(ctx context.Context) (err error) {
	grpcListener, err := listen(c.deps.GRPC, "listen.grpc", c.cfg.Listen.GRPC)
	if err != nil {
		return err
	}
	defer grpcListener.Close()
	httpListener, err := listen(c.deps.HTTP, "listen.http", c.cfg.Listen.HTTP)
	if err != nil {
		return err
	}
	defer httpListener.Close()

	var st *streams
	if own, ok := c.cfg.own(); ok {
		st = newStreams(c.deps.Identity, own.Address, c.deps.Dial)
	}
	f, err := openFleet(c.cfg, st, c.deps)
	if err != nil {
		return fmt.Errorf("coordinator: %w", err)
	}
	f.access.authority = c.authority
	c.deps.Identity.Distrust(f.access.revokedAt)
	defer func() { err = errors.Join(err, f.Close()) }()
	if f.ledger.alone() {
		if err := f.ledger.awaitLead(ctx); err != nil && ctx.Err() != nil {
			return nil
		} else if err != nil {
			return fmt.Errorf("coordinator: %w", err)
		}
		if err := f.takeOver(ctx, f.ledger.term()); err != nil {
			return fmt.Errorf("coordinator: %w", err)
		}
	}

	serving, served := context.WithCancel(context.WithoutCancel(ctx))
	defer served()
	g, ctx := errgroup.WithContext(ctx)
	in := newPorch(f, c.deps.Verify)
	calls, pages := c.callServer(ctx, f, in), c.pageServer(ctx, f)
	g.Go(func() error { return in.serve(ctx) })
	g.Go(func() error { return c.keepCertificate(ctx) })
	g.Go(func() error { return f.reap(ctx) })
	g.Go(func() error { return f.audience.watch(ctx) })
	g.Go(func() error { return f.locations.moves.run(ctx) })
	g.Go(func() error { return f.leavers.run(ctx) })
	g.Go(func() error { return f.ledger.watchDisk(ctx, f.log) })
	g.Go(func() error { return f.hooks.run(ctx) })
	if !f.ledger.alone() {
		g.Go(func() error { return f.govern(ctx) })
		g.Go(func() error { return f.ledger.noteTurns(serving, f.log) })
		g.Go(func() error { return f.accounts.run(ctx) })
		g.Go(func() error { return f.succession.run(ctx) })
		g.Go(func() error { return f.succession.lookAround(ctx) })
	}
	g.Go(func() error {
		if err := calls.Serve(grpcListener); !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil // stopped before it began
	})
	g.Go(func() error {
		if err := pages.ServeTLS(httpListener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		defer served()
		f.succession.resign()
		return stop(calls, pages)
	})
	words := []any{"grpc", grpcListener.Addr().String(), "http", httpListener.Addr().String()}
	if f.ledger.alone() { // one of several does not know the nodes before it has heard a leader, or leads
		words = append(words, "nodes", len(f.ledger.nodes()))
	}
	c.deps.Log.Info("coordinator serves", words...)
	if c.deps.Ready != nil {
		c.deps.Ready()
	}
	g.Go(func() error { return f.ledger.tellManager(ctx, f.log) })
	return outlast(ctx, g.Wait)
}

// every calls do once each span until ctx ends.
func every(ctx context.Context, span time.Duration, do func()) error {
	tick := time.NewTicker(span)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			do()
		}
	}
}

func listen(given net.Listener, what, address string) (net.Listener, error) {
	if given != nil {
		return given, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", what, address, err)
	}
	return l, nil
}

// callServer answers agents and operators.
func (c *Coordinator) callServer(ctx context.Context, f *fleet, in *porch) *grpc.Server {
	protos, roles := []string{"h2"}, []certs.Role{certs.RoleNode, certs.RoleOperator, certs.RoleApp}
	if !f.ledger.alone() {
		protos, roles = append(protos, raftProtocol), append(roles, certs.RoleCoordinator)
	}
	terms := c.deps.Identity.Server(protos, roles...)
	if c.authority != nil {
		terms = c.deps.Identity.Door(terms, api.JoinProtocol)
	}
	here := &connected{}
	s := grpc.NewServer(
		grpc.Creds(doors{credentials.NewTLS(terms), f.ledger.streams, in, newLobby(), accepted.NewStrangers(c.deps.Log), here, &refusals{log: c.deps.Log}}),
		grpc.InTapHandle(here.call),
		grpc.UnaryInterceptor(f.gate.unary),
		grpc.StreamInterceptor(f.gate.stream),
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(handshakePatience),
		grpc.ReadBufferSize(0),
		grpc.WriteBufferSize(connBuffer),
		grpc.StaticStreamWindowSize(window),
		grpc.StaticConnWindowSize(window),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingPatience}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingLeast, PermitWithoutStream: true}),
	)
	api.RegisterMembershipServer(s, &membership{fleet: f})
	if !f.ledger.alone() {
		api.RegisterCoordinationServer(s, &coordination{ledger: f.ledger, succession: f.succession, accounts: f.accounts})
	}
	api.RegisterOperatorServer(s, &operator{fleet: f, closing: ctx})
	return s
}

// pageServer answers readers.
func (c *Coordinator) pageServer(ctx context.Context, f *fleet) *http.Server {
	return &http.Server{
		Handler:           (&web{fleet: f, closing: ctx}).handler(),
		TLSConfig:         c.deps.Identity.Server([]string{"h2", "http/1.1"}),
		ReadHeaderTimeout: handshakePatience,
		ReadTimeout:       writePatience,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         accepted.NewStrangers(c.deps.Log).Note,
		ErrorLog:          slog.NewLogLogger(c.deps.Log.Handler(), slog.LevelDebug), // strangers' handshakes are no news
	}
}

// stop lets calls under way end, and cuts them off after farewell.
func stop(calls *grpc.Server, pages *http.Server) error {
	ended := await.Beside(calls.GracefulStop)
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	err := pages.Shutdown(ctx)
	select {
	case <-ended:
	case <-ctx.Done():
		calls.Stop()
		select {
		case <-ended:
		case <-time.After(raftstore.HangAfter): // a handler that waits for a hanging disk cannot be ended
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return pages.Close()
	}
	return err
}
