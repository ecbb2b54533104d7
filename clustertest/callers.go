package clustertest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
)

// Operator is a client of one coordinator, whether it leads or not: no call is repeated at another. It may be used by
// several goroutines of the bubble.
func (c *Cluster) Operator(i int) api.OperatorClient {
	c.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+c.coordinators[i].grpc(),
		grpc.WithTransportCredentials(credentials.NewTLS(c.operator.id.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator}))),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: step, Multiplier: 1, MaxDelay: step}, MinConnectTimeout: time.Second}),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return c.operator.host.Dial(ctx, "tcp", address)
		}))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	return api.NewOperatorClient(conn)
}

// Coordinators is how many there are.
func (c *Cluster) Coordinators() int { return len(c.coordinators) }

// HandOver has the operator hand the lead to one coordinator.
func (c *Cluster) HandOver(to int) {
	c.t.Helper()
	c.operator.ask(func(ctx context.Context, o api.OperatorClient) error {
		_, err := o.TransferLeadership(ctx, &api.TransferLeadershipRequest{To: CoordinatorName(to)})
		return err
	})
}

// ForgetManifests removes a coordinator's manifest files, as if it had been away when they came.
func (c *Cluster) ForgetManifests(i int) {
	c.t.Helper()
	files, err := filepath.Glob(filepath.Join(c.coordinators[i].dir, "manifests", "*.jsonl"))
	if err != nil || len(files) == 0 {
		c.t.Fatalf("%s has no manifests to forget (%v)", CoordinatorName(i), err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			c.t.Fatal(err)
		}
	}
}
