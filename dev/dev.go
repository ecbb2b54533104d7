// Package dev runs a whole fleet in one process, on loopback and with real files: a coordinator, agents with
// certificates and configuration files of their own, and a metadata service that pretends to be EC2's. The code is the
// daemons'; only the clock of the cloud is pretend.
//
// It is for trying Lifeboat and for showing it. It prints nothing: the caller decides what a person sees.
package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator"
	"github.com/lifeboat/lifeboat/dev/corpus"
	"github.com/lifeboat/lifeboat/preemption/ec2fake"
)

// Config says how large the fleet and its files are.
type Config struct {
	Dir     string // directory for everything; it must be empty or not exist
	Nodes   int    // agents, at least 1
	Blocks  int    // blocks to make on the first node, in both layouts together
	Bytes   int64  // of all blocks together
	Rate    int64  // bytes a second that the first node may send; 0: no cap
	Version string // shown in the tables of nodes
}

// Fleet is a running coordinator and its agents. The first agent is the one that will have to go.
type Fleet struct {
	Coordinator string // address of the coordinator, for the operator's verbs
	TLSDir      string // the operator's certificate is here
	Pages       string // the coordinator's HTTP address
	Corpus      []corpus.Corpus

	cfg      Config
	cloud    *ec2fake.Service
	nodes    []*member
	running  *errgroup.Group
	stop     context.CancelFunc
	deadline time.Time
}

// member is one agent of the fleet.
type member struct {
	name   string
	dir    string
	socket string
	stop   context.CancelFunc
	ended  chan struct{}
	conn   *grpc.ClientConn
}

// The stores that every node has.
const (
	filesStore = "cache"
	sparkStore = "spark"
	seed       = 7411 // the same files each time
)

// Start makes the files and starts all daemons. Close must be called, also after an error.
func Start(ctx context.Context, cfg Config) (*Fleet, error) {
	ctx, stop := context.WithCancel(ctx)
	running, ctx := errgroup.WithContext(ctx)
	f := &Fleet{cfg: cfg, TLSDir: filepath.Join(cfg.Dir, "tls"), running: running, stop: stop}
	if err := f.start(ctx); err != nil {
		return f, fmt.Errorf("start the fleet in %s: %w", cfg.Dir, err)
	}
	return f, nil
}

func (f *Fleet) start(ctx context.Context) error {
	if err := os.MkdirAll(f.cfg.Dir, 0o755); err != nil {
		return err
	}
	if err := certs.InitCA(f.TLSDir); err != nil {
		return err
	}
	if err := f.startCoordinator(ctx); err != nil {
		return fmt.Errorf("coordinator: %w", err)
	}
	endpoint, err := f.startCloud(ctx)
	if err != nil {
		return fmt.Errorf("metadata service: %w", err)
	}
	for i := range f.cfg.Nodes {
		if err := f.startAgent(ctx, i, endpoint); err != nil {
			return fmt.Errorf("node-%d: %w", i+1, err)
		}
	}
	return f.waitForPeers(ctx)
}

// Close stops all daemons and waits for them. It returns the first error with which one ended by itself.
func (f *Fleet) Close() error {
	f.stop()
	err := f.running.Wait()
	for _, m := range f.nodes {
		if m.conn != nil {
			m.conn.Close()
		}
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// logTo writes a daemon's log beside its files, so that the screen stays free.
func logTo(path string) (*slog.Logger, *os.File, error) {
	w, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, err
	}
	return slog.New(slog.NewTextHandler(w, nil)), w, nil
}

func (f *Fleet) startCoordinator(ctx context.Context) error {
	if _, _, err := certs.Issue(f.TLSDir, certs.Name{Role: certs.RoleCoordinator, Name: "coordinator"}, []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"}); err != nil {
		return err
	}
	calls, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	pages, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, calls.Close())
	}
	f.Coordinator, f.Pages = calls.Addr().String(), pages.Addr().String()
	file := filepath.Join(f.cfg.Dir, "coordinator.yaml")
	text := fmt.Sprintf("name: coordinator\nlisten: {grpc: %q, http: %q}\ndata_dir: %s\ntls: {ca: tls/ca.pem, cert: tls/coordinator.pem, key: tls/coordinator.key}\n",
		f.Coordinator, f.Pages, filepath.Join(f.cfg.Dir, "coordinator"))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	cfg, err := coordinator.Load(file)
	if err != nil {
		return err
	}
	id, err := cfg.Identity()
	if err != nil {
		return err
	}
	log, w, err := logTo(filepath.Join(f.cfg.Dir, "coordinator.log"))
	if err != nil {
		return err
	}
	c, err := coordinator.New(cfg, coordinator.Deps{Log: log, Identity: id, GRPC: calls, HTTP: pages, Version: f.cfg.Version})
	if err != nil {
		return err
	}
	f.running.Go(func() error {
		defer w.Close()
		return c.Run(ctx)
	})
	return nil
}

// startCloud serves the first node's metadata.
func (f *Fleet) startCloud(ctx context.Context) (endpoint string, err error) {
	f.cloud = ec2fake.New(ec2fake.Instance{ID: "i-0123456789abcdef0", Type: "r5.4xlarge", Zone: "us-east-1a", LifeCycle: "spot"})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := &http.Server{Handler: f.cloud, ReadHeaderTimeout: time.Second}
	f.running.Go(func() error {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	f.running.Go(func() error {
		<-ctx.Done()
		return s.Close()
	})
	return "http://" + l.Addr().String(), nil
}

func (f *Fleet) startAgent(ctx context.Context, i int, endpoint string) error {
	m := &member{name: fmt.Sprintf("node-%d", i+1), ended: make(chan struct{})}
	m.dir = filepath.Join(f.cfg.Dir, m.name)
	m.socket = filepath.Join(m.dir, "agent.sock")
	if _, _, err := certs.Issue(f.TLSDir, certs.Name{Role: certs.RoleNode, Name: m.name}, nil, nil); err != nil {
		return err
	}
	cache, local := filepath.Join(m.dir, "cache"), []string{filepath.Join(m.dir, "spark-0"), filepath.Join(m.dir, "spark-1")}
	if i == 0 {
		if err := f.fill(cache, local); err != nil {
			return err
		}
	}
	file := filepath.Join(f.cfg.Dir, m.name+".yaml")
	if err := os.WriteFile(file, []byte(f.agentFile(i, m, endpoint, cache, local)), 0o644); err != nil {
		return err
	}
	cfg, err := agent.Load(file)
	if err != nil {
		return err
	}
	id, err := cfg.Identity()
	if err != nil {
		return err
	}
	log, w, err := logTo(filepath.Join(f.cfg.Dir, m.name+".log"))
	if err != nil {
		return err
	}
	ctx, m.stop = context.WithCancel(ctx)
	a, err := agent.New(ctx, cfg, agent.Deps{Log: log, Identity: id, Version: f.cfg.Version})
	if err != nil {
		return errors.Join(err, w.Close())
	}
	f.nodes = append(f.nodes, m)
	f.running.Go(func() error {
		defer close(m.ended)
		defer w.Close()
		return a.Run(ctx)
	})
	m.conn, err = grpc.NewClient("passthrough:///"+m.name, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", m.socket)
		}))
	return err
}

func (f *Fleet) agentFile(i int, m *member, endpoint, cache string, local []string) string {
	var b strings.Builder
	w := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	zone := string(rune('a' + i%3))
	w("node: {name: %s, zone: us-east-1%s, pool: r5.4xlarge-spot-1%s}", m.name, zone, zone)
	w("coordinators: [%q]", f.Coordinator)
	w("listen: {peer: \"127.0.0.1:0\", http: \"127.0.0.1:0\", socket: %s}", m.socket)
	w("data_dir: %s", filepath.Join(m.dir, "data"))
	w("tls: {ca: tls/ca.pem, cert: tls/%[1]s.pem, key: tls/%[1]s.key}", m.name)
	if i == 0 {
		w("cloud: {provider: ec2, endpoint: %s}", endpoint)
		if f.cfg.Rate > 0 {
			w("drain: {max_bytes_per_second: %d}", f.cfg.Rate)
		}
	} else {
		w("cloud: {provider: none}")
	}
	w("stores:")
	w("  - {name: %s, kind: cache, layout: files, paths: [%s]}", filesStore, cache)
	w("  - {name: %s, kind: shuffle, layout: spark, paths: [%s]}", sparkStore, strings.Join(local, ", "))
	w("receive: {reserve_bytes: 64MiB}")
	return b.String()
}

// fill makes the files of the first node: half of the blocks in the layout files, the rest in the layout spark.
func (f *Fleet) fill(cache string, local []string) error {
	files, err := corpus.Files(cache, f.cfg.Blocks/2, f.cfg.Bytes/2, seed)
	if err != nil {
		return err
	}
	spark, err := corpus.Spark(local, (f.cfg.Blocks-f.cfg.Blocks/2)*4/5, f.cfg.Bytes-f.cfg.Bytes/2, 16, seed)
	if err != nil {
		return err
	}
	f.Corpus = []corpus.Corpus{files, spark}
	return nil
}

// waitForPeers waits until the first node knows all other nodes, or as many as it is told: from then on it can drain.
func (f *Fleet) waitForPeers(ctx context.Context) error {
	const patience = 30 * time.Second
	want := min(f.cfg.Nodes-1, coordinator.PeersTold)
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := f.Status(within)
		if err == nil && len(s.Peers) == want && s.LastHeartbeat != nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-within.Done():
			if ctx.Err() != nil { // Start was told to end: the first node is not to blame
				return context.Cause(ctx)
			}
			return fmt.Errorf("node-1 does not know its peers after %s: see %s (%v)", patience, filepath.Join(f.cfg.Dir, "node-1.log"), err)
		}
	}
}

// Interrupt makes the pretend cloud reclaim the first node.
func (f *Fleet) Interrupt(lead time.Duration) {
	f.deadline = time.Now().Add(lead)
	f.cloud.Interrupt("terminate", f.deadline)
}

// Status asks the first node on its socket.
func (f *Fleet) Status(ctx context.Context) (*api.AgentStatus, error) {
	return api.NewLocalClient(f.nodes[0].conn).GetStatus(ctx, &api.GetAgentStatusRequest{})
}

// Take ends the first node, as the cloud would: it is gone when Take returns.
func (f *Fleet) Take() {
	f.nodes[0].stop()
	<-f.nodes[0].ended
}
