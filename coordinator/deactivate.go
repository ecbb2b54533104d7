package coordinator

import (
	"context"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// Deactivate is an operator's cordon. What it is about is a machine, so it outlives restarts of the node and of
// coordinators, and ends with the node: another machine of the name is not deactivated. Nothing that the node does changes
// by it, nor where its blocks are read: schedulers see that it is not schedulable, and no drain is told of it as a peer.
func (s *operator) Deactivate(ctx context.Context, r *api.DeactivateRequest) (*api.DeactivateReply, error) {
	names, err := distinct(r.GetNodes())
	if err != nil {
		return nil, err
	}
	if err := checkText("reason", r.Reason); err != nil {
		return nil, err
	}
	c := registry.Command{Do: registry.DoDeactivate, Nodes: names, Reason: r.Reason}
	if r.Undo {
		c.Do = registry.DoReactivate
	}
	if _, err := s.decide(ctx, c); err != nil {
		return nil, asStatus(err)
	}
	return &api.DeactivateReply{Nodes: s.pictures(names)}, nil
}
