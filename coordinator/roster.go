package coordinator

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

const (
	// PeersTold is how many peers an agent's list has at most: enough to spread a drain over, few enough to send to all agents.
	PeersTold = 32

	// rosterPace is the least time between two rebuilds of the list: in a large fleet a rebuild takes longer, and changes are more
	// frequent.
	rosterPace = 100 * time.Millisecond
)

// roster is the list of nodes that may take blocks. It is in the order of a hash of the names, so that neighbours in the list are seldom
// neighbours in a rack.
type roster struct {
	ledger      *ledger
	leases      *leases
	hosts       *hostFiles
	maintenance *maintenance

	mu      sync.Mutex // guards all below
	entries []rosterEntry
	advised []rosterEntry // nodes that may leave themselves: they fill up an agent's list if there are not enough others
	made    time.Time
	stale   bool // at first too
}

type rosterEntry struct {
	place uint64 // hash of the name
	mark  uint64 // hash of all that agents are told of the peer
	peer  *api.Peer
}

// clear forgets the list, for a new term as the leader.
func (r *roster) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries, r.advised, r.made, r.stale = nil, nil, time.Time{}, true
}

func (r *roster) change() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale = true
}

// peersOf is the list of peers for asker, which has version has of it. If that is the newest, or it is too early to tell, there are no peers
// and the version is the same: asker keeps its list.
func (r *roster) peersOf(asker string, has uint64) (version uint64, peers []*api.Peer) {
	now := time.Now()
	if !r.leases.settled(now) {
		return has, nil
	}
	if version, peers = r.pick(asker, now, r.takers); version == has {
		peers = nil
	}
	return version, peers
}

// pick chooses the peers for one node and the version of that list. The version is a hash of the list's content, so it means
// the same after a restart; it is never 0.
func (r *roster) pick(asker string, now time.Time, list func() []*api.Peer) (version uint64, peers []*api.Peer) {
	r.mu.Lock()
	if r.stale && (r.made.IsZero() || now.Sub(r.made) >= rosterPace) {
		r.entries, r.advised, r.made, r.stale = nil, nil, now, false
		for _, e := range rosterOf(list()) {
			if e.peer.Advised {
				r.advised = append(r.advised, e)
			} else {
				r.entries = append(r.entries, e)
			}
		}
	}
	both := [][]rosterEntry{r.entries, r.advised} // replaced, never changed
	r.mu.Unlock()

	version = 14695981039346656037 // FNV-1a
	for _, entries := range both {
		start, _ := slices.BinarySearchFunc(entries, hashOf(asker), func(e rosterEntry, at uint64) int { return cmp.Compare(e.place, at) })
		for i := range entries {
			e := entries[(start+i)%len(entries)]
			if len(peers) == PeersTold {
				break
			}
			if e.peer.Node == asker {
				continue
			}
			version = (version ^ e.mark) * 1099511628211
			peers = append(peers, e.peer)
		}
	}
	return max(version, 1), peers
}

// takers are the nodes that may take blocks, in no order.
func (r *roster) takers() []*api.Peer {
	now, lists, plan := time.Now(), r.hosts.inForce().Lists, r.maintenance.scheduled()
	var able []registry.Node
	r.ledger.view(func(m *registry.Registry) {
		able = make([]registry.Node, 0, len(m.Nodes))
		for _, n := range m.Nodes {
			if n.State == registry.Active && !n.Excluded && !n.Deactivated && !lists.Maintained(n.Name, n.PeerAddress, now) && !r.maintenance.takesNothing(plan.Of(n.Name, n.PeerAddress, now), now) {
				able = append(able, n)
			}
		}
	})
	peers := make([]*api.Peer, 0, len(able))
	for _, n := range able {
		if p := r.leases.read(n.Name); p.heard && p.suspected.IsZero() && !leaves(p.status) && p.room > 0 {
			peers = append(peers, &api.Peer{
				Node: n.Name, Address: n.PeerAddress, Zone: n.Zone, Pool: n.Pool, RoomBytes: p.room, VaultRoomBytes: p.vault, Places: inPlace(p.status), Advised: watched(p.status),
				LargestRoomBytes: p.largest[0], LargestVaultRoomBytes: p.largest[1],
			})
		}
	}
	return peers
}

func rosterOf(peers []*api.Peer) []rosterEntry {
	entries := make([]rosterEntry, len(peers))
	for i, p := range peers {
		room := string(binary.BigEndian.AppendUint64(nil, uint64(p.RoomBytes)))
		told := []string{p.Node, p.Address, p.Zone, p.Pool, room}
		if p.VaultRoomBytes != nil {
			told = append(told, string(binary.BigEndian.AppendUint64(nil, uint64(*p.VaultRoomBytes))))
		}
		for _, largest := range []int64{p.LargestRoomBytes, p.LargestVaultRoomBytes} {
			if largest > 0 {
				told = append(told, string(binary.BigEndian.AppendUint64(nil, uint64(largest))))
			}
		}
		mark := hashOf(append(told, p.Places...)...)
		if p.Advised {
			mark++
		}
		entries[i] = rosterEntry{place: hashOf(p.Node), mark: mark, peer: p}
	}
	slices.SortFunc(entries, func(a, b rosterEntry) int {
		return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.peer.Node, b.peer.Node))
	})
	return entries
}

func hashOf(words ...string) uint64 {
	h := fnv.New64a()
	for _, w := range words {
		h.Write([]byte(w))
		h.Write([]byte{0})
	}
	// FNV gives close hashes to names that differ in their last letters only; MurmurHash3's finalizer spreads them.
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
