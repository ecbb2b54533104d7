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

	files  int64            // of HaveBytes, those of plain files
	stores []string         // of plain files
	spills map[string]int64 // the room of each fallback, the least that a node told; MaxInt64: none told it
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
	for _, n := range nodes {
		if !holdsNow(n) {
			continue
		}
		for _, pool := range slices.Compact([]string{"", n.GetPool()}) {
			key := [2]string{n.GetZone(), pool}
			groups[key] = cmp.Or(groups[key], &together{Zone: n.GetZone(), Pool: pool, Fallback: true, spills: map[string]int64{}})
			groups[key].add(n)
		}
	}
	all := make([]together, 0, len(groups))
	for _, g := range groups {
		g.weigh(nodes)
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b together) int { return cmp.Or(cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Pool, b.Pool)) })
	return all
}

// add counts what a node of the group has.
func (g *together) add(n *api.Node) {
	st := n.GetStatus()
	here := inventory.Count{Blocks: st.GetStoredBlocks(), Bytes: st.GetStoredBytes()}.Takes()
	has := here + inventory.Count{Blocks: st.GetHeldBlocks(), Bytes: st.GetHeldBytes()}.Takes()
	if d := st.GetDrain(); n.GetState() == "DECOMMISSIONING" { // what it moved is taken off the others' room already
		moved := inventory.Count{Blocks: d.GetBlocksMoved(), Bytes: d.GetBytesMoved()}.Takes()
		here, has = max(0, here-moved), max(0, has-moved)
	}
	g.Nodes++
	g.HaveBytes += has
	g.files += here
	g.stores = append(g.stores, filesStores(st)...)
	g.Fallback = g.Fallback && st.GetFallback() != ""
	room := int64(math.MaxInt64)
	if st.FallbackRoomBytes != nil {
		room = st.GetFallbackRoomBytes()
	}
	if least, told := g.spills[st.GetFallback()]; told {
		room = min(room, least)
	}
	g.spills[st.GetFallback()] = room
}

// weigh compares what the group has with the room of the nodes that would stay, and of its fallbacks.
func (g *together) weigh(nodes []*api.Node) {
	placed := int64(0)
	for _, n := range nodes {
		if goes := n.GetZone() == g.Zone && (g.Pool == "" || n.GetPool() == g.Pool); goes || !n.GetSchedulable() {
			continue
		}
		peer := peerOf(n.GetStatus())
		g.OthersRoom, g.OthersVault, placed = g.OthersRoom+peer.RoomBytes, g.OthersVault+peer.RoomFor(), placed+peer.RoomFor(g.stores...)
	}
	g.ShortBytes = max(0, g.HaveBytes-g.OthersRoom, g.files-placed)
	if rooms := slices.Collect(maps.Values(g.spills)); g.Fallback && !slices.Contains(rooms, math.MaxInt64) {
		g.FallbackRoom = new(int64)
		for _, room := range rooms {
			*g.FallbackRoom += min(room, 1<<56) // a network share may claim endless room, and the sum must not overflow
		}
	}
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
	return incompletef("nodes --room: %s could not go at once without a loss: have more nodes elsewhere, more room there %s, or a fallback with room", strings.Join(lost, ", "), whatHasRoom)
}

func (g together) String() string {
	switch {
	case g.Zone == "" && g.Pool == "":
		return "all without a zone"
	case g.Pool == "":
		return "zone " + g.Zone
	}
	return "pool " + g.Pool + " of " + show.Dash(g.Zone)
}
