package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// together is a group of nodes that a cloud may take at once: a zone, or one pool in a zone.
type together struct {
	Zone        string `json:"zone"`
	Pool        string `json:"pool"` // empty: all of the zone
	Nodes       int    `json:"nodes"`
	HaveBytes   int64  `json:"have_bytes"`              // at least; with the records of their blocks
	OthersRoom  int64  `json:"others_room_bytes"`       // of all nodes that would stay
	OthersVault int64  `json:"others_vault_room_bytes"` // of that, for blocks that can only go to a vault
	ShortBytes  int64  `json:"short_bytes"`             // of have_bytes, what the others have no room for; at least
	Fallback    bool   `json:"fallback"`                // each node of the group has one
	// The room of those fallbacks, each name counted once; null: there is none, or one does not tell its room, as a bucket.
	FallbackRoom *int64 `json:"fallback_room_bytes"`
}

// lostBytes returns how much would find no room in the fallbacks either; at least.
func (g together) lostBytes() int64 {
	switch {
	case !g.Fallback:
		return g.ShortBytes
	case g.FallbackRoom == nil:
		return 0
	}
	return max(0, g.ShortBytes-*g.FallbackRoom)
}

// holdsNow reports whether a node still has to hand its blocks on.
func holdsNow(n *api.Node) bool {
	return n.GetStatus() != nil && (n.GetState() == "ACTIVE" || n.GetState() == "DECOMMISSIONING")
}

// roomTogether computes for each zone, and each pool in it, whether the nodes that stay have room for what its nodes have, should they
// all go at once.
func roomTogether(nodes []*api.Node) []together {
	groups := map[[2]string]*together{}
	files := map[[2]string]int64{} // bytes of plain files
	stores := map[[2]string][]string{}
	spills := map[[2]string]map[string]int64{} // room of fallbacks by name: the least that a node told
	in := func(n *api.Node) [][2]string {
		all := [][2]string{{n.GetZone(), ""}}
		if n.GetPool() != "" {
			all = append(all, [2]string{n.GetZone(), n.GetPool()})
		}
		return all
	}
	for _, n := range nodes {
		if !holdsNow(n) {
			continue
		}
		st := n.GetStatus()
		here := inventory.Count{Blocks: st.GetStoredBlocks(), Bytes: st.GetStoredBytes()}.Takes()
		has := here + inventory.Count{Blocks: st.GetHeldBlocks(), Bytes: st.GetHeldBytes()}.Takes()
		if d := st.GetDrain(); n.GetState() == "DECOMMISSIONING" { // what it moved is taken off the others' room already
			moved := inventory.Count{Blocks: d.GetBlocksMoved(), Bytes: d.GetBytesMoved()}.Takes()
			here, has = max(0, here-moved), max(0, has-moved)
		}
		for _, key := range in(n) {
			g := cmp.Or(groups[key], &together{Zone: key[0], Pool: key[1], Fallback: true})
			groups[key] = g
			g.Nodes++
			g.HaveBytes += has
			g.Fallback = g.Fallback && st.GetFallback() != ""
			if spills[key] == nil {
				spills[key] = map[string]int64{}
			}
			room := spillRoom(st)
			if least, told := spills[key][st.GetFallback()]; told {
				room = min(room, least)
			}
			spills[key][st.GetFallback()] = room
			files[key] += here
			stores[key] = append(stores[key], filesStores(st)...)
		}
	}
	for key, g := range groups {
		placed := int64(0)
		for _, n := range nodes {
			if !n.GetSchedulable() || slices.Contains(in(n), key) {
				continue
			}
			peer := peerOf(n.GetStatus())
			g.OthersRoom, g.OthersVault, placed = g.OthersRoom+peer.RoomBytes, g.OthersVault+peer.RoomFor(), placed+peer.RoomFor(stores[key]...)
		}
		g.ShortBytes = max(0, g.HaveBytes-g.OthersRoom, files[key]-placed)
		if rooms := slices.Collect(maps.Values(spills[key])); g.Fallback && !slices.Contains(rooms, math.MaxInt64) {
			g.FallbackRoom = new(int64)
			for _, room := range rooms {
				*g.FallbackRoom += min(room, 1<<56) // a network share may claim endless room, and the sum must not overflow
			}
		}
	}
	all := make([]together, 0, len(groups))
	for _, g := range groups {
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b together) int { return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Pool, b.Pool)) })
	return all
}

// spillRoom returns the room of a node's fallback; MaxInt64: the fallback does not tell it, as a bucket.
func spillRoom(st *api.Status) int64 {
	if st.FallbackRoomBytes == nil {
		return math.MaxInt64
	}
	return st.GetFallbackRoomBytes()
}

// peerOf returns a node as a peer with the room that it reports.
func peerOf(st *api.Status) migration.Peer {
	p := migration.Peer{RoomBytes: st.GetRoomBytes(), VaultBytes: st.VaultRoomBytes}
	for _, s := range st.GetStores() {
		if s.GetLand() == inventory.LandPlace {
			p.Places = append(p.Places, s.GetName())
		}
	}
	return p
}

func printRoom(w io.Writer, out show.Format, all []together) error {
	if out == show.JSON {
		return show.WriteJSON(w, all)
	}
	var t show.Table
	t.Row("IF THIS GOES AT ONCE", "NODES", "HAVE AT LEAST", "ROOM OF OTHERS", "")
	for _, g := range all {
		short, lost := "", g.lostBytes()
		if spilt := g.ShortBytes - lost; spilt > 0 {
			short = show.Size(spilt) + " for the fallback"
		}
		if lost > 0 {
			short = strings.TrimPrefix(short+", "+show.Size(lost)+" WOULD BE LOST", ", ")
		}
		t.Row(g.String(), fmt.Sprint(g.Nodes), show.Size(g.HaveBytes), roomWords(g.OthersRoom, &g.OthersVault), short)
	}
	return t.Print(w)
}

// lostTogether returns an error if one of the groups could not go at once without a loss.
func lostTogether(all []together) error {
	var lost []string
	for _, g := range all {
		if g.lostBytes() > 0 {
			lost = append(lost, g.String())
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return incompletef("nodes --room: %s could not go at once without a loss: have %s, or a fallback with room", strings.Join(lost, ", "), moreRoom)
}

func (g together) String() string {
	if g.Pool == "" {
		return "zone " + show.Dash(g.Zone)
	}
	return "pool " + g.Pool + " of " + show.Dash(g.Zone)
}
