package heartbeat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/durable"
)

const (
	// A coordinator sends at most 32 peers; more than this is not a list of peers.
	mostPeers = 1024
	// mostPeersFile is far above mostPeers entries of ordinary length.
	mostPeersFile = 1 << 20
	// saveAgain is the pause before the peers file is tried again after it could not be written.
	saveAgain = time.Minute
)

// peerBook is the list of peers last heard, in memory and in a file. The file has a goroutine of its own: a disk that hangs
// must not stop the beats.
type peerBook struct {
	file string // empty: none
	self string
	log  *slog.Logger

	mu     sync.Mutex // guards what follows
	peers  []*api.Peer
	missed time.Time // when a list last left out a peer of the one before

	dirty chan struct{} // full: the file is older than peers
}

// peerRecord is one peer in the file, which people read too.
type peerRecord struct {
	Node       string   `json:"node"`
	Address    string   `json:"address"`
	Zone       string   `json:"zone,omitempty"`
	Pool       string   `json:"pool,omitempty"`
	RoomBytes  int64    `json:"room_bytes"`
	VaultBytes *int64   `json:"vault_room_bytes,omitempty"`
	Places     []string `json:"places,omitempty"`
	Advised    bool     `json:"advised,omitempty"`

	LargestBytes      int64 `json:"largest_room_bytes,omitempty"`
	LargestVaultBytes int64 `json:"largest_vault_room_bytes,omitempty"`
}

// loadPeers reads the file. A broken one is logged and counts as empty: the coordinator will say the peers again, and a
// node that does not start protects nothing.
func loadPeers(file, self string, log *slog.Logger) *peerBook {
	b := &peerBook{file: file, self: self, log: log, dirty: make(chan struct{}, 1)}
	if file == "" {
		return b
	}
	peers, err := readPeers(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the peers file cannot be read: starting without peers", "file", file, "err", err)
	}
	b.peers = b.sound(peers)
	return b
}

func (b *peerBook) list() []*api.Peer {
	b.mu.Lock()
	defer b.mu.Unlock()
	peers := make([]*api.Peer, len(b.peers))
	for i, p := range b.peers {
		peers[i] = proto.CloneOf(p)
	}
	return peers
}

// hear replaces the list by what a coordinator says.
func (b *peerBook) hear(peers []*api.Peer) {
	peers = b.sound(peers)
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.EqualFunc(peers, b.peers, func(p, q *api.Peer) bool { return proto.Equal(p, q) }) {
		return
	}
	for _, was := range b.peers {
		if !slices.ContainsFunc(peers, func(p *api.Peer) bool { return p.GetNode() == was.GetNode() }) {
			b.missed = time.Now()
		}
	}
	b.peers = peers
	await.Mark(b.dirty)
}

func (b *peerBook) missedAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.missed
}

// sound drops peers that no block could be sent to, and the node itself.
func (b *peerBook) sound(peers []*api.Peer) []*api.Peer {
	peers = slices.Clone(peers[:min(len(peers), mostPeers)])
	return slices.DeleteFunc(peers, func(p *api.Peer) bool {
		_, _, err := net.SplitHostPort(p.GetAddress())
		return err != nil || p.GetNode() == "" || p.GetNode() == b.self
	})
}

// keepFile writes a file whenever dirty says that it is out of date, until ctx ends; a change before that is still written.
// lacks says, for the log, what a restart would lack if the file cannot be written.
func keepFile(ctx context.Context, file string, dirty chan struct{}, write func() error, what, lacks string, log *slog.Logger) {
	if file == "" {
		return
	}
	failing := false
	for {
		select {
		case <-ctx.Done():
			select {
			case <-dirty:
			default:
				return
			}
		case <-dirty:
		}
		err := write()
		switch {
		case err == nil && failing:
			log.Info(what+" can be written again", "file", file)
		case err != nil && !failing:
			log.Warn(what+" cannot be written: a restarted agent would "+lacks, "file", file, "err", err)
		}
		failing = err != nil
		if failing {
			if ctx.Err() != nil {
				return
			}
			await.Sleep(ctx, saveAgain)
			await.Mark(dirty)
		}
	}
}

func (b *peerBook) save(ctx context.Context) {
	keepFile(ctx, b.file, b.dirty, func() error { return writePeers(b.file, b.list()) }, "the peers file", "know older peers", b.log)
}

func readPeers(file string) ([]*api.Peer, error) {
	text, err := readBounded(file, mostPeersFile)
	if err != nil {
		return nil, err
	}
	return parsePeers(text)
}

// parsePeers ignores unknown fields: a newer agent may have written
// them before this one replaced it, and without peers this one could not drain until it finds a coordinator.
func parsePeers(text []byte) ([]*api.Peer, error) {
	var records []peerRecord
	if err := json.Unmarshal(text, &records); err != nil {
		return nil, fmt.Errorf("is not a list of peers: %w", err)
	}
	peers := make([]*api.Peer, len(records))
	for i, r := range records {
		peers[i] = &api.Peer{
			Node: r.Node, Address: r.Address, Zone: r.Zone, Pool: r.Pool, RoomBytes: r.RoomBytes, VaultRoomBytes: r.VaultBytes, Places: r.Places, Advised: r.Advised,
			LargestRoomBytes: r.LargestBytes, LargestVaultRoomBytes: r.LargestVaultBytes,
		}
	}
	return peers, nil
}

// writePeers replaces the file whole: a crash leaves the old list or the new one.
func writePeers(file string, peers []*api.Peer) error {
	records := make([]peerRecord, len(peers))
	for i, p := range peers {
		records[i] = peerRecord{
			Node: p.GetNode(), Address: p.GetAddress(), Zone: p.GetZone(), Pool: p.GetPool(),
			RoomBytes: p.GetRoomBytes(), VaultBytes: p.VaultRoomBytes, Places: p.GetPlaces(), Advised: p.GetAdvised(),
			LargestBytes: p.GetLargestRoomBytes(), LargestVaultBytes: p.GetLargestVaultRoomBytes(),
		}
	}
	text, err := json.MarshalIndent(records, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(file, append(text, '\n'))
}
