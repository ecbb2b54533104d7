package agent

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// gone tells the coordinator of blocks that no longer rest here.
func (a *Agent) gone(ids []inventory.BlockID, why string) {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = string(id)
	}
	a.counts.removed.Add(float64(len(ids)))
	a.fleet.Gone(why, words...)
}

// broken checks a block that a reader found broken. If it is, the receiver removes it and the coordinator is told (broke),
// so that readers go to another holder or to the source.
func (a *Agent) broken(id inventory.BlockID) {
	a.counts.broken.Inc()
	if !a.receiver.Suspect(id) {
		a.fleet.Gone("it was broken", string(id))
	}
}

// appsOver returns those of the apps that are over, as far as the coordinator knows. An app that still runs here by its
// workload's word is not over, whatever the coordinator was told.
func (c *course) appsOver(ctx context.Context, apps []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	over, err := c.fleet.CheckApps(ctx, apps)
	maps.DeleteFunc(over, func(app, _ string) bool { return c.workloads.inUse(app) })
	c.vigil.leave(slices.Collect(maps.Keys(over)))
	return over, err
}

// RemoveBlocks removes blocks that landed here: those of an app, those from a node, or those of an app from a node.
func (l *local) RemoveBlocks(ctx context.Context, r *api.RemoveBlocksRequest) (*api.RemoveBlocksReply, error) {
	if r.App == "" && r.From == "" {
		return nil, status.Error(codes.InvalidArgument, "neither an app nor a node is named: blocks are removed by one of them, or both")
	}
	removed, err := l.agent.receiver.Remove(ctx, "at an operator's word", func(h vault.Held) bool {
		return (r.App == "" || h.App() == r.App) && (r.From == "" || h.From == r.From)
	})
	l.agent.log.Info("removed at an operator's word", "app", r.App, "from", r.From, "blocks", removed.Blocks, "bytes", removed.Bytes)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "%d blocks, %d bytes are removed, and not all: %v", removed.Blocks, removed.Bytes, err)
	}
	return &api.RemoveBlocksReply{Blocks: removed.Blocks, Bytes: removed.Bytes}, nil
}
