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

// One that is back is found within these, however long it was away: gRPC's own pauses grow to two minutes, and it gives each attempt 20 s.
const (
	redialFirst  = 100 * time.Millisecond
	redialMost   = time.Second
	dialPatience = 3 * time.Second
)

// colleagues are the other coordinators, for what goes beside raft: how far they are, and files that are too large for
// its log.
type colleagues struct {
	identity *certs.Identity
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	ledger   *ledger

	mu    sync.Mutex // guards conns
	conns map[Peer]*grpc.ClientConn
}

// all are the members but this one, by raft's own account.
func (c *colleagues) all() (others []Peer) {
	for _, s := range c.ledger.servers() {
		if s.ID == c.ledger.own {
			continue
		}
		at := s.Address
		if moved, err := c.ledger.ServerAddr(s.ID); err == nil {
			at = moved
		}
		others = append(others, Peer{Name: string(s.ID), Address: string(at)})
	}
	return others
}

// ask is a client of one of them, and of nobody else at that address.
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

// positionPatience is how long the others may take to say how far they are: somebody looks at a screen meanwhile.
const positionPatience = 500 * time.Millisecond

// position is what one of them says of itself.
type position struct {
	*api.Position
	ahead time.Duration // how far its clock is ahead of this one, by its answer alone: others may keep the asker waiting
}

// positions asks everybody at once. Who does not answer is not in it.
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
