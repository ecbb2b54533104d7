package clustertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/client"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/coordinator"
)

// coordinatorNode is a machine with a coordinator.
type coordinatorNode struct {
	process
	number    int
	address   string
	cert, key string
	desk      *client.Conn // the operator's connection to this coordinator alone
}

// CoordinatorName is the name of a coordinator's machine.
func CoordinatorName(i int) string {
	if i == 0 {
		return Coordinator
	}
	return fmt.Sprintf("%s-%d", Coordinator, i+1)
}

func newCoordinator(c *Cluster, i int) *coordinatorNode {
	n := &coordinatorNode{process: process{c: c, name: CoordinatorName(i), dir: c.path(CoordinatorName(i))}, number: i, address: fmt.Sprintf("10.0.0.%d", i+1)}
	n.cert, n.key = c.issue(certs.Name{Role: certs.RoleCoordinator, Name: n.name})
	n.desk = c.operator.conn(n.grpc())
	return n
}

func (n *coordinatorNode) grpc() string { return n.address + ":7411" }
func (n *coordinatorNode) http() string { return n.address + ":7410" }

// coordinatorAddresses are what agents and operators are configured with.
func (c *Cluster) coordinatorAddresses() (all []string) {
	for _, n := range c.coordinators {
		all = append(all, n.grpc())
	}
	return all
}

// election is longer than the default, because the coordinators share two processors with everything else in the bubble.
const election = 500 * time.Millisecond

func (n *coordinatorNode) start() {
	n.c.t.Helper()
	if n.running() {
		n.c.t.Fatalf("start %s: it is running", n.name)
	}
	cfg := coordinator.Default()
	cfg.Name, cfg.DataDir, cfg.Election = n.name, n.dir, election
	cfg.Listen = coordinator.Listen{GRPC: n.grpc(), HTTP: n.http()}
	cfg.TLS = config.TLS{CA: n.c.path("tls", "ca.pem"), Cert: n.cert, Key: n.key}
	if len(n.c.coordinators) > 1 {
		for _, p := range n.c.coordinators {
			cfg.Peers = append(cfg.Peers, coordinator.Peer{Name: p.name, Address: p.grpc()})
		}
	}
	if n.c.cfg.Coordinator != nil {
		n.c.cfg.Coordinator(&cfg)
	}
	id, err := cfg.Identity()
	if err != nil {
		n.c.t.Fatal(err)
	}
	n.host = n.c.network.attach(n.name, n.address)
	deps := coordinator.Deps{Log: n.c.log.With("at", n.name), Identity: id, Version: "test", Dial: n.host.Dial}
	for address, l := range map[string]*net.Listener{n.grpc(): &deps.GRPC, n.http(): &deps.HTTP} {
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

// KillCoordinator ends a coordinator as SIGKILL does. Without a number it is the first one, also in the next two methods.
func (c *Cluster) KillCoordinator(i ...int) { c.t.Helper(); c.coordinatorAt(i).kill() }

// StopCoordinator ends a coordinator as SIGTERM does.
func (c *Cluster) StopCoordinator(i ...int) { c.t.Helper(); c.coordinatorAt(i).shutDown() }

// RestartCoordinator starts a coordinator that was killed or stopped.
func (c *Cluster) RestartCoordinator(i ...int) { c.t.Helper(); c.coordinatorAt(i).start() }

func (c *Cluster) coordinatorAt(i []int) *coordinatorNode {
	if len(i) == 0 {
		return c.coordinators[0]
	}
	return c.coordinators[i[0]]
}

// CoordinatorStatus is what one coordinator says of itself; nil: it does not answer.
func (c *Cluster) CoordinatorStatus(i int) *api.CoordinatorStatus {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := api.NewOperatorClient(c.coordinators[i].desk).GetStatus(ctx, &api.GetStatusRequest{})
	if err != nil {
		return nil
	}
	return s
}

// Answers reports whether a coordinator itself answers a call that only the leader answers.
func (c *Cluster) Answers(i int) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn := c.operator.conn(c.coordinators[i].grpc()) // a new one, for a connection remembers the leader that it was sent to
	defer conn.Close()
	s, err := api.NewOperatorClient(conn).GetStatus(ctx, &api.GetStatusRequest{OfLeader: true})
	return err == nil && s.GetName() == c.coordinators[i].name
}

// Leader waits until a coordinator leads, and returns its number. The coordinators in not do not count.
func (c *Cluster) Leader(not ...int) (leader int) {
	c.t.Helper()
	c.Until("a coordinator leads", 20*time.Second, func() bool {
		leader = -1
		var term uint64
		for i, n := range c.coordinators {
			if slices.Contains(not, i) || !n.running() {
				continue
			}
			if s := c.CoordinatorStatus(i); s.GetLeader() && s.GetTerm() > term {
				leader, term = i, s.GetTerm()
			}
		}
		return leader >= 0
	})
	return leader
}

// CutCoordinator cuts a coordinator off from the other coordinators, and with all also from the nodes. The operator's desk still reaches it.
func (c *Cluster) CutCoordinator(i int, all bool) {
	var links []link
	for _, other := range c.coordinators {
		if other.number != i {
			links = append(links, linkOf(c.coordinators[i].name, other.name))
		}
	}
	for _, n := range c.nodes {
		if all {
			links = append(links, linkOf(c.coordinators[i].name, n.name))
		}
	}
	c.network.set(true, links...)
}

// operator is a person at a desk, with a certificate.
type operator struct {
	c    *Cluster
	host *host
	id   *certs.Identity
	asks *client.Conn // nil: not connected yet
}

func newOperator(c *Cluster) *operator {
	id, err := certs.LoadDir(c.path("tls"))
	if err != nil {
		c.t.Fatal(err)
	}
	return &operator{c: c, host: c.network.attach("desk"), id: id}
}

func (o *operator) conn(addresses ...string) *client.Conn {
	return client.New(client.Config{
		Addresses:   addresses,
		Credentials: credentials.NewTLS(o.id.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator})),
		Dial:        o.host.Dial,
	})
}

func (o *operator) hangUp() {
	if o.asks != nil {
		o.asks.Close()
	}
	for _, n := range o.c.coordinators {
		n.desk.Close()
	}
}

// patience is how long the desk waits for an answer.
const patience = 10 * time.Second

// ask makes a call, and repeats it while no coordinator can answer. Any other error fails the test.
func (o *operator) ask(call func(context.Context, api.OperatorClient) error) {
	o.c.t.Helper()
	if o.asks == nil {
		o.asks = o.conn(o.c.coordinatorAddresses()...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := call(ctx, api.NewOperatorClient(o.asks))
		if err == nil {
			return
		}
		if status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			o.c.t.Fatal(err)
		}
		time.Sleep(step)
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

// State is a node's state as the coordinator shows it.
func (c *Cluster) State(i int) string { c.t.Helper(); return c.Show(i).State }

// Decommission gives the operator's order to leave; timeout 0: the coordinator's default.
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

// Deactivate deactivates a node, or with undo reactivates it.
func (c *Cluster) Deactivate(undo bool, i int) {
	c.t.Helper()
	c.operator.ask(func(ctx context.Context, o api.OperatorClient) error {
		_, err := o.Deactivate(ctx, &api.DeactivateRequest{Nodes: []string{c.Name(i)}, Undo: undo})
		return err
	})
}

// ScheduleMaintenance adds nodes' machines to the maintenance schedule, in a window from at on. TakeMachine takes one of them DOWN, or UP
// again.
func (c *Cluster) ScheduleMaintenance(at time.Time, nodes ...int) {
	c.t.Helper()
	w := &api.MaintenanceWindow{StartNanoseconds: at.UnixNano()}
	for _, i := range nodes {
		w.Machines = append(w.Machines, &api.Machine{Hostname: c.Name(i)})
	}
	c.operator.ask(func(ctx context.Context, o api.OperatorClient) error {
		_, err := o.ScheduleMaintenance(ctx, &api.ScheduleMaintenanceRequest{Add: true, Windows: []*api.MaintenanceWindow{w}})
		return err
	})
}

func (c *Cluster) TakeMachine(up bool, i int) {
	c.t.Helper()
	c.operator.ask(func(ctx context.Context, o api.OperatorClient) error {
		_, err := o.ChangeMachines(ctx, &api.ChangeMachinesRequest{Up: up, Machines: []*api.Machine{{Hostname: c.Name(i)}}})
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

// Desk is a new connection of the operator's. The caller closes it.
func (c *Cluster) Desk() *client.Conn { return c.operator.conn(c.coordinatorAddresses()...) }

// Events are the events of the log about a node, in order, without soft events.
func (c *Cluster) Events(i int) []*api.Event {
	c.t.Helper()
	return slices.DeleteFunc(c.askEvents(&api.EventsRequest{Node: c.Name(i)}), func(e *api.Event) bool { return e.Soft > 0 })
}

// AllEvents are all events, in order.
func (c *Cluster) AllEvents() []*api.Event { c.t.Helper(); return c.askEvents(&api.EventsRequest{}) }

func (c *Cluster) askEvents(r *api.EventsRequest) (events []*api.Event) {
	c.t.Helper()
	c.operator.ask(func(ctx context.Context, o api.OperatorClient) error {
		events = nil
		stream, err := o.Events(ctx, r)
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
			events = append(events, e)
		}
	})
	return events
}

// Manifest is the manifest of a node's drain as the coordinator has it, with the entries by block.
func (c *Cluster) Manifest(i int) (summary *api.ManifestSummary, entries map[string]*api.ManifestEntry) {
	c.t.Helper()
	c.operator.ask(func(ctx context.Context, o api.OperatorClient) error {
		entries = map[string]*api.ManifestEntry{}
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
