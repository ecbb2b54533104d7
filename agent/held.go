package agent

import (
	"context"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/heartbeat"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/receiver"
)

// checkHeld asks who has the blocks that were carried that long ago at least.
func (a *Agent) checkHeld(ctx context.Context, age time.Duration, blocks []inventory.Block) (heartbeat.Held, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	carried := make([]*api.HeldBlock, len(blocks))
	for i, b := range blocks {
		carried[i] = &api.HeldBlock{Id: string(b.ID), Bytes: b.Bytes()}
	}
	return a.beat.CheckHeld(ctx, age, carried)
}

// whoElse asks who has blocks that this node has, and where they are read.
func (a *Agent) whoElse(ctx context.Context, blocks []inventory.BlockID) (holders []reading.Holder, sure bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	asked := make([]*api.HeldBlock, len(blocks))
	for i, id := range blocks {
		asked[i] = &api.HeldBlock{Id: string(id)}
	}
	h, err := a.beat.WhoElse(ctx, absentFor, asked)
	if err != nil {
		return nil, false, err
	}
	there, err := a.beat.CheckPeers(ctx, 0, h.Holders)
	for _, node := range h.Holders {
		if address := there.Addresses[node]; address != "" {
			holders = append(holders, reading.Holder{Node: node, Address: address})
		}
	}
	return holders, h.Unsure == 0, err
}

// whoHas asks who has each of some files, and where those are read.
func (a *Agent) whoHas(ctx context.Context, ids []inventory.BlockID) (at []reading.Holder, err error) {
	ctx, cancel := context.WithTimeout(ctx, locateTimeout)
	defer cancel()
	asked := make([]*api.HeldBlock, len(ids))
	for i, id := range ids {
		asked[i] = &api.HeldBlock{Id: string(id.Block())} // as which it landed
	}
	h, err := a.beat.WhoElse(ctx, 0, asked)
	if err != nil {
		return nil, err
	}
	there, err := a.beat.CheckPeers(ctx, 0, h.Holders)
	for _, node := range h.At {
		at = append(at, reading.Holder{Node: node, Address: there.Addresses[node]})
	}
	return at, err
}

// homeOf asks what became of a node that blocks were born on, and, if it is there and may go any moment, what it has of them.
func (a *Agent) homeOf(ctx context.Context, node string, about []reading.Version) (receiver.Home, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	is, err := a.beat.CheckPeers(ctx, 0, []string{node})
	if err != nil {
		return receiver.Home{}, err
	}
	age, goes := is.GoneFor[node]
	h, address := receiver.Home{Stays: !goes, GoneFor: age, KnownFor: is.KnownFor[node]}, is.Addresses[node]
	if !goes || age > 0 || address == "" {
		return h, nil
	}
	has, err := a.reader.Fetch.AtHome(ctx, reading.Holder{Node: node, Address: address}, about)
	if !has.Leaves { // what is removed there once it leaves is not removed for being of no use
		h.Lacks = slices.Concat(has.Changed, has.Gone)
	}
	return h, err
}

// lapsed is that question alone.
func (a *Agent) lapsed(ctx context.Context, age time.Duration, blocks []inventory.Block) (missing []int, why string, err error) {
	h, err := a.checkHeld(ctx, age, blocks)
	return h.Missing, h.Why, err
}
