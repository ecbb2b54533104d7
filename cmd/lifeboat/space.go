package main

import (
	"fmt"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// roomWords formats the room of a node, and that of its vault if the formatted two differ.
func roomWords(most int64, vault *int64) string {
	if vault == nil || *vault >= most || show.Size(*vault) == show.Size(most) {
		return show.Size(most)
	}
	return fmt.Sprintf("%s (vault: %s)", show.Size(most), show.Size(*vault))
}

const (
	moreRoom    = "more nodes, or more room " + whatHasRoom
	whatHasRoom = "(for a vault: where data_dir is, receive.paths; receive.max_bytes)"
)

// space is the summed room of peers: where each has most (most), in their vaults (vault), and, of these two, where blocks of the given
// stores can go (files).
type space struct{ most, vault, files int64 }

func (s *space) add(p *api.Peer, stores []string) {
	peer := roomOf(p)
	*s = s.plus(space{p.GetRoomBytes(), peer.RoomFor(), peer.RoomFor(stores...)})
}

func (s space) plus(o space) space {
	return space{s.most + o.most, s.vault + o.vault, s.files + o.files}
}

// takes reports whether there is room for all bytes, and for those of plain files among them.
func (s space) takes(all, files int64) bool { return s.most >= all && s.files >= files }

func (s space) String() string { return roomWords(s.most, &s.vault) }

// roomOf returns a peer with the room that it reports.
func roomOf(p *api.Peer) migration.Peer {
	return migration.Peer{
		RoomBytes: p.GetRoomBytes(), VaultBytes: p.VaultRoomBytes, Places: p.GetPlaces(),
		LargestBytes: p.GetLargestRoomBytes(), LargestVaultBytes: p.GetLargestVaultRoomBytes(),
	}
}

// diagnoseLarge says whether a peer has a disk with room for the largest block of plain files.
func (x *examination) diagnoseLarge(add adder) {
	largest, most := x.agent.GetIndex().GetLargestBytes(), int64(0)
	for _, p := range x.agent.GetPeers() {
		peer := roomOf(p)
		most = max(most, peer.MostFor(x.plainFiles()...))
	}
	switch {
	case largest <= most || most == 0: // 0: no peer has room, which another check reports
	case x.rescued():
		add("largest block", stateWarn, moreRoom, "%s, and no peer has room for more than %s in one place: it would go to the fallback", show.Size(largest), show.Size(most))
	default:
		add("largest block", stateBad, moreRoom+", or a fallback (/usr/share/doc/lifeboat/docs/fallback.md)", "%s, and no peer has room for more than %s in one place: it would be lost",
			show.Size(largest), show.Size(most))
	}
}

// rescued reports whether there is a fallback that takes what peers do not.
func (x *examination) rescued() bool {
	f := x.agent.GetFallback()
	return f.GetTried() != nil && f.GetTrouble() == "" && f.GetDoubt() == ""
}

// plainFiles returns the stores of plain files, the only ones that the index counts.
func (x *examination) plainFiles() []string { return filesStores(x.agent.GetStatus()) }

func filesStores(s *api.Status) (stores []string) {
	for _, st := range s.GetStores() {
		if st.GetLayout() == inventory.LayoutFiles {
			stores = append(stores, st.GetName())
		}
	}
	return stores
}

// atLeast says how much is here: all of it, or, if there is room for that, the part that can only go to vaults.
func (x *examination) atLeast(room space) string {
	if files := x.filesHere(); room.most >= x.here() {
		return show.Size(files) + " at least are here that can only go to a vault"
	}
	return show.Size(x.here()) + " at least are here"
}
