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
	"github.com/lifeboat/lifeboat/workloads"
)

// gone tells the coordinator of what no longer rests here.
func (a *Agent) gone(ids []inventory.BlockID, why string) {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = string(id)
	}
	a.counts.removed.Add(float64(len(ids)))
	a.beat.Gone(why, words...)
}

// broken has a block looked at that a reader found not to be whole. One that is not whole is removed, and the coordinator
// told (broke), so that readers are sent to another or to the source.
func (a *Agent) broken(id inventory.BlockID) {
	a.counts.broken.Inc()
	if !a.receiver.Suspect(id) {
		a.beat.Gone("it was broken", string(id))
	}
}

// broke tells the coordinator of a block that was removed because it was not whole: a node that it came from may still be
// there to carry it again.
func (a *Agent) broke(h vault.Held) {
	word := apiHeld(h)
	if h.Origin != h.From {
		word.Origin = h.Origin
	}
	a.beat.Broken(word)
}

// inUse says whether an app runs on this machine, as far as its workloads tell: what landed of it stays for as long.
func (a *Agent) inUse(app string) bool {
	for _, w := range a.workloads {
		w.mu.Lock()
		runs := w.state != workloads.Done && w.state != workloads.Killed && slices.Contains(w.last.Apps, app)
		w.mu.Unlock()
		if runs {
			return true
		}
	}
	return false
}

// appsOver says which of some apps are over, as the coordinator was told. One that still runs here, as far as workloads tell, is
// not, whatever was said of it.
func (a *Agent) appsOver(ctx context.Context, apps []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	over, err := a.beat.CheckApps(ctx, apps)
	maps.DeleteFunc(over, func(app, _ string) bool { return a.inUse(app) })
	a.vigil.leave(slices.Collect(maps.Keys(over)))
	return over, err
}

// alone says whether the coordinator does not answer, or has not yet, so that nobody knows of a drain of this node.
func (a *Agent) alone() bool {
	_, answered, trouble := a.beat.Health()
	return trouble != "" || answered.IsZero()
}

// RemoveBlocks removes what landed here of an app, or from a node.
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
