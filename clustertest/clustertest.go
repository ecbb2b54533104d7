// Package clustertest runs whole clusters in one testing/synctest bubble: coordinators, agents and each node's metadata
// service. They are the code that runs in production, with its TLS, raft and files, joined by a network in memory that can
// be cut. Two virtual minutes of a notice pass in less than a second.
//
// A test says what happens to which node, and what a user may then rely on:
//
//	synctest.Test(t, func(t *testing.T) {
//		c := clustertest.New(t, clustertest.Config{Agents: 3})
//		c.Write(0, "cache", "part-0", 1<<20)
//		c.Notice(0, 120*time.Second)
//		c.WaitDrained(0)
//		c.Verify(1)
//	})
//
// Nothing inside of a process is faked. Outside, the kernel's part is: there are no real sockets, power cuts and hanging disks (the test
// sets the health of disks with SetDisk). Virtual time is not determinism: assert what must hold in every order.
//
// Call the methods on the test's own goroutine, in the bubble; they fail the test themselves. Everything is stopped
// when the test ends, and a goroutine that still runs then fails it.
package clustertest

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator"
)

// Config is what a test wants of its cluster.
type Config struct {
	Agents       int // 0: three
	Coordinators int // 0: one
	// BytesPerSecond slows drains down, so that the test can act in the middle of one. 0: no cap.
	BytesPerSecond int64
	// Agent and Coordinator change a process's configuration before each of its starts.
	Agent       func(i int, cfg *agent.Config)
	Coordinator func(cfg *coordinator.Config)
	Log         io.Writer // gets all processes' logs, as the test's output does; nil: only that does
}

// Cluster is coordinators and agents. Nodes have numbers, from 0.
type Cluster struct {
	t       *testing.T
	cfg     Config
	dir     string
	log     *slog.Logger
	network *network

	nodes        []*node
	coordinators []*coordinatorNode
	operator     *operator
	written      []*Block
}

// Coordinator is the name of the coordinator's machine, or of the first one's of several.
const Coordinator = "coordinator"

// New starts a cluster and returns once every agent is registered and knows all others as its peers.
func New(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	cfg.Agents = cmp.Or(cfg.Agents, 3)
	c := &Cluster{t: t, cfg: cfg, dir: t.TempDir(), network: newNetwork()}
	c.log = slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), cmp.Or(cfg.Log, io.Discard)), nil))
	if err := certs.InitCA(c.path("tls")); err != nil {
		t.Fatal(err)
	}
	c.operator = newOperator(c)
	for i := range max(cfg.Coordinators, 1) {
		c.coordinators = append(c.coordinators, newCoordinator(c, i))
	}
	for i := range cfg.Agents {
		c.nodes = append(c.nodes, newNode(c, i))
	}
	t.Cleanup(c.stop)
	for _, n := range c.coordinators {
		n.start()
	}
	for _, n := range c.nodes {
		n.start()
	}
	c.Until("every agent knows its peers", 15*time.Second, func() bool {
		for i := range c.nodes {
			if len(c.Peers(i)) != cfg.Agents-1 {
				return false
			}
		}
		return len(c.Nodes()) == cfg.Agents
	})
	return c
}

func (c *Cluster) stop() {
	for _, n := range c.nodes {
		n.shutDown()
	}
	c.operator.hangUp()
	for _, n := range c.coordinators {
		n.shutDown()
	}
}

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

// issue makes a certificate.
func (c *Cluster) issue(n certs.Name) (certFile, keyFile string) {
	c.t.Helper()
	certFile, keyFile, err := certs.Issue(c.path("tls"), n, nil, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return certFile, keyFile
}

// Sleep lets virtual time pass, and all goroutines do what is due by then.
func (c *Cluster) Sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// step is how often Until looks, and so how late it may see that its condition holds; in a long wait it is a hundredth of that.
const step = 100 * time.Millisecond

// Until lets time pass until a condition holds, and fails the test if that takes longer than the limit. It returns how long
// it took.
func (c *Cluster) Until(what string, limit time.Duration, holds func() bool) time.Duration {
	c.t.Helper()
	began := time.Now()
	for synctest.Wait(); !holds(); c.Sleep(max(step, time.Since(began)/100)) {
		if time.Since(began) >= limit {
			c.t.Fatalf("after %s: %s: not so", limit, what)
		}
	}
	return time.Since(began)
}

// Name is a node's name.
func (c *Cluster) Name(i int) string { return c.nodes[i].name }

// Partition cuts a node off from other machines, or from all if none are named. The node still reaches its metadata service.
func (c *Cluster) Partition(i int, from ...string) {
	if len(from) == 0 {
		for _, n := range c.coordinators {
			from = append(from, n.name)
		}
		for _, n := range c.nodes {
			from = append(from, n.name)
		}
	}
	var links []link
	for _, other := range from {
		if other != c.Name(i) {
			links = append(links, linkOf(c.Name(i), other))
		}
	}
	c.network.set(true, links...)
}

// Heal heals all cut links.
func (c *Cluster) Heal() {
	var links []link
	for l := range c.network.cut {
		links = append(links, l)
	}
	c.network.set(false, links...)
}

// Sent is how many bytes a node has sent to another, TLS and all.
func (c *Cluster) Sent(from, to int) int64 { return c.network.bytes(c.Name(from), c.Name(to)) }

// process is a program on a machine, with its network and its disk.
type process struct {
	c    *Cluster
	name string
	dir  string

	host *host
	end  func()
	over chan error
}

// launch runs a program and returns once it serves. It fails the test if the program ends before that.
func (p *process) launch(run func(serves func()) error) {
	p.c.t.Helper()
	serves := make(chan struct{})
	p.over = make(chan error, 1)
	go func() { p.over <- run(func() { close(serves) }) }()
	select {
	case <-serves:
	case err := <-p.over:
		p.over = nil
		p.c.t.Fatalf("%s ended at its start: %v", p.name, err)
	}
}

func (p *process) running() bool { return p.over != nil }

// shutDown ends the process as SIGTERM does.
func (p *process) shutDown() {
	if !p.running() {
		return
	}
	p.end()
	if err := <-p.over; err != nil {
		p.c.t.Errorf("%s: got %v at its end, want nil", p.name, err)
	}
	p.host.crash() // the kernel closes what the process left open
	p.over = nil
}

// kill ends the process as SIGKILL does. Goroutines cannot be killed, so its network is cut off first, and what the goroutines do to
// its disk until they end is undone.
func (p *process) kill() {
	p.c.t.Helper()
	if !p.running() {
		p.c.t.Fatalf("kill %s: it is not running", p.name)
	}
	synctest.Wait()
	kept := p.dir + ".kept"
	if err := copyTree(kept, p.dir); err != nil {
		p.c.t.Fatal(err)
	}
	p.host.crash()
	p.end()
	if err := <-p.over; err != nil {
		p.c.log.Info("killed", "at", p.name, "err", err)
	}
	p.over = nil
	if err := os.RemoveAll(p.dir); err != nil {
		p.c.t.Fatal(err)
	}
	if err := os.Rename(kept, p.dir); err != nil {
		p.c.t.Fatal(err)
	}
}

func nodeName(i int) string { return fmt.Sprintf("host-%c", 'a'+i) }
