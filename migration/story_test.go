package migration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/certs"
)

// node is one machine's share of this package: stores, a vault, a receiver, a reader.
type node struct {
	name     string
	dir      string
	stores   []*Store
	vault    *Vault
	receiver *Receiver
	id       *certs.Identity
	room     int64
	refuse   string
	mangle   func(net.Conn) net.Conn // on the receiver's side of a connection

	mu     sync.Mutex
	landed []Held
}

func newNode(t *testing.T, name string, stores ...StoreConfig) *node {
	t.Helper()
	n := &node{name: name, dir: t.TempDir(), room: 1 << 40, id: certs.Dev(certs.Name{Role: certs.RoleNode, Name: name})}
	for _, c := range stores {
		for i, p := range c.Paths {
			c.Paths[i] = filepath.Join(n.dir, p)
		}
		s, err := OpenStore(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		n.stores = append(n.stores, s)
	}
	n.open(t)
	return n
}

func (n *node) open(t *testing.T) {
	t.Helper()
	v, err := OpenVault(filepath.Join(n.dir, "vault"))
	if err != nil {
		t.Fatal(err)
	}
	n.vault = v
	t.Cleanup(func() { v.Close() })
}

// receive makes a receiver: it runs once.
func (n *node) receive(t *testing.T) {
	t.Helper()
	r, err := NewReceiver(ReceiverConfig{
		Stores: n.stores, Vault: n.vault, MaxStreams: 16, Log: slog.New(slog.DiscardHandler),
		Room:  func(string) (int64, error) { return n.room, nil },
		Admit: func(string) (string, time.Duration) { return n.refuse, 0 },
		Landed: func(h []Held) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.landed = append(n.landed, h...)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.receiver = r
}

func (n *node) reader() *Reader {
	return &Reader{Stores: n.stores, Vault: n.vault, Log: slog.New(slog.DiscardHandler)}
}

// drain runs a drain of n into peers over real mutual TLS on in-memory connections.
func (n *node) drain(t *testing.T, ctx context.Context, peers ...*node) (Summary, []Entry) {
	t.Helper()
	receiving, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	byName := map[string]*node{}
	var list []Peer
	for _, p := range peers {
		byName[p.name] = p
		list = append(list, Peer{Node: p.name, Address: p.name})
		p.receive(t)
		running.Go(func() {
			if err := p.receiver.Run(receiving); err != nil {
				t.Errorf("receiver of %s: %v", p.name, err)
			}
		})
	}
	dir := filepath.Join(n.dir, "drain")
	d, err := NewDrain(DrainConfig{
		Node: n.name, Incident: "inc-1", Dir: dir, Stores: n.stores, Vault: n.vault, Connections: 2, Log: slog.New(slog.DiscardHandler),
		Peers: func() []Peer { return list },
		Dial: func(ctx context.Context, p Peer) (net.Conn, error) {
			to := byName[p.Node]
			here, there := net.Pipe()
			if to.mangle != nil {
				there = to.mangle(there)
			}
			running.Go(func() {
				c := Server(there, to.id.Server([]string{Protocol}, certs.RoleNode))
				if c.HandshakeContext(receiving) == nil {
					_ = to.receiver.Serve(receiving, c, n.name)
				}
				there.Close()
			})
			c := Client(here, n.id.Client([]string{Protocol}, certs.Name{Role: certs.RoleNode, Name: p.Node}))
			return c, c.HandshakeContext(ctx)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	sum, err := d.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var entries []Entry
	for e, err := range Entries(dir) {
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return sum, entries
}

// get reads a block as a client would, and returns the status and the body.
func (n *node) get(t *testing.T, id, rng string) (int, []byte, http.Header) {
	t.Helper()
	srv := httptest.NewServer(n.reader())
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/blocks/"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	if rng != "" {
		req.Header.Set("Range", rng)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Logf("get %s: %v", id, err)
		return -1, body, resp.Header
	}
	return resp.StatusCode, body, resp.Header
}

// content is bytes that depend on the name alone.
func contentOf(name string, size int) []byte {
	sum := sha256.Sum256([]byte(name))
	b := make([]byte, size)
	rng := rand.NewChaCha8(sum)
	rng.Read(b)
	return b
}

func write(t *testing.T, p string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, b, 0o644); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	if err := os.Chtimes(p, old, old); err != nil {
		t.Fatal(err)
	}
}

// writeMapOutput writes a well-formed map output into a block manager's directories, one for each local directory.
func writeMapOutput(t *testing.T, managers []string, shuffle, mapID int, partitions ...int) map[string][]byte {
	t.Helper()
	base := fmt.Sprintf("shuffle_%d_%d_0", shuffle, mapID)
	files := map[string][]byte{}
	var data, index, sums []byte
	index = binary.BigEndian.AppendUint64(index, 0)
	for i, n := range partitions {
		data = append(data, contentOf(fmt.Sprint(base, i), n)...)
		index = binary.BigEndian.AppendUint64(index, uint64(len(data)))
		sums = binary.BigEndian.AppendUint64(sums, 1)
	}
	if len(data) > 0 {
		files[base+".data"] = data
	}
	files[base+".index"], files[base+".checksum.ADLER32"] = index, sums
	for name, b := range files {
		dir, sub := SparkPlace(name, len(managers))
		write(t, filepath.Join(managers[dir], sub, name), b)
	}
	return files
}

var (
	filesStore = StoreConfig{Name: "cache", Kind: KindCache, Layout: LayoutFiles, Land: LandVault}
	sparkStore = StoreConfig{Name: "spark", Kind: KindShuffle, Layout: LayoutSpark, Land: LandPlace}
)

func with(c StoreConfig, paths ...string) StoreConfig {
	c.Paths = paths
	return c
}

// A node with cached files and Spark's shuffle files leaves. Everything is at the peers afterwards, in as many local
// directories as they have, and reads back byte for byte; what was unfinished is named.
func TestDrainMovesEverything(t *testing.T) {
	a := newNode(t, "a", with(filesStore, "cache"), with(sparkStore, "d0", "d1"))
	b := newNode(t, "b", with(filesStore, "cache"), with(sparkStore, "d0", "d1", "d2"))
	c := newNode(t, "c") // has no such stores: its vault takes all
	want := map[string][]byte{}
	for i, size := range []int{0, 1, 4096, ChunkBytes, ChunkBytes + 1, 3*ChunkBytes + 17} {
		name := fmt.Sprintf("part-%d/x", i)
		want["cache/-/"+name] = contentOf(name, size)
		write(t, filepath.Join(a.dir, "cache", name), want["cache/-/"+name])
	}
	for i := range 300 {
		name := fmt.Sprintf("small/%03d", i)
		want["cache/-/"+name] = contentOf(name, 1000+i)
		write(t, filepath.Join(a.dir, "cache", name), want["cache/-/"+name])
	}
	write(t, filepath.Join(a.dir, "cache", "unfinished.tmp"), []byte("half"))
	managers := []string{filepath.Join(a.dir, "d0/spark-1/executor-1/blockmgr-aa"), filepath.Join(a.dir, "d1/spark-2/executor-1/blockmgr-bb")}
	for m := range 20 {
		for name, content := range writeMapOutput(t, managers, 3, m, 100*m, 0, 70000) {
			// The scope is where the index lies.
			dir, _ := SparkPlace(fmt.Sprintf("shuffle_3_%d_0.index", m), 2)
			want["spark/"+filepath.Base(managers[dir])+"/"+name] = content
		}
	}
	dir, sub := SparkPlace("shuffle_9_9_0.data", 2)
	write(t, filepath.Join(managers[dir], sub, "shuffle_9_9_0.data"), []byte("no index yet"))

	sum, entries := a.drain(t, t.Context(), b, c)
	if sum.Lost.Blocks != 0 || sum.Moved.Blocks != 326 || sum.Skipped.Blocks != 2 {
		t.Fatalf("got %+v, want 326 moved, 2 skipped, none lost\n%v", sum, entries[:min(5, len(entries))])
	}
	peer := map[string]*node{}
	for _, e := range entries {
		if e.Outcome == Moved {
			peer[e.ID] = map[string]*node{"b": b, "c": c}[e.Peer]
		}
	}
	for id, content := range want {
		at := peer[string(sparkLayout{}.base(BlockID(id)))]
		if at == nil {
			t.Fatalf("%s is in no peer's hands", id)
		}
		status, got, _ := at.get(t, id, "")
		if status != 200 || !bytes.Equal(got, content) {
			t.Fatalf("read %s at %s: status %d, %d bytes, want %d", id, at.name, status, len(got), len(content))
		}
	}
	// Spark on b would find its files where it looks for them.
	for id, at := range peer {
		if at != b || !strings.HasPrefix(id, "spark/") {
			continue
		}
		name := BlockID(id).Name() + ".index"
		dir, sub := SparkPlace(name, 3)
		if _, err := os.Stat(filepath.Join(b.dir, fmt.Sprint("d", dir), BlockID(id).Scope(), sub, name)); err != nil {
			t.Errorf("index not in its place: %v", err)
		}
	}
	// What was held is what b and c say that they hold.
	if n := len(b.landed) + len(c.landed); n != 326 {
		t.Errorf("receivers were told of %d blocks, want 326", n)
	}
	// And b can leave in its turn.
	sum, _ = b.drain(t, t.Context(), c)
	if want := int64(len(b.landed)); sum.Moved.Blocks != want || sum.Lost.Blocks != 0 {
		t.Errorf("second hop: got %+v, want %d moved", sum, want)
	}
	for id, content := range want {
		if status, got, _ := c.get(t, id, ""); status != 200 || !bytes.Equal(got, content) {
			t.Fatalf("read %s after two hops: status %d, %d bytes, want %d", id, status, len(got), len(content))
		}
	}
}

func names(entries []Entry, o Outcome) (ids []string) {
	for _, e := range entries {
		if e.Outcome == o {
			ids = append(ids, e.ID)
		}
	}
	slices.Sort(ids)
	return ids
}
