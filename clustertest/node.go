package clustertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/preemption/ec2fake"
)

// node is a machine with an agent and a metadata service.
type node struct {
	process
	number    int
	address   string
	cert, key string
	cloud     *ec2fake.Service
	agent     *agent.Agent // nil: none runs
	asks      *desk        // nil: nobody has asked this process yet
	system    *operating
	disks     *fakeDisks
	units     *units
	boots     int           // since the first
	set       time.Duration // how far SetClock has put its wall clock forward
}

// epoch is the time at which every bubble begins (testing/synctest).
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

const metadataAddress = "169.254.169.254"

func newNode(c *Cluster, i int) *node {
	n := &node{
		process: process{c: c, name: nodeName(i)}, number: i, system: newOperating(),
		disks: newFakeDisks(), units: &units{all: map[string]*Unit{}}, address: "10.0.1." + string(rune('1'+i)),
	}
	n.dir = c.path(n.name)
	n.cert, n.key = c.issue(certs.Name{Role: certs.RoleNode, Name: n.name})
	n.cloud = ec2fake.New(ec2fake.Instance{ID: "i-" + n.name, Type: "r5.4xlarge", Zone: "us-east-1a", LifeCycle: "spot"})
	serve(c, c.network.attach(n.name, n.address), metadataAddress+":80", n.cloud)
	return n
}

// serve runs an HTTP server until the test ends.
func serve(c *Cluster, at *host, address string, handler http.Handler) {
	c.t.Helper()
	l, err := at.Listen("tcp", address)
	if err != nil {
		c.t.Fatal(err)
	}
	s := &http.Server{Handler: handler}
	over := make(chan error, 1)
	go func() { over <- s.Serve(l) }()
	c.t.Cleanup(func() {
		s.Close()
		if err := <-over; !errors.Is(err, http.ErrServerClosed) {
			c.t.Errorf("server at %s: %v", address, err)
		}
	})
}

// config is what this node's agent.yaml would say.
func (n *node) config() agent.Config {
	cfg := agent.Default()
	cfg.Node = agent.Node{Name: n.name}
	cfg.Coordinators = n.c.coordinatorAddresses()
	cfg.Listen = agent.Listen{Peer: n.address + ":7412", HTTP: "127.0.0.1:7413", Socket: filepath.Join(n.dir, "run", "agent.sock")}
	cfg.DataDir = filepath.Join(n.dir, "data")
	cfg.TLS = config.TLS{CA: n.c.path("tls", "ca.pem"), Cert: n.cert, Key: n.key}
	cfg.Cloud.Provider, cfg.Cloud.Endpoint = "ec2", "http://"+metadataAddress
	cfg.Stores = []agent.Store{
		{Name: "cache", Kind: "cache", Layout: "files", Land: "vault", Paths: []string{filepath.Join(n.dir, "cache")}},
		{Name: "spark", Kind: "shuffle", Layout: "spark", Land: "place", Paths: n.sparkDirs()},
	}
	cfg.Drain.MaxBytesPerSecond = config.Bytes(n.c.cfg.BytesPerSecond)
	cfg.Receive.ReserveBytes = 0 // the real disk is this machine's, and others may have filled it
	if n.c.cfg.Agent != nil {
		n.c.cfg.Agent(n.number, &cfg)
	}
	return cfg
}

func (n *node) sparkDirs() []string {
	return []string{filepath.Join(n.dir, "spark-0"), filepath.Join(n.dir, "spark-1")}
}

func (n *node) start() {
	n.c.t.Helper()
	if n.running() {
		n.c.t.Fatalf("start %s: it is running", n.name)
	}
	cfg := n.config()
	ctx, end := context.WithCancel(context.Background())
	n.host, n.end = n.c.network.attach(n.name), end
	id, err := cfg.Identity()
	if cfg.Join != (agent.Join{}) {
		id, err = cfg.Enter(ctx, n.host.Dial, n.c.log.With("at", n.name))
	}
	if err != nil {
		n.c.t.Fatal(err)
	}
	n.launch(func(serves func()) error {
		a, err := agent.New(ctx, cfg, agent.Deps{
			Log: n.c.log.With("at", n.name), Identity: id, Version: "test", Listen: n.host.Listen, Dial: n.host.Dial, Ready: serves,
			Clock: n.clock, Logind: n.system.logind(n), Monitor: n.disks.monitor, Units: n.units,
		})
		if err != nil {
			return err
		}
		n.agent = a
		return a.Run(ctx)
	})
}

// clock reads the bubble's clock as a machine reads its wall clock and its time since boot.
func (n *node) clock() preemption.Moment {
	return preemption.Moment{Wall: time.Now(), Boot: fmt.Sprint("boot-", n.boots), SinceBoot: time.Since(epoch) - n.set}
}

// SetClock puts a node's wall clock forward, as a time server may. In a bubble all have one wall clock, so it lets that much time pass and
// holds back the node's time since boot.
func (c *Cluster) SetClock(i int, forward time.Duration) {
	c.t.Helper()
	c.nodes[i].set += forward
	c.Sleep(forward)
}

// Reboot restarts the agent of a killed node as if the machine had booted.
func (c *Cluster) Reboot(i int) {
	c.t.Helper()
	c.nodes[i].boots++
	c.Restart(i)
}

// Simulate rehearses a notice at the node; in 0: no deadline.
func (c *Cluster) Simulate(i int, kind preemption.Kind, in time.Duration, dry bool) *api.SimulateReply {
	c.t.Helper()
	request := &api.SimulateRequest{Kind: string(kind), DryRun: dry}
	if in > 0 {
		request.In = durationpb.New(in)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := c.nodes[i].agent.Simulate(ctx, request)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// Notice has the node's metadata service show an EC2 interruption: the node will be terminated after in.
func (c *Cluster) Notice(i int, in time.Duration) {
	c.nodes[i].cloud.Interrupt("terminate", time.Now().Add(in))
}

// Rebalance has it show a rebalance recommendation.
func (c *Cluster) Rebalance(i int) { c.nodes[i].cloud.Rebalance() }

// Withdraw has it show neither any more.
func (c *Cluster) Withdraw(i int) { c.nodes[i].cloud.Withdraw() }

// Cloud is the node's metadata service.
func (c *Cluster) Cloud(i int) *ec2fake.Service { return c.nodes[i].cloud }

// Agent is the node's running agent.
func (c *Cluster) Agent(i int) *agent.Agent { return c.nodes[i].agent }

// DecommissionSelf tells the node's agent that the node goes after in; 0: no deadline is known. source is preemption.SourceManual, or
// SourceSignal for SIGPWR. It returns the incident.
func (c *Cluster) DecommissionSelf(i int, source string, in time.Duration, reason string) preemption.Incident {
	c.t.Helper()
	var deadline time.Time
	if in > 0 {
		deadline = time.Now().Add(in)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	incident, err := c.nodes[i].agent.DecommissionSelf(ctx, source, deadline, reason)
	if err != nil {
		c.t.Fatal(err)
	}
	return incident
}

// Cancel takes back what DecommissionSelf said.
func (c *Cluster) Cancel(i int, reason string) (cancelled bool, still string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return c.nodes[i].agent.Cancel(ctx, reason)
}

// Kill ends a node's agent as SIGKILL does.
func (c *Cluster) Kill(i int) { c.t.Helper(); c.nodes[i].kill() }

// Stop ends a node's agent as SIGTERM does.
func (c *Cluster) Stop(i int) { c.t.Helper(); c.nodes[i].shutDown() }

// Restart starts a node's agent that was killed or stopped.
func (c *Cluster) Restart(i int) { c.t.Helper(); c.nodes[i].start() }
