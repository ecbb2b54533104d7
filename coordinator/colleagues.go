package coordinator

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
)

// Pauses and patience of connections to other coordinators. A coordinator that comes back is found within them, however long it was away:
// gRPC's own pauses grow to two minutes, and it gives each attempt 20 s.
const (
	redialFirst  = 100 * time.Millisecond
	redialMost   = time.Second
	dialPatience = 3 * time.Second
)

// colleagues are connections to the other coordinators, for what does not go through raft: their positions, and manifests, which are too
// large for its log.
type colleagues struct {
	identity *certs.Identity
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	ledger   *ledger

	mu    sync.Mutex // guards conns
	conns map[Peer]*grpc.ClientConn
}

// all are the members of raft's list, without this one.
func (c *colleagues) all() (others []Peer) {
	for _, s := range c.ledger.members() {
		if s.ID != c.ledger.own {
			others = append(others, Peer{Name: string(s.ID), Address: string(s.Address)})
		}
	}
	return others
}

// ask is a client of coordinator p. It does not connect to anything else at that address: the certificate must have p's name.
func (c *colleagues) ask(p Peer) (api.CoordinationClient, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.conns[p]
	if conn == nil {
		tls := c.identity.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator, Name: p.Name})
		var err error
		conn, err = grpc.NewClient("passthrough:///"+strings.ReplaceAll(p.Address, "%", "%25"),
			grpc.WithTransportCredentials(certs.Credentials(tls)), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: redialFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: redialMost},
				MinConnectTimeout: dialPatience,
			}),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return c.dial(ctx, "tcp", address) }))
		if err != nil {
			return nil, err
		}
		c.conns[p] = conn
	}
	return api.NewCoordinationClient(conn), nil
}

// Close hangs up.
func (c *colleagues) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.Close())
	}
	clear(c.conns)
	return errors.Join(errs...)
}

// positionPatience is how long the others may take to answer: an operator may be waiting for the screen.
const positionPatience = 500 * time.Millisecond

// position is what one coordinator says of itself.
type position struct {
	*api.Position
	ahead time.Duration // how far its clock is ahead of this one, measured by its own answer: others may take longer
}

// positions asks all other coordinators at once. The result has those that answered in time.
func (c *colleagues) positions(ctx context.Context) map[string]position {
	ctx, cancel := context.WithTimeout(ctx, positionPatience)
	defer cancel()
	var mu sync.Mutex
	said := map[string]position{}
	var wg sync.WaitGroup
	for _, p := range c.all() {
		wg.Go(func() {
			client, err := c.ask(p)
			if err != nil {
				return
			}
			asked := time.Now()
			at, err := client.GetPosition(ctx, &api.GetPositionRequest{})
			if err != nil {
				return
			}
			half := asked.Add(time.Since(asked) / 2)
			mu.Lock()
			defer mu.Unlock()
			said[p.Name] = position{at, at.GetNow().AsTime().Sub(half)}
		})
	}
	wg.Wait()
	return said
}
