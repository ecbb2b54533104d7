package receiver

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/enginetest"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/nodetest"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// What engines leave on disk.
var contentOf, write, indexOf, cpuTime = enginetest.Content, enginetest.Write, enginetest.Index, enginetest.CPUTime

// node is one machine that takes blocks: stores, a vault, a receiver, a reader.
type node struct {
	*nodetest.Node
	receiver *Receiver
	packs    bool          // blocks that are to become files stay in segments until unpack is called
	tune     func(*Config) // changes its receiver's Config
}

func newNode(t testing.TB, name string, stores ...inventory.StoreConfig) *node {
	return &node{Node: nodetest.New(t, name, stores...)}
}

// receive makes a receiver: it runs once.
func (n *node) receive(t testing.TB) {
	t.Helper()
	cfg := Config{
		Node: n.Name, Stores: n.Stores, Vault: n.Vault, MaxStreams: 32, Disks: n.Disks, Log: slog.New(slog.DiscardHandler),
		Room:   func(p string) (int64, error) { return n.Room(p), nil },
		Admit:  func(bool) Admission { return Admission{Refused: n.Refuse} },
		Landed: n.NoteLanded, Gone: n.NoteGone,
	}
	if n.tune != nil {
		n.tune(&cfg)
	}
	n.receiver = New(cfg)
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

// onDisks is a node whose vault has these directories beside its own, which has no room.
func onDisks(t testing.TB, name string, stores []inventory.StoreConfig, vaultDirs ...string) (*node, *nodetest.Disks) {
	t.Helper()
	n := newNode(t, name, stores...)
	return n, n.OnDisks(t, vaultDirs...)
}

// receiving runs a node's receiver until stop, which says how long that took.
func (n *node) receiving(t testing.TB) (ctx context.Context, stop func() time.Duration) {
	t.Helper()
	n.receive(t)
	return nodetest.Run(n.receiver)
}

// What a node keeps, and what may be sent to it.
var (
	plenty, roomFor, with      = nodetest.Plenty, nodetest.RoomFor, nodetest.With
	filesStore, sparkStore     = nodetest.FilesStore, nodetest.SparkStore
	get, ask, within, flip     = nodetest.Get, nodetest.Ask, nodetest.Within, nodetest.Flip
	blockFrames, openingFrames = nodetest.BlockFrames, nodetest.OpeningFrames
	newFakeDisks, segmentsIn   = nodetest.NewDisks, nodetest.SegmentsIn
	placeStore, heldIDs        = nodetest.PlaceStore, nodetest.HeldIDs
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
	n.tune = func(cfg *Config) {
		cfg.Admit = func(bool) Admission {
			if is.Load() {
				return Admission{Refused: "this node is under notice itself"}
			}
			return Admission{}
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
