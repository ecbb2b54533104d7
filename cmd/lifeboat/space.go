package main

import (
	"fmt"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/migration"
)

// roomWords is the room of a node, and what of it is in its vault where that is less, as far as it can be read.
func roomWords(most int64, vault *int64) string {
	if vault == nil || *vault >= most || size(*vault) == size(most) {
		return size(most)
	}
	return fmt.Sprintf("%s (vault: %s)", size(most), size(*vault))
}

const moreRoom = "more nodes, or more room (for a vault: where data_dir is, receive.paths; receive.max_bytes)"

// space is the room of peers: where they have most, in their vaults, and of these two where blocks of the stores go that are asked about.
type space struct{ most, vault, files int64 }

func (s *space) add(p *api.Peer, stores []string) {
	peer := migration.Peer{RoomBytes: p.GetRoomBytes(), VaultBytes: p.VaultRoomBytes, Places: p.GetPlaces()}
	*s = s.plus(space{p.GetRoomBytes(), peer.RoomFor(), peer.RoomFor(stores...)})
}

func (s space) plus(o space) space {
	return space{s.most + o.most, s.vault + o.vault, s.files + o.files}
}

// takes says whether there is room for so much, and for what of it is plain files.
func (s space) takes(all, files int64) bool { return s.most >= all && s.files >= files }

func (s space) String() string { return roomWords(s.most, &s.vault) }

// plainFiles are the stores that are known to have what the index says.
func (x *examination) plainFiles() (stores []string) {
	for _, st := range x.agent.GetStatus().GetStores() {
		if st.GetLayout() == migration.LayoutFiles {
			stores = append(stores, st.GetName())
		}
	}
	return stores
}

// atLeast is how much is here, and what of it has no place but their vaults, where it is that which has no room.
func (x *examination) atLeast(room space) string {
	if files := x.agent.GetIndex().GetBytes(); room.most >= x.here() {
		return size(files) + " at least are here that can only go to a vault"
	}
	return size(x.here()) + " at least are here"
}
