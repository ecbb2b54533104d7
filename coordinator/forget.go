package coordinator

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// Forget removes machines that never come back: forget_after would keep them, and the blocks that they reported, for days. A machine that
// does come back is a new node, unless it is GONE, which is remembered for longer than the node.
func (s *operator) Forget(ctx context.Context, r *api.ForgetRequest) (*api.ForgetReply, error) {
	names, err := distinct(r.GetNodes())
	if err != nil {
		return nil, err
	}
	if err := checkText("reason", r.GetReason()); err != nil {
		return nil, err
	}
	reply := &api.ForgetReply{}
	for _, name := range names {
		n, _ := s.ledger.node(name) // the registry refuses unknown nodes
		if n.Forgettable() && s.leases.present(n.Name) {
			return nil, status.Errorf(codes.FailedPrecondition, "node %s is %s and was heard less than %s ago: stop its agent, and forget it once it was silent for that long", name, n.Shown(), s.cfg.Lease)
		}
		reply.Nodes = append(reply.Nodes, &api.ForgottenNode{Node: name, Id: n.ID, State: string(n.Shown()), Blocks: int64(s.locations.blocks.HeldBy(name))})
	}
	if _, err := s.auditor.decide(ctx, registry.Command{Do: registry.DoForget, Named: true, Nodes: names, Reason: r.GetReason()}); err != nil {
		return nil, asStatus(err)
	}
	return reply, nil
}
