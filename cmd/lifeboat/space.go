package main

import (
	"fmt"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// roomWords is the room of a node, and what of it is in its vault where that is less, as far as it can be read.
func roomWords(most int64, vault *int64) string {
	if vault == nil || *vault >= most || show.Size(*vault) == show.Size(most) {
		return show.Size(most)
	}
	return fmt.Sprintf("%s (vault: %s)", show.Size(most), show.Size(*vault))
}

const moreRoom = "more nodes, or more room (for a vault: where data_dir is, receive.paths; receive.max_bytes)"

// space is the room of peers: where they have most, in their vaults, and of these two where blocks of the stores go that are asked about.
type space struct{ most, vault, files int64 }

func (s *space) add(p *api.Peer, stores []string) {
	peer := roomOf(p)
	*s = s.plus(space{p.GetRoomBytes(), peer.RoomFor(), peer.RoomFor(stores...)})
}

func (s space) plus(o space) space {
	return space{s.most + o.most, s.vault + o.vault, s.files + o.files}
}

// takes says whether there is room for so much, and for what of it is plain files.
func (s space) takes(all, files int64) bool { return s.most >= all && s.files >= files }

func (s space) String() string { return roomWords(s.most, &s.vault) }

// roomOf is a peer's room.
func roomOf(p *api.Peer) migration.Peer {
	return migration.Peer{
		RoomBytes: p.GetRoomBytes(), VaultBytes: p.VaultRoomBytes, Places: p.GetPlaces(),
		LargestBytes: p.GetLargestRoomBytes(), LargestVaultBytes: p.GetLargestVaultRoomBytes(),
	}
}

// diagnoseLarge says whether the largest block of plain files finds a disk at a peer that holds it.
func (x *examination) diagnoseLarge(add adder) {
	largest, most := x.agent.GetIndex().GetLargestBytes(), int64(0)
	for _, p := range x.agent.GetPeers() {
		peer := roomOf(p)
		most = max(most, peer.MostFor(x.plainFiles()...))
	}
	switch {
	case largest <= most || most == 0: // none: that is said
	case x.rescued():
		add("largest block", stateWarn, moreRoom, "%s, and no peer has room for more than %s in one place: it would go to the fallback", show.Size(largest), show.Size(most))
	default:
		add("largest block", stateBad, moreRoom+", or a fallback (/usr/share/doc/lifeboat/docs/fallback.md)", "%s, and no peer has room for more than %s in one place: it would be lost",
			show.Size(largest), show.Size(most))
	}
}

// rescued says whether there is a fallback that takes what peers do not.
func (x *examination) rescued() bool {
	f := x.agent.GetFallback()
	return f.GetTried() != nil && f.GetTrouble() == "" && f.GetDoubt() == ""
}

// plainFiles are the stores that are known to have what the index says.
func (x *examination) plainFiles() []string { return filesStores(x.agent.GetStatus()) }

func filesStores(s *api.Status) (stores []string) {
	for _, st := range s.GetStores() {
		if st.GetLayout() == inventory.LayoutFiles {
			stores = append(stores, st.GetName())
		}
	}
	return stores
}

// atLeast is how much is here, and what of it has no place but their vaults, where it is that which has no room.
func (x *examination) atLeast(room space) string {
	if files := x.filesHere(); room.most >= x.here() {
		return show.Size(files) + " at least are here that can only go to a vault"
	}
	return show.Size(x.here()) + " at least are here"
}
