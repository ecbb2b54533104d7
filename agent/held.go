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

// fleet is the other nodes, as the coordinator tells of them: its answers in the words of the packages that need them.
type fleet struct {
	*heartbeat.Client
	node string // this one
}

// checkHeld asks the coordinator who has blocks that this node carried to peers at least age ago.
func (f *fleet) checkHeld(ctx context.Context, age time.Duration, blocks []inventory.Block) (heartbeat.Held, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	carried := make([]*api.HeldBlock, len(blocks))
	for i, b := range blocks {
		carried[i] = &api.HeldBlock{Id: string(b.ID), Bytes: b.Bytes()}
	}
	return f.CheckHeld(ctx, age, carried)
}

// whoElse asks the coordinator which other nodes have blocks that this node has, and at which addresses they are read. sure:
// the coordinator could tell of all of them.
func (f *fleet) whoElse(ctx context.Context, blocks []inventory.BlockID) (holders []reading.Holder, sure bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	asked := make([]*api.HeldBlock, len(blocks))
	for i, id := range blocks {
		asked[i] = &api.HeldBlock{Id: string(id)}
	}
	h, err := f.WhoElse(ctx, absentFor, asked)
	if err != nil {
		return nil, false, err
	}
	there, err := f.CheckPeers(ctx, 0, h.Holders)
	for _, node := range h.Holders {
		if address := there.Addresses[node]; address != "" {
			holders = append(holders, reading.Holder{Node: node, Address: address})
		}
	}
	return holders, h.Unsure == 0, err
}

// whoHas asks for each of some files which node has it, and where that node is read.
func (f *fleet) whoHas(ctx context.Context, ids []inventory.BlockID) (at []reading.Holder, err error) {
	ctx, cancel := context.WithTimeout(ctx, locateTimeout)
	defer cancel()
	asked := make([]*api.HeldBlock, len(ids))
	for i, id := range ids {
		asked[i] = &api.HeldBlock{Id: string(id.Block())} // a file landed as part of its block
	}
	h, err := f.WhoElse(ctx, 0, asked)
	if err != nil {
		return nil, err
	}
	there, err := f.CheckPeers(ctx, 0, h.Holders)
	for _, node := range h.At {
		at = append(at, reading.Holder{Node: node, Address: there.Addresses[node]})
	}
	return at, err
}

// homeOf asks the coordinator what became of a node that blocks were born on. If that node is still there and may go any
// moment, it also asks the node which of them it no longer has.
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
	if !has.Leaves { // else they may be gone because it leaves, and not because they are of no use
		h.Lacks = slices.Concat(has.Changed, has.Gone)
	}
	return h, err
}

// lapsed returns the blocks that nobody has any more, by their places in blocks, and why the first is missing.
func (f *fleet) lapsed(ctx context.Context, age time.Duration, blocks []inventory.Block) (missing []int, why string, err error) {
	h, err := f.checkHeld(ctx, age, blocks)
	return h.Missing, h.Why, err
}
