package coordinator

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/lifeboat/lifeboat/coordinator/raftstore"
)

// Two say where another coordinator is: this one's file, which an operator may change while nothing can be agreed on, and
// the list of members that all have agreed on, which raft add changes while the file is as it was. The one that changed
// last counts. To know which that is after a restart, what was agreed on when the file was first read so is kept beside the
// log.

// address is what the file says of a coordinator, and what was agreed on when it was first read so; empty: nothing was.
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

// addressIn is what was agreed on; empty: it is no member.
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

// now is where a coordinator is. Either word on it may be empty.
func (a address) now(agreed raft.ServerAddress) raft.ServerAddress {
	if a.File != "" && (agreed == "" || agreed == a.Agreed) {
		return a.File
	}
	return agreed
}

// nameAt is who should be at an address.
func (l *ledger) nameAt(address string) string {
	for _, s := range l.servers() {
		if at, err := l.ServerAddr(s.ID); err == nil && string(at) == address {
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
