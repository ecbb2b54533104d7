package e2e_test

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/dev/corpus"
)

// fleet is one coordinator and its agents, each a process.
type fleet struct {
	t     *testing.T
	dir   string // holds everything but the sockets
	socks string // a short path: a socket's path may have 107 bytes
	tls   string

	coordinator *daemon
	grpc, http  string
	nodes       []*node
}

// node is an agent's process and what its stores were filled with.
type node struct {
	*daemon
	f                  *fleet
	host               string
	dir                string
	socket, peer, http string
	room               bool    // it may take blocks
	blocks             []block // all blocks that its stores were filled with
}

// block is one file that can be read by its id.
type block struct {
	id     string
	whole  string // the id of the block that the file is carried with; equal to id for a block of one file
	path   string
	bytes  int64
	sha256 string
}

// newFleet makes the certificates and a coordinator; extra are lines for its file, as for agent.
func newFleet(t *testing.T, extra ...string) *fleet {
	t.Helper()
	story(t)
	socks, err := os.MkdirTemp("", "lb")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(socks, 0o755); err != nil { // tests with other users need the sockets in it
		t.Fatal(err)
	}
	f := &fleet{t: t, dir: t.TempDir(), socks: socks, grpc: freeAddress(t), http: freeAddress(t)}
	f.tls = filepath.Join(f.dir, "tls")
	run(t, nil, nil, binary, "tls", "init", "--dir", f.tls).exits(0)
	run(t, nil, nil, binary, "tls", "issue", "--dir", f.tls, "--coordinator", "c1", "--ip", "127.0.0.1").exits(0)
	file := f.write("coordinator.yaml", instead([]string{
		"name: c1",
		fmt.Sprintf("listen: {grpc: %q, http: %q}", f.grpc, f.http),
		"data_dir: " + filepath.Join(f.dir, "coordinator"),
		"tls: {ca: tls/ca.pem, cert: tls/c1.pem, key: tls/c1.key}",
		"heartbeat: 200ms",
	}, extra...)...)
	f.coordinator = &daemon{t: t, name: "coordinator", args: []string{"coordinator", "--config", file}, log: filepath.Join(f.dir, "coordinator.log")}
	t.Cleanup(f.end)
	return f
}

// end kills every process and shows their logs if the test failed.
func (f *fleet) end() {
	all := []*daemon{f.coordinator}
	for _, n := range f.nodes {
		all = append(all, n.daemon)
	}
	for _, d := range all {
		d.kill()
		d.check()
	}
	if f.t.Failed() {
		for _, d := range all {
			d.dump()
		}
	}
	if err := os.RemoveAll(f.socks); err != nil {
		f.t.Error(err)
	}
}

func (f *fleet) write(name string, lines ...string) (path string) {
	f.t.Helper()
	path = filepath.Join(f.dir, name)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// agent adds a node. extra are lines for its file; each replaces the usual line with the same key.
func (f *fleet) agent(host string, extra ...string) *node {
	f.t.Helper()
	run(f.t, nil, nil, binary, "tls", "issue", "--dir", f.tls, "--node", host).exits(0)
	n := &node{f: f, host: host, dir: filepath.Join(f.dir, host), socket: filepath.Join(f.socks, host), peer: freeAddress(f.t), http: freeAddress(f.t)}
	file := f.write(host+".yaml", n.config(extra...)...)
	n.daemon = &daemon{t: f.t, name: host, args: []string{"agent", "--config", file}, log: filepath.Join(f.dir, host+".log")}
	n.room = !slices.Contains(extra, noRoom)
	f.nodes = append(f.nodes, n)
	return n
}

// noRoom keeps a node from taking blocks: no disk has that much to spare.
const noRoom = "receive: {reserve_bytes: 1000TiB}"

// seed is another number for each node, so that no two nodes have the same files.
func (n *node) seed() uint64 {
	h := fnv.New64a()
	h.Write([]byte(n.host))
	return h.Sum64()
}

func (n *node) config(extra ...string) []string {
	lines := []string{
		fmt.Sprintf("node: {name: %s, zone: zone-%s, pool: pool-%s}", n.host, n.host, n.host),
		fmt.Sprintf("coordinators: [%q]", n.f.grpc),
		fmt.Sprintf("listen: {peer: %q, http: %q, socket: %s}", n.peer, n.http, n.socket),
		"data_dir: " + n.data(),
		fmt.Sprintf("tls: {ca: tls/ca.pem, cert: tls/%s.pem, key: tls/%s.key}", n.host, n.host),
		"cloud: {provider: none}",
		"receive: {reserve_bytes: 16MiB}",
		fmt.Sprintf("stores: [{name: cache, kind: cache, layout: files, paths: [%s]}, {name: spark, kind: shuffle, layout: spark, paths: [%s, %s]}]",
			n.cache(), n.spark()[0], n.spark()[1]),
	}
	return instead(lines, extra...)
}

// instead replaces the lines of YAML that have the same key as an extra line.
func instead(lines []string, extra ...string) []string {
	for _, e := range extra {
		key, _, _ := strings.Cut(e, ":")
		lines = append(slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, key+":") }), e)
	}
	return lines
}

func (n *node) data() string  { return filepath.Join(n.dir, "data") }
func (n *node) cache() string { return filepath.Join(n.dir, "cache") }
func (n *node) spark() []string {
	return []string{filepath.Join(n.dir, "spark0"), filepath.Join(n.dir, "spark1")}
}

// fill makes files in the node's cache, below a directory with the node's name: else different blocks of two nodes would
// have the same id.
func (n *node) fill(files int, bytes int64) {
	n.f.t.Helper()
	c, err := corpus.Files(filepath.Join(n.cache(), n.host), files, bytes, n.seed())
	if err != nil {
		n.f.t.Fatal(err)
	}
	for _, m := range c.Files {
		id := "cache/-/" + n.host + "/" + m.Name
		n.blocks = append(n.blocks, block{id, id, filepath.Join(n.cache(), n.host, m.Name), m.Bytes, hex.EncodeToString(m.SHA256[:])})
	}
}

// shuffle makes map outputs and cached partitions in the node's Spark directories.
func (n *node) shuffle(maps int, bytes int64) {
	n.f.t.Helper()
	c, err := corpus.Spark(n.spark(), maps, bytes, 8, n.seed())
	if err != nil {
		n.f.t.Fatal(err)
	}
	for _, m := range c.Files {
		n.blocks = append(n.blocks, block{string(m.ID("spark")), string(m.BlockID("spark")), "", m.Bytes, hex.EncodeToString(m.SHA256[:])})
	}
}

// wholes are the ids of the blocks that a drain of this node carries.
func (n *node) wholes() map[string]bool {
	ids := map[string]bool{}
	for _, b := range n.blocks {
		ids[b.whole] = true
	}
	return ids
}

// up starts every process and waits until the agents know each other.
func (f *fleet) up() {
	f.t.Helper()
	f.start()
	for _, n := range f.nodes {
		want := 0
		for _, p := range f.nodes {
			if p != n && p.room {
				want++
			}
		}
		f.until(n.knows(want))
	}
}

// knows returns nil once the agent knows that many peers that may take its blocks.
func (n *node) knows(peers int) func() error {
	return func() error {
		if got := len(n.status().Peers); got != peers {
			return fmt.Errorf("%s knows %d peers, want %d", n.host, got, peers)
		}
		return nil
	}
}

// indexed returns nil once the agent has indexed its stores of plain files and found that many blocks.
func (n *node) indexed(blocks int) func() error {
	return func() error {
		if got := n.status().Index.Blocks; got != blocks {
			return fmt.Errorf("%s has an index of %d blocks, want %d", n.host, got, blocks)
		}
		return nil
	}
}

// start starts every process and waits until all nodes are ACTIVE.
func (f *fleet) start() {
	f.t.Helper()
	f.coordinator.start()
	for _, n := range f.nodes {
		n.start()
	}
	for _, n := range f.nodes {
		f.until(n.is("ACTIVE"))
	}
}

// patience is how long a story waits for what it expects: far longer than that takes on the slowest machine. How long it
// took goes to the log, and decides nothing.
const patience = 90 * time.Second

// until calls want until it returns nil. It fails the test at once if a process has ended by itself.
func (f *fleet) until(want func() error) {
	f.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := want()
		if err == nil {
			return
		}
		if f.coordinator.fell() {
			f.t.Fatalf("the coordinator ended by itself; %v", err)
		}
		for _, n := range f.nodes {
			if n.fell() {
				f.t.Fatalf("%s ended by itself; %v", n.host, err)
			}
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("after %s: %v", patience, err)
		}
	}
}

// verb runs lifeboat as an operator would far from any node.
func (f *fleet) verb(args ...string) said {
	f.t.Helper()
	return run(f.t, nil, f.env(), binary, args...)
}

func (f *fleet) env() []string {
	return []string{"LIFEBOAT_COORDINATOR=" + f.grpc, "LIFEBOAT_TLS_DIR=" + f.tls, "LIFEBOAT_SOCKET=" + filepath.Join(f.socks, "none")}
}

// verb runs lifeboat as root would on the node: with its socket and no coordinator.
func (n *node) verb(args ...string) said {
	n.f.t.Helper()
	return run(n.f.t, nil, []string{"LIFEBOAT_SOCKET=" + n.socket}, binary, args...)
}
