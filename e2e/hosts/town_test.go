package hosts_test

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/dev/corpus"
)

// A town's pace: heartbeats come every pace, and a silent node is LOST after lease. Both are below their defaults, so
// that a story that outlasts a lease is short; lease is long compared with how much two busy processors delay a
// heartbeat.
const (
	pace  = 200 * time.Millisecond
	lease = 10 * time.Second
)

// town is three coordinators, agents, and an operator's machine.
type town struct {
	t            *testing.T
	w            *network
	dir, tls     string
	coordinators []*daemon
	nodes        []*node
	operator     *machine
}

// node is a machine with an agent, and the blocks in its store.
type node struct {
	*daemon
	f      *town
	host   string
	dir    string
	socket string
	blocks map[string]string // SHA-256 by id
}

// newField makes what a town needs: a network, an authority, and the operator's machine.
func newField(t *testing.T) *town {
	t.Helper()
	story(t)
	lifeboat(t)
	w := newNetwork(t)
	f := &town{t: t, w: w, dir: t.TempDir(), operator: w.machine("op")}
	f.tls = filepath.Join(f.dir, "tls")
	f.operator.run(nil, "tls", "init", "--dir", f.tls).exits(0)
	return f
}

// newTown starts three coordinators and that many agents: host-a, host-b, ...
func newTown(t *testing.T, agents int, extra ...string) *town {
	t.Helper()
	f := newField(t)
	var peers []string
	for i := range 3 {
		name := fmt.Sprintf("c%d", i+1)
		f.operator.run(nil, "tls", "issue", "--dir", f.tls, "--coordinator", name).exits(0)
		m := f.w.machine(name)
		peers = append(peers, fmt.Sprintf("{name: %s, address: %q}", name, m.ip+":7411"))
		f.coordinators = append(f.coordinators, f.daemon(m, "coordinator"))
	}
	for _, c := range f.coordinators {
		f.write(c.on.name+".yaml",
			"name: "+c.on.name,
			fmt.Sprintf("listen: {grpc: %q, http: %q}", c.on.ip+":7411", c.on.ip+":7410"),
			"data_dir: "+filepath.Join(f.dir, c.on.name),
			fmt.Sprintf("tls: {ca: tls/ca.pem, cert: tls/%[1]s.pem, key: tls/%[1]s.key}", c.on.name),
			"peers: ["+strings.Join(peers, ", ")+"]",
			fmt.Sprintf("heartbeat: %s\nlease: %s", pace, lease))
		c.start()
	}
	for i := range agents {
		f.agent(fmt.Sprintf("host-%c", 'a'+i), extra...)
	}
	return f
}

func (f *town) daemon(m *machine, kind string) *daemon {
	d := &daemon{t: f.t, on: m, log: filepath.Join(f.dir, m.name+".log"), args: []string{kind, "--config", filepath.Join(f.dir, m.name+".yaml")}}
	f.t.Cleanup(d.end)
	return d
}

func (f *town) write(name string, lines ...string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// addresses of all coordinators.
func (f *town) addresses() (all []string) {
	for _, c := range f.coordinators {
		all = append(all, c.on.ip+":7411")
	}
	return all
}

func (f *town) agent(host string, extra ...string) *node {
	f.t.Helper()
	f.operator.run(nil, "tls", "issue", "--dir", f.tls, "--node", host).exits(0)
	d := f.daemon(f.w.machine(host), "agent")
	// The socket is not in the story's directory: with the story's name its path could exceed 107 bytes.
	n := &node{f: f, host: host, dir: filepath.Join(f.dir, host), daemon: d, socket: filepath.Join(inside, d.on.ns+".sock"), blocks: map[string]string{}}
	f.write(host+".yaml", append([]string{
		fmt.Sprintf("node: {name: %s, zone: zone-%s, pool: pool-%s}", host, host, host),
		fmt.Sprintf("coordinators: [%s]", strings.Join(f.addresses(), ", ")),
		fmt.Sprintf("listen: {peer: %q, socket: %s}", n.on.ip+":7412", n.socket),
		"data_dir: " + filepath.Join(n.dir, "data"),
		fmt.Sprintf("tls: {ca: tls/ca.pem, cert: tls/%[1]s.pem, key: tls/%[1]s.key}", host),
		"cloud: {provider: none}",
		"receive: {reserve_bytes: 16MiB}",
		fmt.Sprintf("stores: [{name: cache, kind: cache, layout: files, paths: [%s]}]", filepath.Join(n.dir, "cache")),
	}, extra...)...)
	f.nodes = append(f.nodes, n)
	n.start()
	return n
}

// fill makes files in the node's cache, below a directory with the node's name: ids must differ from those of other
// nodes' blocks.
func (n *node) fill(files int, bytes int64) {
	n.f.t.Helper()
	c, err := corpus.Files(filepath.Join(n.dir, "cache", n.host), files, bytes, uint64(n.host[len(n.host)-1]))
	if err != nil {
		n.f.t.Fatal(err)
	}
	for _, m := range c.Files {
		n.blocks["cache/-/"+n.host+"/"+m.Name] = hex.EncodeToString(m.SHA256[:])
	}
}

// settled waits until all nodes are ACTIVE, and know each other.
func (f *town) settled() {
	f.t.Helper()
	for _, n := range f.nodes {
		f.until(n.is("ACTIVE"))
		f.until(n.knows(len(f.nodes) - 1))
	}
}

// knows returns nil once the agent knows that many peers.
func (n *node) knows(peers int) func() error {
	return func() error {
		if got := len(n.status().Peers); got != peers {
			return fmt.Errorf("%s knows %d peers, want %d", n.host, got, peers)
		}
		return nil
	}
}

// until calls want until it returns nil, and fails the story at once if a daemon has ended by itself.
func (f *town) until(want func() error) {
	f.t.Helper()
	until(f.t, func() error {
		for _, c := range f.coordinators {
			if c.fell() {
				f.t.Fatalf("%s ended by itself", c.on.name)
			}
		}
		for _, n := range f.nodes {
			if n.fell() {
				f.t.Fatalf("%s ended by itself", n.host)
			}
		}
		return want()
	})
}

// verb runs lifeboat as the operator would, with the addresses of all coordinators.
func (f *town) verb(args ...string) said {
	f.t.Helper()
	return f.operator.run(f.env(f.addresses()...), args...)
}

func (f *town) env(coordinators ...string) []string {
	return []string{"LIFEBOAT_COORDINATOR=" + strings.Join(coordinators, ","), "LIFEBOAT_TLS_DIR=" + f.tls, "LIFEBOAT_SOCKET=" + filepath.Join(inside, "none")}
}

// verb runs lifeboat as root would on the node.
func (n *node) verb(args ...string) said {
	n.f.t.Helper()
	return n.on.run([]string{"LIFEBOAT_SOCKET=" + n.socket}, args...)
}

// leader waits until a coordinator leads and shows the members, and returns it.
func (f *town) leader() *daemon {
	f.t.Helper()
	var leads *daemon
	f.until(func() error {
		said := f.verb("raft", "members", "-o", "json")
		if said.code != 0 {
			return fmt.Errorf("%s", said.stderr)
		}
		for _, m := range decode[[]memberView](said) {
			for _, c := range f.coordinators {
				if m.Leader && c.on.name == m.Name {
					leads = c
					return nil
				}
			}
		}
		return fmt.Errorf("nobody leads: %s", said.stdout)
	})
	return leads
}

// follows returns nil once the leader reaches that coordinator, and it does not lead.
func (f *town) follows(c *daemon) error {
	s := f.verb("raft", "members", "-o", "json")
	if s.code != 0 {
		return fmt.Errorf("%s", s.stderr)
	}
	for _, m := range decode[[]memberView](s) {
		if m.Name == c.on.name && !m.Leader && m.Reached {
			return nil
		}
	}
	return fmt.Errorf("%s does not follow: %s", c.on.name, s.stdout)
}

// others are the machines of all coordinators but one.
func (f *town) others(not *daemon) (all []*machine) {
	for _, c := range f.coordinators {
		if c != not {
			all = append(all, c.on)
		}
	}
	return all
}

// agents are the machines of all nodes.
func (f *town) agents() (all []*machine) {
	for _, n := range f.nodes {
		all = append(all, n.on)
	}
	return all
}
