package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// operator is the service that people and their programs call.
type operator struct {
	api.UnimplementedOperatorServer
	*fleet
	closing context.Context // ends when the server stops, and with it streams that follow events
}

const (
	// listBatch is how many items go into one message of a list.
	listBatch = 1000
	// mostUnread is how many manifests that cannot be read an error names: a restored fleet may lack thousands.
	mostUnread = 3
)

func (s *operator) ListNodes(context.Context, *api.ListNodesRequest) (*api.ListNodesReply, error) {
	reply := &api.ListNodesReply{}
	for _, n := range s.ledger.nodes() {
		reply.Nodes = append(reply.Nodes, s.picture(n))
	}
	return reply, nil
}

func (s *operator) GetNode(_ context.Context, r *api.GetNodeRequest) (*api.Node, error) {
	n, err := s.known(r.GetNode())
	if err != nil {
		return nil, err
	}
	return s.picture(n), nil
}

func (s *operator) known(name string) (registry.Node, error) {
	if err := checkWord("node", name, maxName); err != nil {
		return registry.Node{}, err
	}
	n, known := s.ledger.node(name)
	if !known {
		return registry.Node{}, status.Errorf(codes.NotFound, "node %q is not known here: lifeboat nodes lists those that are", name)
	}
	return n, nil
}

func (s *operator) Decommission(ctx context.Context, r *api.DecommissionRequest) (*api.DecommissionReply, error) {
	names, err := distinct(r.GetNodes())
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(checkSpan("timeout", r.Timeout), checkText("reason", r.Reason)); err != nil {
		return nil, err
	}
	timeout := s.cfg.DecommissionTimeout
	if r.Timeout != nil {
		timeout = max(r.Timeout.AsDuration(), hosts.Forever) // every negative one means the same
	}
	timeouts, err := timeoutsFrom(r)
	if err != nil {
		return nil, err
	}
	if r.LeavingOnly && (r.Drain || r.MarkGone) {
		return nil, fault("leaving_only with drain or mark_gone: those are for nodes that stay, too")
	}
	c := registry.Command{
		Do: registry.DoDecommission, Nodes: names, Order: &registry.Order{Timeout: timeout, Reason: r.Reason, Gone: r.MarkGone},
		Timeouts: timeouts, Drain: r.Drain, Reason: r.Reason,
		Unsaid: r.Timeout == nil, LeavingOnly: r.LeavingOnly}
	if _, err := s.auditor.decide(ctx, c); err != nil {
		return nil, asStatus(err)
	}
	return &api.DecommissionReply{Nodes: s.pictures(names)}, nil
}

// howItEnds is the remedy for a node that leaves on its own notice, which no operator's word from afar takes back.
const howItEnds = "run lifeboat cancel on the node, or wait for the cloud to withdraw it"

func (s *operator) Recommission(ctx context.Context, r *api.RecommissionRequest) (*api.RecommissionReply, error) {
	names, err := distinct(r.GetNodes())
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		// A node that is done and still under its own notice would be decommissioned again by its next heartbeat.
		p := s.leases.read(name)
		if n, _ := s.ledger.node(name); n.State == registry.Decommissioned && leaves(p.status) && p.status.Notice.Kind != registry.Echo && s.leases.present(n.Name) {
			return nil, status.Errorf(codes.FailedPrecondition, "node %s: %v (%s): %s", name, registry.ErrOwnNotice, p.status.Notice.Kind, howItEnds)
		}
	}
	if _, err := s.auditor.decide(ctx, registry.Command{Do: registry.DoRecommission, Nodes: names}); err != nil {
		return nil, asStatus(err)
	}
	return &api.RecommissionReply{Nodes: s.pictures(names)}, nil
}

func (s *operator) pictures(names []string) []*api.Node {
	var nodes []*api.Node
	for _, name := range names {
		if n, known := s.ledger.node(name); known {
			nodes = append(nodes, s.picture(n))
		}
	}
	return nodes
}

func (s *operator) Locate(ctx context.Context, r *api.LocateRequest) (*api.LocateReply, error) {
	reply, err := s.locations.locate(r)
	if err == nil && len(reply.Holders) == 0 && r.GetAfter() == "" {
		s.locations.nameSpilled(ctx, reply, r.GetId())
	}
	return reply, err
}

// ListBlocks lists the blocks that holders reported, then those that manifests name as lost, and then those that broke at their last
// holder.
func (s *operator) ListBlocks(r *api.ListBlocksRequest, stream grpc.ServerStreamingServer[api.ListBlocksReply]) error {
	if r.GetNode() != "" {
		if _, err := s.known(r.Node); err != nil {
			return err
		}
	}
	var batch []*api.BlockInfo
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		err := stream.Send(&api.ListBlocksReply{Blocks: batch})
		batch = nil
		return err
	}
	send := func(b *api.BlockInfo) error {
		if batch = append(batch, b); len(batch) < listBatch {
			return nil
		}
		return flush()
	}
	if err := s.locations.eachHeld(r.Node, send); err != nil {
		return err
	}
	unread, err := s.locations.eachLost(r.Node, send)
	if err != nil {
		return err
	}
	if err := s.locations.eachBroken(r.Node, send); err != nil {
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	if more := len(unread) - mostUnread; more > 0 {
		unread = append(unread[:mostUnread], fmt.Sprintf("and %d other manifests", more))
	}
	if len(unread) > 0 {
		return status.Error(codes.DataLoss, strings.Join(unread, "; "))
	}
	return nil
}

func (s *operator) GetManifest(r *api.GetManifestRequest, stream grpc.ServerStreamingServer[api.GoodbyeRequest]) error {
	n, err := s.known(r.GetNode())
	if err != nil {
		return err
	}
	if n.Manifest == nil {
		return status.Errorf(codes.NotFound, "node %s has no manifest: it is %s and has not said goodbye", n.Name, n.State)
	}
	if err := s.accounts.obtain(stream.Context(), n.Manifest); err != nil {
		return err
	}
	if err := stream.Send(&api.GoodbyeRequest{Summary: n.Manifest.Account()}); err != nil {
		return err
	}
	var batch []*api.ManifestEntry
	for e, err := range s.accounts.files.entries(n.Manifest) {
		if err != nil {
			return status.Error(codes.DataLoss, err.Error())
		}
		batch = append(batch, &api.ManifestEntry{Id: e.ID, Bytes: e.Bytes, Outcome: string(e.Outcome), Peer: e.Peer, Reason: e.Reason})
		if len(batch) == listBatch {
			if err := stream.Send(&api.GoodbyeRequest{Entries: batch}); err != nil {
				return err
			}
			batch = nil
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return stream.Send(&api.GoodbyeRequest{Entries: batch})
}

func (s *operator) GetStatus(ctx context.Context, r *api.GetStatusRequest) (*api.CoordinatorStatus, error) {
	if r.GetOfLeader() {
		if _, err := s.ledger.lead(); err != nil {
			return nil, err // the gate adds who leads
		}
	}
	reply := &api.CoordinatorStatus{
		Name: s.cfg.Name, Version: s.version, Leader: s.ledger.leads(), StartedAt: timestamppb.New(s.started.Round(0)), Hosts: s.hosts.shown(),
		Nodes: map[string]int64{}, BlocksLocated: int64(s.locations.located()), Term: s.ledger.raft.CurrentTerm(),
	}
	if !s.ledger.alone() {
		reply.LeaderName, reply.LeaderAddress = s.ledger.leader()
		reply.Members = s.succession.members(ctx)
	}
	if err := s.ledger.store.Ill(); err != nil {
		reply.DiskTrouble = err.Error()
	}
	reply.Subscribers = int64(s.audience.count())
	c := s.ledger.count()
	for state, n := range c.nodes {
		reply.Nodes[string(state)] = n
	}
	reply.BlocksLost, reply.LastIndex = c.lost, c.lastEvent
	s.silence.statusTo(reply)
	return reply, nil
}
