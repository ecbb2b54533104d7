package heartbeat

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
)

const (
	// A lease is at least 30 s by default. Kubernetes issue 121793: when noticing a dead connection and reaching another
	// takes as long as the lease, whole clusters are lost at once. So: at most 5 s to give up a connection attempt.
	connectLimit = 5 * time.Second

	// gRPC raises a shorter keepalive time to 10 s. Pings are sent only while a call is open: between beats the next beat
	// is the probe. The coordinator's enforcement policy must allow one each 10 s; gRPC's own (one in five minutes) answers
	// a quiet Goodbye with ENHANCE_YOUR_CALM and cuts it off.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second

	// window is how much a coordinator may send ahead. With a fixed window gRPC does not measure the line: for that it would
	// send a ping after each message, which costs the coordinator as much again.
	window = 256 << 10

	// The largest reply is a list of 32 peers; this is a hundred times that.
	maxReplyBytes = 1 << 20
)

// link is one connection to one coordinator. Beats, reports and single calls share it.
type link struct {
	api.MembershipClient
	address string
	conn    *grpc.ClientConn
	users   int // guarded by links.mu
}

// links holds the connection in use. A connection on which a beat failed is replaced by one to the next address, but stays
// open for the calls that are still under way on it: a slow beat must not cut a Goodbye short.
type links struct {
	addresses []string
	options   []grpc.DialOption

	mu    sync.Mutex // guards what follows, and users of every link
	at    int        // the address in use
	led   string     // a leader's address that is not in addresses; it is used once, then at again
	inUse *link      // nil: none is open
	kept  bool       // Run is running: an idle connection stays open
}

func newLinks(cfg Config) *links {
	creds := insecure.NewCredentials()
	if cfg.TLS != nil {
		creds = certs.Credentials(cfg.TLS)
	}
	return &links{
		addresses: cfg.Coordinators,
		options: []grpc.DialOption{
			grpc.WithTransportCredentials(creds),
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return cfg.Dial(ctx, "tcp", addr) }),
			grpc.WithNoProxy(),              // the control plane never leaves by a proxy meant for people's downloads
			grpc.WithDisableServiceConfig(), // nobody else sets our retries and timeouts
			grpc.WithUserAgent("lifeboat-agent/" + cfg.Version),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           grpcbackoff.Config{BaseDelay: backoffFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: backoffMost},
				MinConnectTimeout: connectLimit,
			}),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
			grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
			grpc.WithDefaultCallOptions(grpc.WaitForReady(false), grpc.MaxCallRecvMsgSize(maxReplyBytes)),
		},
	}
}

// connect returns once there is a connection, or none can be made. The requests tell how much time remains at the moment
// they go out, so they must not wait for the connection: where thousands come to a new leader, a handshake takes seconds.
func (k *link) connect(ctx context.Context) {
	for {
		k.conn.Connect()
		state := k.conn.GetState()
		if state != connectivity.Idle && state != connectivity.Connecting || !k.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// use returns the connection in use, opening it when there is none. Its caller gives it back with done.
func (l *links) use() (*link, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inUse == nil {
		address := l.target()
		// passthrough: the dialler alone looks names up, anew at every attempt. A target is a URL, so an IPv6 zone's % is escaped.
		conn, err := grpc.NewClient("passthrough:///"+strings.ReplaceAll(address, "%", "%25"), l.options...)
		if err != nil {
			return nil, fmt.Errorf("coordinator %s: %w", address, err)
		}
		l.inUse = &link{MembershipClient: api.NewMembershipClient(conn), address: address, conn: conn}
	}
	l.inUse.users++
	return l.inUse, nil
}

// done gives a link back.
func (l *links) done(k *link) {
	l.mu.Lock()
	k.users--
	idle := k.users == 0 && (k != l.inUse || !l.kept)
	if idle && k == l.inUse {
		l.inUse = nil
	}
	l.mu.Unlock()
	if idle {
		k.conn.Close()
	}
}

// turn replaces k, which its caller still uses, by the next address.
func (l *links) turn(k *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k == l.inUse {
		l.inUse, l.led = nil, ""
		l.at = (l.at + 1) % len(l.addresses)
	}
}

// leave replaces k, which its caller still uses, after a failure on it. It goes to the leader's address if the error names
// one, else to the next address, and reports whether the error named one.
func (l *links) leave(k *link, err error) (told bool) {
	hint, _ := api.LeaderOf(err)
	address := hint.GetAddress()
	if _, _, fault := net.SplitHostPort(address); fault != nil || address == k.address {
		l.turn(k)
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if k == l.inUse {
		l.inUse, l.led = nil, address
		if i := slices.Index(l.addresses, address); i >= 0 {
			l.at, l.led = i, ""
		}
	}
	return true
}

// target is the address in use.
func (l *links) target() string { return cmp.Or(l.led, l.addresses[l.at]) }

// keep makes an idle connection stay open until letGo.
func (l *links) keep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = true
}

func (l *links) letGo() {
	l.mu.Lock()
	l.kept = false
	k := l.inUse
	if k != nil {
		k.users++
	}
	l.mu.Unlock()
	if k != nil {
		l.done(k) // whoever is the last user closes it
	}
}

// cut reports whether there is no connection, and none is being made.
func (l *links) cut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inUse == nil {
		return true
	}
	state := l.inUse.conn.GetState()
	return state != connectivity.Ready && state != connectivity.Connecting
}

func (l *links) address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.target()
}
