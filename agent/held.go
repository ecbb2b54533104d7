package agent

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/heartbeat"
	"github.com/lifeboat/lifeboat/migration"
)

// checkHeld asks who has the blocks that were carried that long ago at least.
func (a *Agent) checkHeld(ctx context.Context, age time.Duration, blocks []migration.Block) (heartbeat.Held, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	carried := make([]*api.HeldBlock, len(blocks))
	for i, b := range blocks {
		carried[i] = &api.HeldBlock{Id: string(b.ID), Bytes: b.Bytes()}
	}
	h, err := a.beat.CheckHeld(ctx, age, carried)
	if status.Code(err) == codes.Unimplemented {
		return heartbeat.Held{}, nil // by an older coordinator
	}
	return h, err
}

// whoElse asks who has blocks that this node has, and where they are read.
func (a *Agent) whoElse(ctx context.Context, blocks []migration.BlockID) (holders []migration.Holder, sure bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	asked := make([]*api.HeldBlock, len(blocks))
	for i, id := range blocks {
		asked[i] = &api.HeldBlock{Id: string(id)}
	}
	h, err := a.beat.WhoElse(ctx, absentFor, asked)
	if status.Code(err) == codes.Unimplemented {
		return nil, true, nil // by an older coordinator
	}
	if err != nil {
		return nil, false, err
	}
	there, err := a.beat.CheckPeers(ctx, 0, h.Holders)
	for _, node := range h.Holders {
		if address := there.Addresses[node]; address != "" {
			holders = append(holders, migration.Holder{Node: node, Address: address})
		}
	}
	return holders, h.Unsure == 0, err
}

// homeOf asks what became of a node that blocks were born on, and, if it is there and may go any moment, what it has of them.
func (a *Agent) homeOf(ctx context.Context, node string, about []migration.Version) (h migration.Home, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	is, err := a.beat.CheckPeers(ctx, 0, []string{node})
	age, goes := is.GoneFor[node]
	if err != nil || !goes {
		return h, err
	}
	has := migration.AtHome{Leaves: true}
	if address := is.Addresses[node]; address != "" && age == 0 {
		has, err = a.reader.Fetch.AtHome(ctx, migration.Holder{Node: node, Address: address}, about)
	}
	for i := range about {
		if has.Leaves || slices.Contains(has.Has, i) {
			h.Has = append(h.Has, i)
		}
	}
	h.GoneFor = age
	return h, err
}

// lapsed is that question alone.
func (a *Agent) lapsed(ctx context.Context, age time.Duration, blocks []migration.Block) (missing []int, why string, err error) {
	h, err := a.checkHeld(ctx, age, blocks)
	return h.Missing, h.Why, err
}
