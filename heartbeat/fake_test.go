package heartbeat

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
)

const addrA, addrB, addrC = "10.0.0.1:7411", "10.0.0.2:7411", "10.0.0.3:7411"

// network joins dialers to listeners by net.Pipe: real sockets would stop a bubble's clock.
type network struct {
	mu        sync.Mutex // guards what follows
	listeners map[string]*listener
	dialled   []time.Time
}

func newNetwork() *network { return &network{listeners: make(map[string]*listener)} }

func (n *network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[addr]
	n.dialled = append(n.dialled, time.Now())
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.closed:
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *network) dials() []time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.dialled)
}

// listen opens addr without accepting connections.
func (n *network) listen(t *testing.T, addr string) *listener {
	l := &listener{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		t.Fatalf("two listeners at %s", addr)
	}
	n.listeners[addr] = l
	l.forget = func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.listeners, addr)
	}
	return l
}

// serve runs a coordinator at addr until the returned func is called or the test ends.
func (n *network) serve(t *testing.T, addr string, c api.MembershipServer, more ...grpc.ServerOption) (stop func()) {
	l := n.listen(t, addr)
	// A coordinator must allow these pings: gRPC's own policy of five minutes ends a connection that pings during a quiet
	// call.
	s := grpc.NewServer(append(more, grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveTime / 2, PermitWithoutStream: true}))...)
	api.RegisterMembershipServer(s, c)
	ended := make(chan struct{})
	go func() { defer close(ended); s.Serve(l) }()
	stop = sync.OnceFunc(func() { s.Stop(); <-ended })
	t.Cleanup(stop)
	return stop
}

type listener struct {
	addr   string
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	forget func()
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *listener) Close() error   { l.once.Do(func() { l.forget(); close(l.closed) }); return nil }
func (l *listener) Addr() net.Addr { return pipeAddr(l.addr) }

type pipeAddr string

func (pipeAddr) Network() string  { return "pipe" }
func (a pipeAddr) String() string { return string(a) }

// coordinator is the smallest one that keeps the contract of api/lifeboat.proto.
type coordinator struct {
	api.UnimplementedMembershipServer

	mu        sync.Mutex // guards what follows
	known     bool
	interval  time.Duration
	lease     time.Duration // 0: 30 s
	reconnect time.Duration
	term      uint64
	behind    time.Duration // its clock
	directive *api.Directive
	peers     []*api.Peer
	version   uint64
	revokedAt uint64
	revoked   []*api.Revoked
	overtakes int // announced restarts

	registered []*api.RegisterRequest
	beats      []*api.HeartbeatRequest
	beatTimes  []time.Time
	full       int
	held       map[string]int64
	gone       []string // ID: WHY
	calls      []proto.Message
	summary    *api.ManifestSummary
	entries    []string
	whole      int // manifests that arrived whole

	refused string // a reason that it does not take

	runs int // messages that told of blocks

	onBeat    func(context.Context) error                      // called without the lock; its error replaces the reply
	onReport  func(context.Context) error                      // called before a report is read
	onGoodbye func(context.Context, *api.GoodbyeRequest) error // called for each message
}

func (c *coordinator) Register(_ context.Context, r *api.RegisterRequest) (*api.RegisterReply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = true
	c.registered = append(c.registered, r)
	return &api.RegisterReply{NodeId: "1", Pace: c.pace(), Term: c.term}, nil
}

func (c *coordinator) pace() *api.Pace {
	if c.interval == 0 {
		return nil
	}
	return &api.Pace{Interval: durationpb.New(c.interval), Lease: durationpb.New(cmp.Or(c.lease, 30*time.Second)), ReconnectWithin: durationpb.New(c.reconnect)}
}

func (c *coordinator) Heartbeat(ctx context.Context, r *api.HeartbeatRequest) (*api.HeartbeatReply, error) {
	c.mu.Lock()
	c.beats, c.beatTimes = append(c.beats, r), append(c.beatTimes, time.Now())
	reply := &api.HeartbeatReply{Register: true}
	if c.known {
		reply = &api.HeartbeatReply{Pace: c.pace(), Directive: c.directive, PeersVersion: c.version}
		if c.version != r.PeersVersion {
			reply.Peers = c.peers
		}
		if reply.RevokedVersion = c.revokedAt; c.revokedAt != r.RevokedVersion {
			reply.Revoked = c.revoked
		}
	}
	reply.Term, reply.Now = c.term, timestamppb.New(time.Now().Add(-c.behind))
	onBeat := c.onBeat
	c.mu.Unlock()
	if onBeat != nil {
		if err := onBeat(ctx); err != nil {
			return nil, err
		}
	}
	return reply, nil
}

func (c *coordinator) ReportBlocks(stream grpc.ClientStreamingServer[api.ReportBlocksRequest, api.ReportBlocksReply]) error {
	if onReport := read(c, func() func(context.Context) error { return c.onReport }); onReport != nil {
		if err := onReport(stream.Context()); err != nil {
			return err
		}
	}
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			return stream.SendAndClose(&api.ReportBlocksReply{})
		}
		if err != nil {
			return err
		}
		c.mu.Lock()
		if c.refused != "" && r.Why == c.refused {
			c.mu.Unlock()
			return status.Error(codes.InvalidArgument, "no reason")
		}
		if r.Full || c.held == nil {
			c.held = make(map[string]int64)
		}
		if r.Full {
			c.full++
		}
		c.runs += len(r.Runs)
		for _, run := range r.Runs {
			maps.Insert(c.held, run.Blocks.IDs())
		}
		for _, id := range r.Gone {
			c.gone = append(c.gone, id+": "+r.Why)
			delete(c.held, id)
		}
		c.mu.Unlock()
	}
}

func (c *coordinator) Goodbye(stream grpc.ClientStreamingServer[api.GoodbyeRequest, api.GoodbyeReply]) error {
	for {
		r, err := stream.Recv()
		if err == io.EOF {
			c.mu.Lock()
			c.whole++
			c.mu.Unlock()
			return stream.SendAndClose(&api.GoodbyeReply{})
		}
		if err != nil {
			return err
		}
		c.mu.Lock()
		if r.Summary != nil {
			c.summary, c.entries = r.Summary, nil
		}
		c.runs += len(r.Runs)
		for _, run := range r.Runs {
			for id := range run.Blocks.IDs() {
				c.entries = append(c.entries, id)
			}
		}
		onGoodbye := c.onGoodbye
		c.mu.Unlock()
		if onGoodbye != nil {
			if err := onGoodbye(stream.Context(), r); err != nil {
				return err
			}
		}
	}
}

func (c *coordinator) note(m proto.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, m)
}

func (c *coordinator) WorkerDecommission(_ context.Context, r *api.WorkerDecommissionRequest) (*api.WorkerDecommissionReply, error) {
	c.note(r)
	return &api.WorkerDecommissionReply{}, nil
}

func (c *coordinator) WithdrawDecommission(_ context.Context, r *api.WithdrawDecommissionRequest) (*api.WithdrawDecommissionReply, error) {
	c.note(r)
	return &api.WithdrawDecommissionReply{}, nil
}

func (c *coordinator) ReportUnavailable(_ context.Context, r *api.ReportUnavailableRequest) (*api.ReportUnavailableReply, error) {
	c.note(r)
	if c.overtakes > 0 {
		c.overtakes--
		return nil, status.Error(codes.Aborted, "a newer word was heard")
	}
	return &api.ReportUnavailableReply{}, nil
}

func (c *coordinator) Locate(_ context.Context, r *api.LocateRequest) (*api.LocateReply, error) {
	c.note(r)
	return &api.LocateReply{State: "held", Holders: []*api.Holder{{Node: "host-b", Address: addrB}}}, nil
}

// set changes the coordinator under its lock; read returns a part of it.
func (c *coordinator) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func read[T any](c *coordinator, get func() T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return get()
}

func (c *coordinator) heldIDs() []string {
	return read(c, func() []string { return slices.Sorted(maps.Keys(c.held)) })
}

func (c *coordinator) beatCount() int { return read(c, func() int { return len(c.beats) }) }

// hang is a handler that never answers.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// logbook keeps what was logged.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logbook) count(message string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), message)
}

func (b *logbook) log() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func config(n *network, coordinators ...string) Config {
	return Config{
		Node: "host-a", Incarnation: "inc-1", PeerAddress: "10.0.0.9:7412", Place: func() (zone, pool string) { return "z1", "spot" }, Version: "v1",
		Coordinators: coordinators, Dial: n.dial,
		Status: func() *api.Status { return &api.Status{RoomBytes: 7} },
	}
}

func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// beating returns a client that runs until the test ends, and whose only coordinator is co.
func beating(t *testing.T, co api.MembershipServer) *Client {
	t.Helper()
	n := newNetwork()
	n.serve(t, addrA, co)
	c := newClient(t, config(n, addrA))
	start(t, c)
	return c
}

// start runs a client until stop is called or the test ends; it fails the test when Run returns early or with an error.
func start(t *testing.T, c *Client) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		select {
		case err := <-ended:
			t.Errorf("Run returned %v while its context was alive", err)
			cancel()
			return
		default:
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("got %v from Run at its context's end, want nil", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// holding runs a client of co that holds blocks, until the end of the test. stop ends co's server.
func holding(t *testing.T, co *coordinator, held func() iter.Seq2[*api.HeldBlock, error]) (n *network, c *Client, stop func()) {
	t.Helper()
	n = newNetwork()
	stop = n.serve(t, addrA, co)
	cfg := config(n, addrA)
	cfg.Held = held
	c = newClient(t, cfg)
	start(t, c)
	return n, c, stop
}

func heldBlocks(ids ...string) func() iter.Seq2[*api.HeldBlock, error] {
	return func() iter.Seq2[*api.HeldBlock, error] {
		return func(yield func(*api.HeldBlock, error) bool) {
			for _, id := range ids {
				if !yield(&api.HeldBlock{Id: id, Bytes: 1}, nil) {
					return
				}
			}
		}
	}
}

var errUnavailable = status.Error(codes.Unavailable, "away")

func unmarshalReply(wire []byte) (*api.HeartbeatReply, error) {
	reply := new(api.HeartbeatReply)
	return reply, proto.Unmarshal(wire, reply)
}
