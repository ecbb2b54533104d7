package clustertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Block is a block that the test wrote.
type Block struct {
	ID      string
	Node    int
	Bytes   int64             // of all members
	Members map[string][]byte // its files, by the ids under which they are read
}

// manager is the directory of the one Spark executor on each node.
const manager = "blockmgr-1"

// Write makes a block on a node's disk, as if an engine had written it an hour ago: a file in the store cache, or a map output in
// the store spark, where name is like shuffle_1_2_0. The content depends on the name.
func (c *Cluster) Write(i int, store, name string, size int) *Block {
	c.t.Helper()
	b := &Block{ID: store + "/-/" + name, Node: i, Members: map[string][]byte{}}
	data := content(name, size)
	if store == "cache" {
		c.put(filepath.Join(c.nodes[i].dir, "cache", name), data)
		b.Members[b.ID] = data
	} else {
		c.putOutput(b, manager, manager, name, data)
	}
	return c.wrote(b)
}

// WriteOf puts a map output of an application into a node's store spark.
func (c *Cluster) WriteOf(app string, i int, name string, size int) *Block {
	c.t.Helper()
	b := &Block{Node: i, Members: map[string][]byte{}}
	c.putOutput(b, app, filepath.Join(app, manager), name, content(app+name, size))
	return c.wrote(b)
}

// putOutput puts a map output below a directory of Spark's.
func (c *Cluster) putOutput(b *Block, scope, below, name string, data []byte) {
	c.t.Helper()
	prefix := "spark/" + scope + "/"
	b.ID = prefix + name
	index := binary.BigEndian.AppendUint64(make([]byte, 8), uint64(len(data)))
	for member, bytes := range map[string][]byte{name + ".data": data, name + ".index": index} {
		dirs := c.nodes[b.Node].sparkDirs()
		dir, sub := inventory.SparkPlace(member, len(dirs))
		c.put(filepath.Join(dirs[dir], below, sub, member), bytes)
		b.Members[prefix+member] = bytes
	}
}

// Written are all blocks that were ever written.
func (c *Cluster) Written() []*Block { return slices.Clone(c.written) }

func (c *Cluster) wrote(b *Block) *Block {
	for _, m := range b.Members {
		b.Bytes += int64(len(m))
	}
	c.written = append(c.written, b)
	return b
}

func content(name string, size int) []byte {
	b := make([]byte, size)
	rand.NewChaCha8(sha256.Sum256([]byte(name))).Read(b)
	return b
}

func (c *Cluster) put(path string, b []byte) {
	c.t.Helper()
	then := time.Now().Add(-time.Hour)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, b, 0o644), os.Chtimes(path, then, then)); err != nil {
		c.t.Fatal(err)
	}
}

// Dir is a node's disk: below it are data, cache, spark-0 and spark-1.
func (c *Cluster) Dir(i int) string { return c.nodes[i].dir }

// Read reads a block's member on a node, through its agent's socket. It returns the status of the answer, and the test fails if the body
// is not whole.
func (c *Cluster) Read(i int, id string) (status int, body []byte) {
	c.t.Helper()
	return c.Ask(i, http.MethodGet, id, "")
}

// Ask makes a request about a block at the socket of a node's agent, or without an id about the blocks that the body (question) names.
func (c *Cluster) Ask(i int, method, id, question string) (status int, body []byte) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://agent/blocks/"+id, strings.NewReader(question))
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := c.nodes[i].desk().blocks.RoundTrip(req)
	if err != nil {
		c.t.Fatalf("read %s on %s: %v", id, c.Name(i), err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		c.t.Fatalf("read %s on %s: %v", id, c.Name(i), err)
	}
	return resp.StatusCode, body
}

// Verify reads blocks on a node and compares every byte. If none are named it reads all that were ever written.
func (c *Cluster) Verify(through int, blocks ...*Block) {
	c.t.Helper()
	if len(blocks) == 0 {
		blocks = c.written
	}
	for _, b := range blocks {
		for id, want := range b.Members {
			if status, got := c.Read(through, id); status != http.StatusOK || !bytes.Equal(got, want) {
				c.t.Errorf("read %s on %s: got %d bytes with status %d, want %d with 200: %.200s", id, c.Name(through), len(got), status, len(want), text(got))
			}
		}
	}
}

// text is an answer's explanation, if it is one.
func text(b []byte) string {
	if bytes.ContainsFunc(b, func(r rune) bool { return r == 0xFFFD || r < ' ' && r != '\n' }) {
		return "(bytes)"
	}
	return strings.TrimSpace(string(b))
}

// VerifyEverywhere reads every block on each of the nodes, and so also on nodes that have to get it from another.
func (c *Cluster) VerifyEverywhere(nodes ...int) {
	c.t.Helper()
	for _, i := range nodes {
		c.Verify(i)
	}
}

// Status is what the node's agent says of itself on its socket.
func (c *Cluster) Status(i int) (s *api.AgentStatus) {
	c.t.Helper()
	c.local(i, func(ctx context.Context, l api.LocalClient) (err error) {
		s, err = l.GetStatus(ctx, &api.GetAgentStatusRequest{})
		return err
	})
	return s
}

// Peers names the nodes that the agent would send blocks to.
func (c *Cluster) Peers(i int) (names []string) {
	c.t.Helper()
	for _, p := range c.Status(i).Peers {
		names = append(names, p.Node)
	}
	slices.Sort(names)
	return names
}

// Moved is how many blocks and bytes the node's drain has receipts for.
func (c *Cluster) Moved(i int) (blocks, bytes int64) {
	c.t.Helper()
	d := c.Status(i).GetStatus().GetDrain()
	return d.GetBlocksMoved(), d.GetBytesMoved()
}

func (c *Cluster) local(i int, call func(context.Context, api.LocalClient) error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := call(ctx, api.NewLocalClient(c.nodes[i].desk().agent)); err != nil {
		c.t.Fatalf("%s: %v", c.Name(i), err)
	}
}
