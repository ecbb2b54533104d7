package agent

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/fallback"
	"github.com/lifeboat/lifeboat/localsock"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/preemption"
)

func (l *local) Simulate(ctx context.Context, r *api.SimulateRequest) (*api.SimulateReply, error) {
	return l.agent.Simulate(ctx, r)
}

// Simulate sends a pretended notice along the path of a real one: through the watcher, the policy and the journal, into the
// drain. A dry run stops before anything is written or done.
func (a *Agent) Simulate(ctx context.Context, r *api.SimulateRequest) (*api.SimulateReply, error) {
	kind, err := preemption.ParseKind(r.Kind)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	deadline, err := localsock.Rehearsal(r.In, r.DryRun, r.Reason)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	n := preemption.Notice{
		Source: preemption.SourceRehearsal, ID: preemption.SourceRehearsal, Kind: kind, Deadline: deadline, SeenAt: now, Appointed: kind.Appointed(),
		Reason: "rehearsal", Stance: a.limits.policy().Stance(kind),
	}
	if r.Reason != "" {
		n.Reason = "rehearsal: " + r.Reason
	}
	if i := a.incidents.current(); !r.DryRun && len(i.InForce()) > 0 && !i.From(preemption.SourceRehearsal) {
		return nil, status.Errorf(codes.FailedPrecondition, "the node is under notice in earnest (%s says %s): this is no time to rehearse", i.Source(), i.Kind())
	}
	i := preemption.Open(n)
	reply := &api.SimulateReply{Goes: string(n.Stance)}
	_, begun := a.incidents.Open()
	if !r.DryRun && n.Stance.AtLeast(preemption.StanceWatch) {
		if i, err = a.course.say(ctx, n); err != nil {
			return nil, status.FromContextError(err).Err()
		}
		reply.Incident = i.ID
	}
	stance, changes := i.Stance(now, a.course.estimate())
	reply.Stance = string(stance)
	begins := now
	if !changes.IsZero() {
		reply.Changes, begins = durationpb.New(changes.Sub(now)), changes
	}
	if !n.Stance.AtLeast(preemption.StancePreCopy) {
		return reply, nil
	}
	if n.Stance.AtLeast(preemption.StanceDrain) {
		reply.SendFor = durationpb.New(a.limits.sendUntil(i).Sub(begins))
		reply.Actions = a.workloads.plans(i)
	}
	peers, room, unreached := a.fleet.peers(), a.fallback.is.Load().lastRoom(), []string(nil)
	if r.DryRun { // otherwise the drain asks
		peers, room, unreached = a.ask(ctx)
	}
	held, err := a.drainable(ctx, peers, room)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	reply.Blocks, reply.Bytes, reply.TakenBytes = held.Blocks, held.Bytes, held.takes
	if reply.SendFor == nil {
		return reply, nil
	}
	if !begun {
		reply.Unreached = unreached
		a.foresee(reply, held, peers)
	}
	reply.StayingBlocks, reply.StayingBytes, reply.UnreadDirectories, reply.Staying = held.stays.Blocks, held.stays.Bytes, held.unread, held.why
	reply.LostBytes += held.stays.Bytes
	return reply, nil
}

// ask asks the peers and the fallback what room they have now, all at once as a drain does. unreached names those that did
// not answer.
func (a *Agent) ask(ctx context.Context) (answered []migration.Peer, room *fallback.Room, unreached []string) {
	peers := a.fleet.peers()
	failed := make([]error, len(peers)+1)
	var asking sync.WaitGroup
	for i := range peers {
		asking.Go(func() {
			peers[i], failed[i] = migration.AskRoom(ctx, peers[i], a.dialPeer, a.cfg.Node.Name, a.fleet.alone())
		})
	}
	asking.Go(func() { room, failed[len(peers)] = a.fallback.room(ctx) })
	asking.Wait()
	for i, err := range failed {
		switch {
		case err == nil && i < len(peers):
			answered = append(answered, peers[i])
		case err == nil:
		case i < len(peers):
			unreached = append(unreached, short(peers[i].Node+": "+err.Error(), longestReason))
		default:
			room, unreached = &fallback.Room{UnitBytes: 1}, append(unreached, short(a.fallback.lastResort.Peer()+": "+err.Error(), longestReason))
		}
	}
	return answered, room, unreached
}

// foresee fills in how a drain would end, as far as that is known before it begins: what the cap lets through, and what
// finds room.
func (a *Agent) foresee(r *api.SimulateReply, held load, peers []migration.Peer) {
	goes := r.Bytes
	if cap := a.limits.Load().Drain.MaxBytesPerSecond; cap > 0 && r.Changes == nil {
		goes = int64(min(float64(r.Bytes), float64(cap)*max(0, r.SendFor.AsDuration().Seconds())))
		r.CapBytes = new(goes)
	}
	own, vault := a.place.Load(), int64(0)
	for _, p := range peers {
		r.Peers++
		if p.Advised {
			r.AdvisedPeers++
		}
		if own.pool != "" && p.Pool == own.pool && p.Zone == own.zone {
			r.PoolRoomBytes += p.RoomBytes
		}
		r.RoomBytes += p.RoomBytes
		vault += p.RoomFor()
	}
	r.LargeBlocks, r.LargeBytes, r.Large = held.large.Blocks, held.large.Bytes, held.largeIDs
	if vault < r.RoomBytes {
		r.VaultRoomBytes = &vault
	}
	none := held.wants(peers)
	if f := a.fallback.wire(); f.GetTried() != nil && f.GetTrouble() == "" {
		r.Fallback = f.GetName()
		if held.room == nil {
			none = 0
		} else {
			r.FallbackRoomBytes, none = &held.room.Bytes, held.spills(none)
		}
	}
	r.LostBytes = r.Bytes - min(goes, r.Bytes-none)
}
