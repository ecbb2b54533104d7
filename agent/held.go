package agent

import (
	"context"
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

// lapsed is that question alone.
func (a *Agent) lapsed(ctx context.Context, age time.Duration, blocks []migration.Block) (missing []int, why string, err error) {
	h, err := a.checkHeld(ctx, age, blocks)
	return h.Missing, h.Why, err
}
