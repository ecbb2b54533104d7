package agent

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/preemption"
)

// socketServer speaks gRPC (api.Local) and plain HTTP on one socket: who may open it is decided by its mode, who may
// change something by what the kernel says of the caller.
func (a *Agent) socketServer() *http.Server {
	calls := grpc.NewServer(grpc.UnaryInterceptor(a.authorise))
	api.RegisterLocalServer(calls, &local{agent: a})
	mux := http.NewServeMux()
	mux.Handle("/blocks/", a.reader)
	mux.HandleFunc("GET /healthz", healthy)
	mux.Handle("GET /metrics", a.metrics())
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				calls.ServeHTTP(w, r)
				return
			}
			mux.ServeHTTP(w, r)
		}),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, callerKey{}, callerOf(c))
		},
		ReadHeaderTimeout: handshakeTimeout,
		IdleTimeout:       time.Minute,
		ErrorLog:          a.quiet(),
		Protocols:         new(http.Protocols),
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	return s
}

type callerKey struct{}

// caller is the process at the other end of the socket, in the kernel's words.
type caller struct {
	known bool
	uid   uint32
	pid   int32
}

func callerOf(c net.Conn) caller {
	conn, ok := c.(syscall.Conn)
	if !ok {
		return caller{}
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return caller{}
	}
	var cred *unix.Ucred
	if raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return caller{}
	}
	return caller{known: true, uid: cred.Uid, pid: cred.Pid}
}

// changing lists the calls that change something: for root and the agent's own user.
var changing = map[string]bool{api.Local_DecommissionSelf_FullMethodName: true, api.Local_Cancel_FullMethodName: true}

func (a *Agent) authorise(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if !changing[info.FullMethod] {
		return next(ctx, req)
	}
	who, _ := ctx.Value(callerKey{}).(caller)
	if !who.known {
		return nil, status.Error(codes.PermissionDenied, "the kernel does not say who calls")
	}
	if who.uid != 0 && int(who.uid) != os.Geteuid() {
		return nil, status.Errorf(codes.PermissionDenied, "uid %d may look but not decommission: ask as root or as the agent's user", who.uid)
	}
	a.log.Info("asked on the socket", "method", info.FullMethod, "uid", who.uid, "pid", who.pid)
	return next(ctx, req)
}

// local answers on the machine's own socket.
type local struct {
	api.UnimplementedLocalServer
	agent *Agent
}

// longestLead bounds a deadline that a caller may give: a year is as good as none.
const longestLead = 366 * 24 * time.Hour

func (l *local) DecommissionSelf(ctx context.Context, r *api.DecommissionSelfRequest) (*api.DecommissionSelfReply, error) {
	var deadline time.Time
	if r.Timeout != nil {
		lead := r.Timeout.AsDuration()
		if lead < 0 || lead > longestLead {
			return nil, status.Errorf(codes.InvalidArgument, "timeout %s: want 0 to %s, or none", lead, longestLead)
		}
		deadline = time.Now().Add(lead)
	}
	if len(r.Reason) > 1000 {
		return nil, status.Errorf(codes.InvalidArgument, "reason of %d bytes, at most 1000", len(r.Reason))
	}
	i, err := l.agent.DecommissionSelf(ctx, preemption.SourceManual, deadline, r.Reason)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	return &api.DecommissionSelfReply{Incident: i.ID, Remaining: remaining(i.Deadline())}, nil
}

func (l *local) Cancel(ctx context.Context, r *api.CancelRequest) (*api.CancelReply, error) {
	cancelled, still := l.agent.Cancel(ctx, r.Reason)
	return &api.CancelReply{Cancelled: cancelled, Still: still}, nil
}

func (l *local) GetStatus(context.Context, *api.GetAgentStatusRequest) (*api.AgentStatus, error) {
	a := l.agent
	coordinator, answered, trouble := a.beat.Health()
	s := &api.AgentStatus{
		Node: a.cfg.Node.Name, Version: a.deps.Version, StartedAt: timestamppb.New(a.started), Status: a.status(),
		Coordinator: coordinator, CoordinatorTrouble: trouble, Peers: a.beat.Peers(),
	}
	s.Incarnation, _ = incarnation(a.cfg.DataDir)
	if !answered.IsZero() {
		s.LastHeartbeat = durationpb.New(time.Since(answered))
	}
	if p, ok := a.lastPage(); ok && p.Drained != nil {
		s.Manifest = a.summary(p)
	}
	return s, nil
}

func (a *Agent) lastPage() (page, bool) {
	if p, open := a.news.read(); open {
		return p, true
	}
	p, ok, err := a.journal.last()
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
	for it, err := range migration.Inventory(stream.Context(), a.stores, a.vault) {
		if err != nil {
			a.log.Warn("part of a store cannot be read", "err", err)
			continue
		}
		if it.Skip != "" {
			continue
		}
		reply.Blocks = append(reply.Blocks, &api.BlockInfo{Id: string(it.ID), Bytes: it.Bytes(), State: "held", Holders: []string{a.cfg.Node.Name}})
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
	if !ok || p.Drained == nil {
		return status.Error(codes.NotFound, "this node has not drained: there is no manifest yet")
	}
	reply := &api.GoodbyeRequest{Summary: l.agent.summary(p)}
	for e, err := range l.agent.manifest(p.Incident.ID) {
		if err != nil {
			return status.Error(codes.DataLoss, err.Error())
		}
		reply.Entries = append(reply.Entries, e)
		if len(reply.Entries) >= entriesPerMessage {
			if err := stream.Send(reply); err != nil {
				return err
			}
			reply = &api.GoodbyeRequest{}
		}
	}
	return stream.Send(reply)
}
