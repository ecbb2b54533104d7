package clustertest

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/coordinator"
)

// coordinatorNode is the machine with the coordinator.
type coordinatorNode struct {
	process
	cert, key string
}

func newCoordinator(c *Cluster) *coordinatorNode {
	n := &coordinatorNode{process: process{c: c, name: Coordinator, dir: c.path(Coordinator)}}
	n.cert, n.key = c.issue(certs.Name{Role: certs.RoleCoordinator, Name: Coordinator})
	return n
}

func (n *coordinatorNode) start() {
	n.c.t.Helper()
	if n.running() {
		n.c.t.Fatal("start the coordinator: it is running")
	}
	cfg := coordinator.Default()
	cfg.Name, cfg.DataDir = Coordinator, n.dir
	cfg.Listen = coordinator.Listen{GRPC: coordinatorGRPC, HTTP: coordinatorHTTP}
	cfg.TLS = config.TLS{CA: n.c.path("tls", "ca.pem"), Cert: n.cert, Key: n.key}
	if n.c.cfg.Coordinator != nil {
		n.c.cfg.Coordinator(&cfg)
	}
	id, err := cfg.Identity()
	if err != nil {
		n.c.t.Fatal(err)
	}
	n.host = n.c.network.attach(Coordinator, coordinatorAddress)
	deps := coordinator.Deps{Log: n.c.log.With("at", Coordinator), Identity: id, Version: "test"}
	for address, l := range map[string]*net.Listener{coordinatorGRPC: &deps.GRPC, coordinatorHTTP: &deps.HTTP} {
		if *l, err = n.host.Listen("tcp", address); err != nil {
			n.c.t.Fatal(err)
		}
	}
	ctx, end := context.WithCancel(context.Background())
	n.end = end
	n.launch(func(serves func()) error {
		deps.Ready = serves
		co, err := coordinator.New(cfg, deps)
		if err != nil {
			return err
		}
		return co.Run(ctx)
	})
}

// KillCoordinator ends the coordinator as SIGKILL does. RestartCoordinator starts it anew.
func (c *Cluster) KillCoordinator() {
	c.t.Helper()
	c.operator.hangUp()
	c.coordinator.kill()
}

// RestartCoordinator starts the coordinator that was killed.
func (c *Cluster) RestartCoordinator() { c.t.Helper(); c.coordinator.start() }

// operator is a person at a desk, with a certificate and one connection to the coordinator.
type operator struct {
	c    *Cluster
	host *host
	id   *certs.Identity
	conn *grpc.ClientConn // nil: none
}

func newOperator(c *Cluster) *operator {
	id, err := certs.LoadDir(c.path("tls"))
	if err != nil {
		c.t.Fatal(err)
	}
	return &operator{c: c, host: c.network.attach("desk"), id: id}
}

func (o *operator) hangUp() {
	if o.conn != nil {
		o.conn.Close()
		o.conn = nil
	}
}

// patience is how long the desk waits for an answer.
const patience = 10 * time.Second

// ask makes a call, which must succeed.
func (o *operator) ask(call func(context.Context, api.OperatorClient) error) {
	o.c.t.Helper()
	if o.conn == nil {
		conn, err := grpc.NewClient("passthrough:///"+coordinatorGRPC,
			grpc.WithTransportCredentials(credentials.NewTLS(o.id.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator}))),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return o.host.Dial(ctx, "tcp", address) }),
			grpc.WithDisableServiceConfig(), grpc.WithNoProxy(), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
		if err != nil {
			o.c.t.Fatal(err)
		}
		o.conn = conn
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := call(ctx, api.NewOperatorClient(o.conn)); err != nil {
		o.c.t.Fatal(err)
	}
}

// Nodes is every node as the coordinator shows it.
func (c *Cluster) Nodes() (nodes []*api.Node) {
	c.t.Helper()
	c.operator.ask(func(ctx context.Context, o api.OperatorClient) error {
		r, err := o.ListNodes(ctx, &api.ListNodesRequest{})
		nodes = r.GetNodes()
		return err
	})
	return nodes
}

// Show is one node as the coordinator shows it.
func (c *Cluster) Show(i int) (n *api.Node) {
	c.t.Helper()
	c.operator.ask(func(ctx context.Context, o api.OperatorClient) (err error) {
		n, err = o.GetNode(ctx, &api.GetNodeRequest{Node: c.Name(i)})
		return err
	})
	return n
}

// State is where the coordinator says that a node stands.
func (c *Cluster) State(i int) string { c.t.Helper(); return c.Show(i).State }

// Decommission is an operator's order; 0: with the coordinator's own limit.
func (c *Cluster) Decommission(i int, timeout time.Duration, reason string) {
	c.t.Helper()
	r := &api.DecommissionRequest{Nodes: []string{c.Name(i)}, Reason: reason}
	if timeout != 0 {
		r.Timeout = durationpb.New(timeout)
	}
	c.operator.ask(func(ctx context.Context, o api.OperatorClient) error {
		_, err := o.Decommission(ctx, r)
		return err
	})
}

// Recommission takes an order back.
func (c *Cluster) Recommission(i int) {
	c.t.Helper()
	c.operator.ask(func(ctx context.Context, o api.OperatorClient) error {
		_, err := o.Recommission(ctx, &api.RecommissionRequest{Nodes: []string{c.Name(i)}})
		return err
	})
}

// Locate is what the coordinator knows of a block.
func (c *Cluster) Locate(id string) (r *api.LocateReply) {
	c.t.Helper()
	c.operator.ask(func(ctx context.Context, o api.OperatorClient) (err error) {
		r, err = o.Locate(ctx, &api.LocateRequest{Id: id})
		return err
	})
	return r
}

// Events is everything that happened to a node, in order.
func (c *Cluster) Events(i int) (events []*api.Event) {
	c.t.Helper()
	c.operator.ask(func(ctx context.Context, o api.OperatorClient) error {
		stream, err := o.Events(ctx, &api.EventsRequest{})
		if err != nil {
			return err
		}
		for {
			e, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if e.Node == c.Name(i) {
				events = append(events, e)
			}
		}
	})
	return events
}

// Manifest is the account of a node's drain as the coordinator has it, by block.
func (c *Cluster) Manifest(i int) (summary *api.ManifestSummary, entries map[string]*api.ManifestEntry) {
	c.t.Helper()
	entries = map[string]*api.ManifestEntry{}
	c.operator.ask(func(ctx context.Context, o api.OperatorClient) error {
		stream, err := o.GetManifest(ctx, &api.GetManifestRequest{Node: c.Name(i)})
		if err != nil {
			return err
		}
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if m.Summary != nil {
				summary = m.Summary
			}
			for _, e := range m.Entries {
				if entries[e.Id] != nil {
					c.t.Errorf("the manifest of %s names %s twice: %v and %v", c.Name(i), e.Id, entries[e.Id], e)
				}
				entries[e.Id] = e
			}
		}
	})
	return summary, entries
}

// WaitDrained waits until the coordinator says that a node is DECOMMISSIONED, and returns how long that took.
func (c *Cluster) WaitDrained(i int) time.Duration {
	c.t.Helper()
	return c.WaitState(i, "DECOMMISSIONED")
}

// WaitState waits for a state.
func (c *Cluster) WaitState(i int, state string) time.Duration {
	c.t.Helper()
	return c.Until(c.Name(i)+" is "+state, 5*time.Minute, func() bool { return c.State(i) == state })
}
