package sidecar

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/localsock"
	"github.com/lifeboat/lifeboat/preemption"
)

// local implements api.Local on the machine's own socket. A sidecar carries no blocks, so it lists none and has no manifest.
type local struct {
	api.UnimplementedLocalServer
	sidecar *Sidecar
}

func (l *local) GetStatus(context.Context, *api.GetAgentStatusRequest) (*api.AgentStatus, error) {
	return l.sidecar.status(), nil
}

func (l *local) DecommissionSelf(ctx context.Context, r *api.DecommissionSelfRequest) (*api.DecommissionSelfReply, error) {
	deadline, err := localsock.Deadline("timeout", r.Timeout, r.Reason)
	if err != nil {
		return nil, err
	}
	i, err := l.sidecar.say(ctx, preemption.Notice{
		Source: preemption.SourceManual, ID: preemption.SourceManual, Kind: preemption.KindManual, Deadline: deadline, Reason: r.Reason,
	})
	if err != nil {
		return nil, refusal(err)
	}
	return &api.DecommissionSelfReply{Incident: i.ID, Remaining: preemption.Remaining(i.Deadline())}, nil
}

func (l *local) Cancel(ctx context.Context, r *api.CancelRequest) (*api.CancelReply, error) {
	cancelled, still := l.sidecar.cancel(ctx, r.Reason)
	return &api.CancelReply{Cancelled: cancelled, Still: still}, nil
}

// Simulate sends a pretended notice along the path of a real one: the actions are told of it, and that it is a rehearsal. A
// dry run lists the actions that would be told, and tells none.
func (l *local) Simulate(ctx context.Context, r *api.SimulateRequest) (*api.SimulateReply, error) {
	s := l.sidecar
	kind, err := preemption.ParseKind(r.Kind)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	deadline, err := localsock.Rehearsal(r.In, r.DryRun, r.Reason)
	if err != nil {
		return nil, err
	}
	n := preemption.Notice{
		Source: preemption.SourceRehearsal, ID: preemption.SourceRehearsal, Kind: kind, Deadline: deadline, SeenAt: time.Now(),
		Appointed: kind.Appointed() && !deadline.IsZero(), Stance: s.policy.Load().Stance(kind), Reason: "rehearsal",
	}
	if r.Reason != "" {
		n.Reason += ": " + r.Reason
	}
	i := preemption.Open(n)
	reply := &api.SimulateReply{Goes: string(n.Stance)}
	if !r.DryRun && n.Stance.AtLeast(preemption.StanceWatch) {
		if p, open := s.incidents.Open(); open && len(p.Incident.InForce()) > 0 && !p.Incident.From(preemption.SourceRehearsal) {
			return nil, status.Errorf(codes.FailedPrecondition, "the node is under notice in earnest (%s says %s): this is no time to rehearse",
				p.Incident.Source(), p.Incident.Kind())
		}
		if i, err = s.say(ctx, n); err != nil {
			return nil, refusal(err)
		}
		reply.Incident = i.ID
	}
	stance, changes := i.Stance(time.Now(), 0)
	reply.Stance, reply.Changes = string(stance), preemption.Remaining(changes)
	for _, a := range s.actions {
		if n.Stance.AtLeast(a.when) {
			reply.Actions = append(reply.Actions, a.plan())
		}
	}
	return reply, nil
}

// plan describes in one line what the action does, and when.
func (a *action) plan() string {
	phases := make([]string, len(a.phases))
	for i, p := range a.phases {
		phases[i] = string(p)
	}
	return fmt.Sprintf("%s: %s (from %s on: %s)", a.name, a.String(), a.when, strings.Join(phases, ", "))
}

func refusal(err error) error {
	if errors.Is(err, errIgnored) || errors.Is(err, preemption.ErrTakenBack) {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return status.FromContextError(err).Err()
}
