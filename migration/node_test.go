package migration

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/migration/enginetest"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/nodetest"
	"github.com/lifeboat/lifeboat/migration/receiver"
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

// node is one machine as far as this package goes: stores, a vault, a receiver, a reader.
type node struct {
	*nodetest.Node
	receiver *receiver.Receiver
	plain    bool                    // streams without TLS, so that only our own checksums guard them
	mangle   func(net.Conn) net.Conn // on the receiver's side of a connection
	packs    bool                    // blocks that are to become files stay in segments until unpack is called
	tune     func(*receiver.Config)  // changes the Config of its receiver
}

func newNode(t testing.TB, name string, stores ...inventory.StoreConfig) *node {
	return &node{Node: nodetest.New(t, name, stores...)}
}

// receive makes a receiver: it runs once.
func (n *node) receive(t testing.TB) {
	t.Helper()
	cfg := receiver.Config{
		Node: n.Name, Stores: n.Stores, Vault: n.Vault, MaxStreams: 32, Disks: n.Disks, Log: slog.New(slog.DiscardHandler),
		Room:   func(p string) (int64, error) { return n.Room(p), nil },
		Admit:  func(bool) receiver.Admission { return receiver.Admission{Refused: n.Refuse} },
		Landed: n.NoteLanded, Gone: n.NoteGone,
	}
	if n.tune != nil {
		n.tune(&cfg)
	}
	n.receiver = receiver.New(cfg)
}

// trip is a drain of one node into others over real mutual TLS on in-memory connections. Its parts may be changed until
// run is called.
type trip struct {
	t    testing.TB
	from *node
	cfg  DrainConfig
	wrap func(net.Conn) net.Conn // on the sender's side of a connection
	pipe func() (net.Conn, net.Conn)
	// dials is called before each connection to a peer, and links wraps the connection; nil: not.
	dials func(ctx context.Context, p Peer) error
	links func(p Peer, conn net.Conn) net.Conn

	drain *Drain // once it runs

	mu    sync.Mutex
	to    map[string]*node
	fakes map[string]func(net.Conn)
}

func newTrip(t testing.TB, from *node, peers ...*node) *trip {
	tr := &trip{t: t, from: from, to: map[string]*node{}, pipe: net.Pipe}
	var list []Peer
	for _, p := range peers {
		tr.to[p.Name] = p
		list = append(list, Peer{Node: p.Name, Address: p.Name})
	}
	tr.cfg = DrainConfig{
		Where: func(_ context.Context, node string) (string, error) { return node, nil },
		Node:  from.Name, Incident: "inc-1", Dir: filepath.Join(from.Dir, "drain"), Stores: from.Stores, Vault: from.Vault, Connections: 2, Disks: from.Disks,
		Log: slog.New(slog.DiscardHandler), Peers: func() []Peer { return list },
	}
	return tr
}

// node returns the node that answers under a name now.
func (tr *trip) node(name string) *node {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.to[name]
}

// fake returns the func that answers in a node's place now; nil: none does.
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
				tr.t.Errorf("receiver of %s: %v", n.Name, err)
			}
		})
	}
	for _, n := range tr.to {
		serve(n)
	}
	tr.cfg.Dial = func(ctx context.Context, p Peer) (net.Conn, error) {
		if tr.dials != nil {
			if err := tr.dials(ctx, p); err != nil {
				return nil, err
			}
		}
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
		if tr.links != nil {
			here = tr.links(p, here)
		}
		if to.plain {
			running.Go(func() { _ = to.receiver.Serve(receiving, there, tr.from.Name) })
			return here, nil
		}
		running.Go(func() {
			c := wire.Server(there, to.ID.Server([]string{wire.Protocol}, certs.RoleNode))
			if c.HandshakeContext(receiving) == nil {
				_ = to.receiver.Serve(receiving, c, tr.from.Name)
			}
			there.Close()
		})
		c := wire.Client(here, tr.from.ID.Client([]string{wire.Protocol}, certs.Name{Role: certs.RoleNode, Name: p.Node}))
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

// outcome returns the entries with that outcome, by id, and fails the test if an id has two of them.
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

// landAll has a node take blocks, and returns what became of each.
func landAll(t testing.TB, n *node, frames ...[]byte) (said []wire.Verdict) {
	t.Helper()
	n.receive(t)
	said = landFrames(t, n.receiver, frames...)
	if !n.packs {
		n.unpack()
	}
	return said
}

func (n *node) stream(t testing.TB, ctx context.Context) *nodetest.Sender {
	t.Helper()
	return newSender(t, ctx, n.receiver, "a")
}

// onDisks is a node whose vault has these directories besides its own, which has no room.
func onDisks(t testing.TB, name string, stores []inventory.StoreConfig, vaultDirs ...string) (*node, *nodetest.Disks) {
	t.Helper()
	n := newNode(t, name, stores...)
	return n, n.OnDisks(t, vaultDirs...)
}

// receiving runs a node's receiver until stop, which returns how long stopping took.
func (n *node) receiving(t testing.TB) (ctx context.Context, stop func() time.Duration) {
	t.Helper()
	n.receive(t)
	return nodetest.Run(n.receiver)
}

// What a node may keep and take.
var (
	plenty, roomFor, with      = nodetest.Plenty, nodetest.RoomFor, nodetest.With
	filesStore, sparkStore     = nodetest.FilesStore, nodetest.SparkStore
	get, ask, within, flip     = nodetest.Get, nodetest.Ask, nodetest.Within, nodetest.Flip
	blockFrames, openingFrames = nodetest.BlockFrames, nodetest.OpeningFrames
	newFakeDisks               = nodetest.NewDisks
	placeStore                 = nodetest.PlaceStore
	landFrames, newSender      = nodetest.Land, nodetest.Stream
	wantDurable, ofApp, ofApps = nodetest.WantDurable, nodetest.OfApp, nodetest.VaultOfApps
	vaultOf, carriedIn         = nodetest.RoomOfVault, nodetest.CarriedIn
)

// unpack makes files of the blocks that wait, whatever the time.
func (n *node) unpack() { n.receiver.UnpackNow(context.Background()) }

// packed is a node with a store that wants files, whose small blocks rest in a segment, and their contents.
func packed(t testing.TB, count, size int) (*node, map[string][]byte) {
	t.Helper()
	n := newNode(t, "b", with(placeStore, "cache"))
	return n, n.pack(t, count, size)
}

func (n *node) pack(t testing.TB, count, size int) map[string][]byte {
	t.Helper()
	n.packs = true
	frames, want := n.Pack(count, size)
	wantDurable(t, landAll(t, n, frames...))
	n.WantPacked(t, want)
	return want
}

func (n *node) remove(t testing.TB, asked func(vault.Held) bool) inventory.Count {
	t.Helper()
	if n.receiver == nil {
		n.receive(t)
	}
	gone, err := n.receiver.Remove(t.Context(), "at an operator's word", asked)
	if err != nil {
		t.Fatal(err)
	}
	return gone
}

func (n *node) asks(id inventory.BlockID, by, tag string) int {
	return nodetest.AskToForget(n.receiver, id, by, tag)
}

// running runs a node's receiver while do does something.
func (n *node) running(t *testing.T, do func()) {
	t.Helper()
	_, stop := n.receiving(t)
	defer stop()
	do()
}

// underNotice puts the receivers that the node has from now on under notice while it is true.
func (n *node) underNotice() *atomic.Bool {
	var is atomic.Bool
	n.tune = func(cfg *receiver.Config) {
		cfg.Admit = func(bool) receiver.Admission {
			if is.Load() {
				return receiver.Admission{Refused: "this node is under notice itself"}
			}
			return receiver.Admission{}
		}
	}
	return &is
}

// wantWaiting checks how many blocks wait to become files, and how many of them have a file in the way.
func wantWaiting(t testing.TB, n *node, blocks, occupied int64) {
	t.Helper()
	if got := n.receiver.Unpacking(); got.Waiting.Blocks != blocks || got.Occupied.Blocks != occupied {
		t.Errorf("%d blocks wait, in the way of %d is something, want %d and %d", got.Waiting.Blocks, got.Occupied.Blocks, blocks, occupied)
	}
}
