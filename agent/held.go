package agent

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/migration"
)

// checkHeld asks which of the blocks that were carried that long ago at least nobody has any more, by their places. Of so many of the
// others (unsure) the coordinator cannot tell yet.
func (a *Agent) checkHeld(ctx context.Context, age time.Duration, blocks []migration.Block) (missing []int, why string, unsure int, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	carried := make([]*api.HeldBlock, len(blocks))
	for i, b := range blocks {
		carried[i] = &api.HeldBlock{Id: string(b.ID), Bytes: b.Bytes()}
	}
	h, err := a.beat.CheckHeld(ctx, age, carried)
	if status.Code(err) == codes.Unimplemented {
		return nil, "", 0, nil // by an older coordinator
	}
	return h.Missing, h.Why, h.Unsure, err
}

// lapsed is that question alone.
func (a *Agent) lapsed(ctx context.Context, age time.Duration, blocks []migration.Block) (missing []int, why string, err error) {
	missing, why, _, err = a.checkHeld(ctx, age, blocks)
	return missing, why, err
}
