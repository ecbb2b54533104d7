package coordinator

import (
	"context"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// Deactivate is an operator's cordon. It is about a machine: it outlives restarts of the agent and of the coordinators, and another
// machine that takes the node's name is not deactivated. The node itself does nothing else than before, and its blocks are read as
// before. But schedulers see that it is not schedulable, and no drain has it as a peer.
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
	if _, err := s.auditor.decide(ctx, c); err != nil {
		return nil, asStatus(err)
	}
	return &api.DeactivateReply{Nodes: s.pictures(names)}, nil
}
