package migration

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/enginetest"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// What engines leave on disk.
var (
	contentOf, write, plainFile   = enginetest.Content, enginetest.Write, enginetest.Plain
	writeMapOutput, spot, indexOf = enginetest.MapOutput, enginetest.Spot, enginetest.Index
	apart, executor               = enginetest.Apart, enginetest.Executor
	outlast, cpuTime              = enginetest.Outlast, enginetest.CPUTime
)

// node is one machine's share of this package: stores, a vault, a receiver, a reader.
type node struct {
	name     string
	dir      string
	stores   []*inventory.Store
	vault    *vault.Vault
	receiver *Receiver
	id       *certs.Identity
	room     func(path string) int64
	refuse   string
	disks    diskio.Disks
	more     []string                // directories of the vault
	packs    bool                    // what is to become files stays in segments, unless its time comes
	plain    bool                    // streams without TLS, so that only our own checksums guard them
	mangle   func(net.Conn) net.Conn // on the receiver's side of a connection
	tune     func(*ReceiverConfig)   // what its receiver has beside the usual

	mu     sync.Mutex
	landed []vault.Held
	gone   []inventory.BlockID
	why    string // the last of them are gone
}

func plenty(string) int64 { return 1 << 40 }

func roomFor(n int64) func(string) int64 { return func(string) int64 { return n } }

func newNode(t testing.TB, name string, stores ...inventory.StoreConfig) *node {
	t.Helper()
	n := &node{name: name, dir: t.TempDir(), room: plenty, id: certs.Dev(certs.Name{Role: certs.RoleNode, Name: name})}
	for _, c := range stores {
		c.Paths = slices.Clone(c.Paths)
		for i, p := range c.Paths {
			c.Paths[i] = filepath.Join(n.dir, p)
		}
		s, err := inventory.OpenStore(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		n.stores = append(n.stores, s)
	}
	n.open(t)
	return n
}

func (n *node) open(t testing.TB) {
	t.Helper()
	v, err := vault.Open(filepath.Join(n.dir, "vault"), n.more...)
	if err != nil {
		t.Fatal(err)
	}
	n.vault = v
	t.Cleanup(func() { v.Close() })
}

// reopen is what a restart of the agent does to the vault.
func (n *node) reopen(t testing.TB) {
	t.Helper()
	if err := n.vault.Close(); err != nil {
		t.Fatal(err)
	}
	n.open(t)
}

// receive makes a receiver: it runs once.
func (n *node) receive(t testing.TB) {
	t.Helper()
	cfg := ReceiverConfig{
		Node: n.name, Stores: n.stores, Vault: n.vault, MaxStreams: 32, Disks: n.disks, Log: slog.New(slog.DiscardHandler),
		Room:  func(p string) (int64, error) { return n.room(p), nil },
		Admit: func(string, bool) Admission { return Admission{Refused: n.refuse} },
		Landed: func(h []vault.Held) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.landed = append(n.landed, h...)
		},
		Gone: func(ids []inventory.BlockID, why string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.gone, n.why = append(n.gone, ids...), why
		},
	}
	if n.tune != nil {
		n.tune(&cfg)
	}
	r, err := NewReceiver(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.receiver = r
}

func (n *node) landedBlocks() []vault.Held {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.landed)
}

func (n *node) reader() *reading.Reader {
	return &reading.Reader{Node: n.name, Stores: n.stores, Vault: n.vault, Disks: n.disks, Log: slog.New(slog.DiscardHandler)}
}

// trip is a drain of one node into others over real mutual TLS on in-memory connections. Its parts may be changed until
// run is called.
type trip struct {
	t    testing.TB
	from *node
	cfg  DrainConfig
	wrap func(net.Conn) net.Conn // on the sender's side of a connection
	pipe func() (net.Conn, net.Conn)

	drain *Drain // once it runs

	mu    sync.Mutex
	to    map[string]*node
	fakes map[string]func(net.Conn)
}

func newTrip(t testing.TB, from *node, peers ...*node) *trip {
	tr := &trip{t: t, from: from, to: map[string]*node{}, pipe: net.Pipe}
	var list []Peer
	for _, p := range peers {
		tr.to[p.name] = p
		list = append(list, Peer{Node: p.name, Address: p.name})
	}
	tr.cfg = DrainConfig{
		Where: func(_ context.Context, node string) (string, error) { return node, nil },
		Node:  from.name, Incident: "inc-1", Dir: filepath.Join(from.dir, "drain"), Stores: from.stores, Vault: from.vault, Connections: 2, Disks: from.disks,
		Log: slog.New(slog.DiscardHandler), Peers: func() []Peer { return list },
	}
	return tr
}

// node is who answers under a name now.
func (tr *trip) node(name string) *node {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.to[name]
}

// fake is who answers in its stead now; nil: nobody does.
func (tr *trip) fake(name string) func(net.Conn) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.fakes[name]
}

// run drains until it ends, and returns its account.
func (tr *trip) run(ctx context.Context) (manifest.Summary, []manifest.Entry) {
	tr.t.Helper()
	receiving, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	serve := func(n *node) {
		n.receive(tr.t)
		running.Go(func() {
			if err := n.receiver.Run(receiving); err != nil {
				tr.t.Errorf("receiver of %s: %v", n.name, err)
			}
		})
	}
	for _, n := range tr.to {
		serve(n)
	}
	tr.cfg.Dial = func(ctx context.Context, p Peer) (net.Conn, error) {
		if fake := tr.fake(p.Node); fake != nil {
			here, there := tr.pipe()
			running.Go(func() { fake(there) })
			return here, nil
		}
		to := tr.node(p.Node)
		if to.receiver == nil {
			serve(to)
		}
		here, there := tr.pipe()
		if to.mangle != nil {
			there = to.mangle(there)
		}
		if tr.wrap != nil {
			here = tr.wrap(here)
		}
		if to.plain {
			running.Go(func() { _ = to.receiver.Serve(receiving, there, tr.from.name) })
			return here, nil
		}
		running.Go(func() {
			c := Server(there, to.id.Server([]string{wire.Protocol}, certs.RoleNode))
			if c.HandshakeContext(receiving) == nil {
				_ = to.receiver.Serve(receiving, c, tr.from.name)
			}
			there.Close()
		})
		c := Client(here, tr.from.id.Client([]string{wire.Protocol}, certs.Name{Role: certs.RoleNode, Name: p.Node}))
		return c, c.HandshakeContext(ctx)
	}
	d := NewDrain(tr.cfg)
	tr.drain = d
	sum, err := d.Run(ctx)
	if err != nil {
		tr.t.Fatal(err)
	}
	if p := d.Progress(); !tr.cfg.Once && (p.Found != p.Moved.Plus(p.Lost) || p.Moved != sum.Moved || p.Lost != sum.Lost) {
		tr.t.Errorf("in the end it says %+v, and is accounted for as %+v", p, sum)
	}
	for _, n := range tr.to {
		if n.receiver != nil && !n.packs {
			n.unpack()
		}
	}
	return sum, entriesOf(tr.t, tr.cfg.Dir)
}

func entriesOf(t testing.TB, dir string) (entries []manifest.Entry) {
	t.Helper()
	for e, err := range manifest.Entries(dir) {
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return entries
}

func (n *node) drain(t testing.TB, ctx context.Context, peers ...*node) (manifest.Summary, []manifest.Entry) {
	t.Helper()
	return newTrip(t, n, peers...).run(ctx)
}

// outcome returns the ids that met an outcome, and fails the test when an id was booked twice.
func outcome(t testing.TB, entries []manifest.Entry, o manifest.Outcome) map[string]manifest.Entry {
	t.Helper()
	all, of := map[string]bool{}, map[string]manifest.Entry{}
	for _, e := range entries {
		if all[e.ID] {
			t.Errorf("%s is booked twice", e.ID)
		}
		all[e.ID] = true
		if e.Outcome == o {
			of[e.ID] = e
		}
	}
	return of
}

// get reads a block as a client would, and returns the status and the body. A body that was cut short is status -1.
func get(t testing.TB, h http.Handler, id, rng string) (int, []byte, http.Header) {
	t.Helper()
	header := http.Header{}
	if rng != "" {
		header.Set("Range", rng)
	}
	return ask(t, h, http.MethodGet, "/blocks/"+id, header)
}

func ask(t testing.TB, h http.Handler, method, target string, header http.Header) (int, []byte, http.Header) {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := (&http.Client{Transport: srv.Client().Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return -1, body, resp.Header
	}
	return resp.StatusCode, body, resp.Header
}

func (n *node) get(t testing.TB, id, rng string) (int, []byte, http.Header) {
	t.Helper()
	return get(t, n.reader(), id, rng)
}

// content reads a block's file without a server, so that it can be done in a bubble.
func (n *node) content(t testing.TB, id string) []byte {
	t.Helper()
	w := httptest.NewRecorder()
	n.reader().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/blocks/"+id, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("read %s at %s: %d %s", id, n.name, w.Code, w.Body)
	}
	return w.Body.Bytes()
}

var (
	filesStore = inventory.StoreConfig{Name: "cache", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Land: inventory.LandVault}
	sparkStore = inventory.StoreConfig{Name: "spark", Kind: inventory.KindShuffle, Layout: inventory.LayoutSpark, Land: inventory.LandPlace}
)

func with(c inventory.StoreConfig, paths ...string) inventory.StoreConfig {
	c.Paths = paths
	return c
}

// segmentPath is the file of a segment.
func (n *node) segmentPath(no uint32) string {
	dir, _ := n.vault.Home(no)
	return vault.SegmentFile(dir, no)
}

// has reports whether a node can serve a block by itself.
func (n *node) has(id inventory.BlockID) bool {
	w := httptest.NewRecorder()
	n.reader().ServeHTTP(w, httptest.NewRequest(http.MethodHead, (&url.URL{Path: "/blocks/" + string(id)}).String(), nil))
	return w.Code == http.StatusOK || w.Code == http.StatusMultipleChoices
}

// landedFile opens a block of one file that landed.
func (n *node) landedFile(id inventory.BlockID) (io.ReadSeekCloser, error) {
	r, err := n.vault.Catalog.Get(id)
	if err != nil {
		return nil, err
	}
	return n.vault.OpenLanded(inventory.StoreOf(n.stores, id), r, 0, 0)
}
