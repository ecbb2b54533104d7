// Package client connects programs that are not agents to a fleet's coordinators: its connection finds the leader,
// follows when another takes the lead, and remembers it. The generated clients of package api work on it:
//
//	conn := client.New(client.Config{Addresses: addresses, Credentials: certs.Credentials(tls)})
//	defer conn.Close()
//	nodes, err := api.NewOperatorClient(conn).ListNodes(ctx, &api.ListNodesRequest{})
//
// A coordinator that does not lead carries no call out, and every call of the Operator service may be repeated without
// harm. So a call that meets such a coordinator is made again where the leader is, within its context and within reason.
// New dials nobody.
//
// Errors have gRPC's codes: status.Code(err) is codes.NotFound for an unknown node, and codes.Unavailable if the coordinators
// do not answer. An error that ctx caused has codes.Canceled or codes.DeadlineExceeded.
//
// Blocks reads blocks, through any agent, wherever they were carried. errors.Is tells its errors: ErrUnknown, ErrLost, ErrInFlight,
// ErrChanged, or what ended ctx. Any other error means that no agent answered as it should, or that none lets this certificate read.
package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
)

const (
	// maxReplyBytes bounds a reply: gRPC's own 4 MiB hold a list of some thousand nodes, and a fleet may have more.
	maxReplyBytes = 64 << 20

	// electionPatience is how long a call bears it that there is no leader: twice the slowest election that a
	// coordinator's settings allow.
	electionPatience = 8 * time.Second

	// window is how much a coordinator may send ahead. With a fixed window gRPC does not measure the line, for which it
	// would send a ping after each message: that is half of what an event costs both sides.
	window = 1 << 20

	// With pings a follower of events notices a coordinator whose machine went without a word. gRPC allows no more
	// frequent ones.
	pingAfter    = 10 * time.Second
	pingPatience = 5 * time.Second

	// connectPatience is how long a connection may take to be ready, its handshake included. A coordinator that hangs still
	// accepts connections, for the kernel does that, and gRPC itself would give each of them 20 s.
	connectPatience = 5 * time.Second

	// lookPause is the pause between two looks for a leader: an election takes a few of them.
	lookPause = 10 * time.Millisecond
)

// redial is when to dial a coordinator again: one that is back is found within a second, however long it was away. With gRPC's own
// settings the pauses grow to two minutes.
var redial = backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}

// Config says where the coordinators are and how to reach them.
type Config struct {
	Addresses []string // host:port each; one is enough if it always answers, for it knows the others
	// Credentials say who calls: certs.Credentials(Identity.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator})). With these
	// a caller that is refused learns why, and not of a broken pipe. Required.
	Credentials credentials.TransportCredentials
	// Dial reaches an address; it must give up when its context ends. Nil: a plain net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Conn is a grpc.ClientConnInterface that reaches the coordinator that leads. Its methods may be called by several
// goroutines.
type Conn struct {
	cfg Config

	mu    sync.Mutex                  // guards what follows
	at    string                      // the address in use
	conns map[string]*grpc.ClientConn // nil: closed
}

// errClosed has the code that gRPC gives to calls on a closed connection of its own.
var errClosed = status.Error(codes.Canceled, "the connection to the coordinators is closed")

// New makes a connection to the coordinators. It dials nobody.
func New(cfg Config) *Conn {
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	c := &Conn{cfg: cfg, conns: map[string]*grpc.ClientConn{}}
	if len(cfg.Addresses) > 0 {
		c.at = cfg.Addresses[0]
	}
	return c
}

// Address is the coordinator in use: the one that last led.
func (c *Conn) Address() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Close ends every call under way, and the loops over Events. Later calls return an error.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first error
	for _, address := range slices.Sorted(maps.Keys(c.conns)) {
		if err := c.conns[address].Close(); err != nil && first == nil {
			first = fmt.Errorf("coordinator %s: %w", address, err)
		}
	}
	c.conns = nil
	return first
}

// use returns the connection to the address in use, and makes it if need be.
func (c *Conn) use() (address string, conn *grpc.ClientConn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns == nil {
		return "", nil, errClosed
	}
	if c.at == "" {
		return "", nil, status.Error(codes.InvalidArgument, "no coordinator's address is given")
	}
	if conn = c.conns[c.at]; conn != nil {
		return c.at, conn, nil
	}
	// passthrough: only the dialler looks names up, anew at every attempt. A target is a URL, so an IPv6 zone's % is escaped.
	conn, err = grpc.NewClient("passthrough:///"+strings.ReplaceAll(c.at, "%", "%25"),
		grpc.WithTransportCredentials(c.cfg.Credentials), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReplyBytes)),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: connectPatience}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingPatience}),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return c.cfg.Dial(ctx, "tcp", address) }))
	if err != nil {
		return "", nil, fmt.Errorf("coordinator %s: %w", c.at, err)
	}
	c.conns[c.at] = conn
	return c.at, conn, nil
}

// Invoke implements grpc.ClientConnInterface.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	ctx = metadata.AppendToOutgoingContext(ctx, api.CallHeader, rand.Text()) // one call, however often it is made
	s := c.look(ctx)
	for {
		address, conn, err := c.use()
		if err != nil {
			return err
		}
		if err = conn.Invoke(ctx, method, args, reply, opts...); err == nil || !s.goOn(address, err) {
			return s.conclude(err)
		}
	}
}

// search is one call's way to the leader.
type search struct {
	*Conn
	ctx   context.Context
	until time.Time
	away  int    // how many of the addresses in a row did not answer
	turns string // the address whose turn it was last: the one in use may be one that it named
	led   bool   // the coordinator in use was named by another one, and followed at once

	faults map[string]error // by address, why the last call to it did not come about; nil: all did
}

func (c *Conn) look(ctx context.Context) *search {
	return &search{Conn: c, ctx: ctx, until: time.Now().Add(electionPatience)}
}

// goOn reports whether to ask again, elsewhere, after err came from address. It gives up when no coordinator answers:
// those that are there answer even when none leads.
func (s *search) goOn(address string, err error) bool {
	if slices.Contains(s.cfg.Addresses, address) {
		s.turns = address
	}
	if errors.Is(s.ctx.Err(), context.DeadlineExceeded) {
		s.turn(address, s.after(s.turns)) // the coordinator may be cut off without a word: the next call begins elsewhere
	}
	hint, follows := api.LeaderOf(err)
	if follows {
		delete(s.faults, address)
	}
	switch {
	case s.ctx.Err() != nil || status.Code(err) != codes.Unavailable || follows && time.Now().After(s.until):
		return false
	case follows && hint.GetAddress() != "" && hint.GetAddress() != address:
		s.away = 0
		s.turn(address, hint.GetAddress())
		s.led = !s.led
		return s.led || await.Sleep(s.ctx, lookPause) // two may name each other
	case follows:
		s.away = 0
	default:
		if s.faults == nil {
			s.faults = map[string]error{}
		}
		s.faults[address] = err
		if !slices.Contains(s.cfg.Addresses, address) {
			break // the next one may know better who leads, and where
		}
		if s.away++; s.away >= len(s.cfg.Addresses) {
			return false
		}
	}
	s.turn(address, s.after(s.turns))
	return await.Sleep(s.ctx, lookPause)
}

// conclude completes the error of a coordinator that names another one as the leader, if the leader could not be asked: it
// says why not, such as a firewall in the way, or a certificate of another CA. If none leads, it says which others did not answer: an
// election may want for them. If none could be asked, and not all for the same reason, the last one's reason is not enough: the error says
// each one's.
func (s *search) conclude(err error) error {
	hint, follows := api.LeaderOf(err)
	told := status.Convert(err).Proto()
	switch fault := s.faults[hint.GetAddress()]; {
	case follows && fault != nil:
		told.Message += ", and cannot be asked from here: " + api.Why(fault)
	case follows && hint.GetAddress() == "" && len(s.faults) > 0:
		told.Message += "; " + s.each()
	case !follows && status.Code(err) == codes.Unavailable && s.differ():
		told.Message = s.each()
	default:
		return err
	}
	return status.ErrorProto(told)
}

// each says of all coordinators that did not answer why not.
func (s *search) each() string {
	var each []string
	for _, address := range slices.Sorted(maps.Keys(s.faults)) {
		each = append(each, address+": "+api.Why(s.faults[address]))
	}
	return strings.Join(each, "; ")
}

// differ reports whether the coordinators did not answer for different reasons.
func (s *search) differ() bool {
	reasons := map[string]bool{}
	for _, fault := range s.faults {
		reasons[api.Why(fault)] = true
	}
	return len(reasons) > 1
}

// turn sets another address to use, unless another call has done so meanwhile.
func (c *Conn) turn(from, to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == from {
		c.at = to
	}
}

// after returns the next address in turn.
func (c *Conn) after(address string) string {
	return c.cfg.Addresses[(slices.Index(c.cfg.Addresses, address)+1)%len(c.cfg.Addresses)]
}
