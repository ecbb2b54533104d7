package coordinator

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
)

// errNotAway is why a node may not be forgotten by name: whoever else is gone may come back to what is remembered of it.
var errNotAway = errors.New("only a node that is LOST or GONE is forgotten")

// forgettable says whether an operator may have n forgotten.
func (n node) forgettable() bool { return n.State == Lost || n.shown() == Gone }

// Forget is for machines that never come back: forget_after would keep them, and what they were said to hold, for days. One that does
// comes back as a new node, unless it is GONE, which is remembered for longer than the node.
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
		n, _ := s.node(name) // the machine refuses what is not known
		if n.forgettable() && s.present(n) {
			return nil, status.Errorf(codes.FailedPrecondition, "node %s is %s and still heard: stop its agent first", name, n.shown())
		}
		reply.Nodes = append(reply.Nodes, &api.ForgottenNode{Node: name, Id: n.ID, State: string(n.shown()), Blocks: int64(s.blocks.HeldBy(name))})
	}
	if _, err := s.decide(ctx, command{Do: doForget, Named: true, Nodes: names, Reason: r.GetReason()}); err != nil {
		return nil, asStatus(err)
	}
	return reply, nil
}

// keptFates bounds the forgotten nodes of which it is known since when they are gone, some 50 bytes each.
const keptFates = 16384

// fates are since when nodes are gone that are forgotten: what was born on one stays with whoever took it for receive.keep from then on,
// which may be longer than forget_after.
type fates map[string]time.Time

// with is fates with nodes that are forgotten. One that was done may have stayed until now.
func (f fates) with(forgotten []node, now time.Time) fates {
	if len(forgotten) == 0 {
		return f
	}
	if f = maps.Clone(f); f == nil {
		f = fates{}
	}
	for _, n := range forgotten {
		if f[n.Name] = n.Since; n.State == Decommissioned {
			f[n.Name] = now
		}
	}
	if more := len(f) - keptFates; more > 0 {
		names := slices.SortedFunc(maps.Keys(f), func(a, b string) int { return cmp.Or(f[a].Compare(f[b]), cmp.Compare(a, b)) })
		for _, name := range names[:more] {
			delete(f, name)
		}
	}
	return f
}
