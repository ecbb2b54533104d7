package migration

import (
	"context"
	"errors"
	"net"
	"slices"

	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// A peer's room may be mostly for blocks that land in their place there. A block of a store that the peer does not have, or whose blocks it
// keeps in its vault, can only go to the vault, whose disk may be another one.

func roomIn(g wire.Grant) plan.Room {
	return plan.Room{Most: g.RoomBytes, Vault: g.VaultBytes, Places: g.Places}
}

// AskRoom asks a peer for its room, as a drain of this node does when it begins. What the coordinator tells may be off by a quarter, and does
// not say whether the peer can be reached. For a peer that is busy the room stays as the coordinator told it.
func AskRoom(ctx context.Context, p Peer, dial func(context.Context, Peer) (net.Conn, error), node string, alone bool) (Peer, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := dial(ctx, p)
	if err != nil {
		return p, err
	}
	defer wire.Cut(conn)
	undo := context.AfterFunc(ctx, func() { wire.Cut(conn) })
	defer undo()
	g, err := greet(conn, wire.NewReplies(conn), p.Node, wire.Hello{Node: node, Alone: alone, Advised: true})
	if err != nil {
		if no, is := errors.AsType[*refusedError](err); is && !no.stays {
			return p, nil
		}
		return p, err
	}
	if p.LargestBytes == p.RoomBytes { // they lie on one file system
		p.LargestBytes = g.RoomBytes
	}
	if p.VaultBytes != nil && p.LargestVaultBytes == *p.VaultBytes {
		p.LargestVaultBytes = g.VaultBytes
	}
	p.VaultBytes, p.Places = &g.VaultBytes, g.Places
	p.RoomBytes, p.Advised = g.RoomBytes, p.Advised || g.Advised
	return p, nil
}

// MostFor returns how large a block of these stores a peer may have room for, as the coordinator told.
func (p Peer) MostFor(stores ...string) int64 {
	most := p.LargestBytes
	if p.vaultOnly(stores) {
		most = p.LargestVaultBytes
	}
	if room := p.RoomFor(stores...); most == 0 || room < most { // most is not told, or older than room
		return room
	}
	return most
}

// RoomFor returns how many bytes of these stores' blocks a peer has room for, as the coordinator told.
func (p Peer) RoomFor(stores ...string) int64 {
	if p.vaultOnly(stores) {
		return *p.VaultBytes
	}
	return p.RoomBytes
}

// vaultOnly says whether the blocks of all of these stores can only go to the vault.
func (p Peer) vaultOnly(stores []string) bool {
	return p.VaultBytes != nil && !slices.ContainsFunc(stores, func(s string) bool { return slices.Contains(p.Places, s) })
}
