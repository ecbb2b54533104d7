package agent

import (
	"context"
	"errors"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/localsock"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/preemption"
)

// socketServer serves api.Local, blocks and the page to every process that may open the socket.
func (a *Agent) socketServer() *http.Server {
	calls := grpc.NewServer(grpc.UnaryInterceptor(localsock.Gate(a.log,
		api.Local_DecommissionSelf_FullMethodName, api.Local_Cancel_FullMethodName, api.Local_Simulate_FullMethodName,
		api.Local_EvacuateDisk_FullMethodName, api.Local_RemoveBlocks_FullMethodName, api.Local_SetValues_FullMethodName)))
	api.RegisterLocalServer(calls, &local{agent: a})
	page := http.NewServeMux()
	page.Handle("/blocks/", a.reader)
	page.HandleFunc("GET /healthz", healthy)
	page.Handle("GET /metrics", a.metrics())
	return localsock.Server(calls, byID(page), a.log)
}

// local implements api.Local on the machine's own socket.
type local struct {
	api.UnimplementedLocalServer
	agent *Agent
}

// longestReason bounds a reason, in bytes.
const longestReason = 1000

func (l *local) DecommissionSelf(ctx context.Context, r *api.DecommissionSelfRequest) (*api.DecommissionSelfReply, error) {
	deadline, err := localsock.Deadline("timeout", r.Timeout, r.Reason)
	if err != nil {
		return nil, err
	}
	i, err := l.agent.DecommissionSelf(ctx, preemption.SourceManual, deadline, r.Reason)
	if errors.Is(err, errIgnored) || errors.Is(err, preemption.ErrTakenBack) {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return &api.DecommissionSelfReply{Incident: i.ID, Remaining: preemption.Remaining(i.Deadline())}, nil
}

func (l *local) Cancel(ctx context.Context, r *api.CancelRequest) (*api.CancelReply, error) {
	cancelled, still := l.agent.Cancel(ctx, r.Reason)
	return &api.CancelReply{Cancelled: cancelled, Still: still}, nil
}

func (l *local) GetStatus(context.Context, *api.GetAgentStatusRequest) (*api.AgentStatus, error) {
	a := l.agent
	coordinator, answered, trouble := a.fleet.Health()
	s := &api.AgentStatus{
		Node: a.cfg.Node.Name, Incarnation: a.fleet.incarnation, Version: a.deps.Version, StartedAt: timestamppb.New(a.started), Status: a.status(),
		Coordinator: coordinator, CoordinatorTrouble: trouble, Peers: a.fleet.Peers(), Provider: a.cfg.Cloud.Resolve(),
	}
	_, changes := a.incidents.Stance()
	preemption.Tell(s, a.course.notices.Health(), a.incidents.current(), changes)
	s.WaitsFor = a.course.waits()
	s.Fallback = a.fallback.wire()
	s.DataDirTrouble = a.dataDirTrouble()
	s.CertificateBegins, s.CertificateEnds = timestamppb.New(a.deps.Identity.Begins()), timestamppb.New(a.deps.Identity.Expires())
	s.Evacuations = a.evacuations.wire(func(evacuation) bool { return true })
	if w := a.receiver.Unpacking(); w.Waiting.Blocks > 0 {
		s.Unpacking = &api.Unpacking{Blocks: w.Waiting.Blocks, Bytes: w.Waiting.Bytes, OccupiedBlocks: w.Occupied.Blocks}
	}
	if index := a.index.State(); !index.AsOf.IsZero() {
		s.Index = &api.Index{Blocks: index.Holds.Blocks, Bytes: index.Holds.Bytes, LargestBytes: index.Largest, Age: durationpb.New(time.Since(index.AsOf))}
	}
	if !answered.IsZero() {
		s.LastHeartbeat = durationpb.New(time.Since(answered))
	}
	if p, ok := a.lastPage(); ok && p.Work.Drained != nil {
		s.Manifest, s.ManifestTold = a.course.summary(p), p.Work.Told
	}
	return s, nil
}

func (a *Agent) lastPage() (page, bool) {
	p, ok, err := a.incidents.Last()
	if err != nil {
		a.log.Warn("the last incident cannot be read", "err", err)
	}
	return p, ok
}

// blocksPerMessage and entriesPerMessage keep messages far below gRPC's bound of 4 MiB.
const (
	blocksPerMessage  = 500
	entriesPerMessage = 500
)

func (l *local) ListBlocks(_ *api.ListBlocksRequest, stream grpc.ServerStreamingServer[api.ListBlocksReply]) error {
	a := l.agent
	reply := &api.ListBlocksReply{}
	send := func() error {
		if len(reply.Blocks) == 0 {
			return nil
		}
		err := stream.Send(reply)
		reply = &api.ListBlocksReply{}
		return err
	}
	worth := migration.Worth(a.stores, a.told)
	for it, err := range migration.Inventory(stream.Context(), a.stores, a.vault) {
		if err != nil {
			a.log.Warn("part of a store cannot be read", "err", err)
			continue
		}
		if !it.Carried() {
			continue
		}
		reply.Blocks = append(reply.Blocks, &api.BlockInfo{
			Id: string(it.ID), Bytes: it.Bytes(), State: "held", Holders: []string{a.cfg.Node.Name}, Value: apiValue(worth(it.Block)),
		})
		if len(reply.Blocks) >= blocksPerMessage {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return send()
}

func (l *local) GetManifest(_ *api.GetManifestRequest, stream grpc.ServerStreamingServer[api.GoodbyeRequest]) error {
	p, ok := l.agent.lastPage()
	if !ok || p.Work.Drained == nil {
		return status.Error(codes.NotFound, "this node has not drained: there is no manifest yet")
	}
	if err := l.agent.course.account(p, stream.Send); err != nil {
		return status.Error(codes.DataLoss, err.Error())
	}
	return nil
}
