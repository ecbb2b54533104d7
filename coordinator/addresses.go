package coordinator

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/lifeboat/lifeboat/coordinator/raftstore"
)

// There are two sources for another coordinator's address. One is this coordinator's settings file, which an operator can change
// even when there is no majority. The other is raft's list of members, which lifeboat raft add changes while the file stays as it was.
// The source that changed last counts. To know after a restart which one that is, the member list's address at the time when the
// file first said its address is kept beside the log.

// address is what the file says of a coordinator, and what the member list said when the file was first read with that; empty: nothing.
type address struct {
	File   raft.ServerAddress `json:"file"`
	Agreed raft.ServerAddress `json:"agreed"`
}

var addressesKey = []byte("addresses")

// readAddresses compares the file with what it said at the last start, and keeps what is new.
func readAddresses(store *raftstore.Store, peers []Peer, agreed raft.Configuration) (map[raft.ServerID]address, error) {
	if len(peers) == 0 {
		return nil, nil
	}
	kept := map[raft.ServerID]address{}
	b, err := store.Get(addressesKey)
	if err != nil {
		return nil, err
	}
	if len(b) > 0 {
		if err := json.Unmarshal(b, &kept); err != nil {
			return nil, fmt.Errorf("stable value %q: %w", addressesKey, err)
		}
	}
	all := map[raft.ServerID]address{}
	for _, p := range peers {
		id, at := raft.ServerID(p.Name), raft.ServerAddress(p.Address)
		was, known := kept[id]
		if !known || was.File != at {
			was = address{at, addressIn(agreed, id)}
		}
		all[id] = was
	}
	now, err := json.Marshal(all)
	if err != nil || bytes.Equal(now, b) {
		return all, err
	}
	return all, store.Note(addressesKey, now)
}

// addressIn is a coordinator's address in the member list; empty: it is no member.
func addressIn(agreed raft.Configuration, id raft.ServerID) raft.ServerAddress {
	for _, s := range agreed.Servers {
		if s.ID == id {
			return s.Address
		}
	}
	return ""
}

// ServerAddr implements raft.ServerAddressProvider.
func (l *ledger) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if at := l.addresses[id].now(addressIn(raft.Configuration{Servers: l.servers()}, id)); at != "" {
		return at, nil
	}
	return "", fmt.Errorf("coordinator %s is no member", id)
}

// now is a coordinator's address, from the file or the member list (agreed), either of which may be empty.
func (a address) now(agreed raft.ServerAddress) raft.ServerAddress {
	if a.File != "" && (agreed == "" || agreed == a.Agreed) {
		return a.File
	}
	return agreed
}

// nameAt is the coordinator that should be at an address; empty: none.
func (l *ledger) nameAt(address string) string {
	for _, s := range l.members() {
		if string(s.Address) == address {
			return string(s.ID)
		}
	}
	for id := range l.addresses {
		if at, err := l.ServerAddr(id); err == nil && string(at) == address {
			return string(id)
		}
	}
	return ""
}

// coordinators are the addresses of the present members, which the settings may lag behind. A coordinator on its own gives none: it does
// not know at which address others reach it.
func (l *ledger) coordinators() (addresses []string) {
	if l.alone() {
		return nil
	}
	for _, s := range l.members() {
		addresses = append(addresses, string(s.Address))
	}
	return addresses
}

// members are raft's list of members, each with its present address.
func (l *ledger) members() (all []raft.Server) {
	for _, s := range l.servers() {
		s.Address = l.addresses[s.ID].now(s.Address)
		all = append(all, s)
	}
	return all
}
