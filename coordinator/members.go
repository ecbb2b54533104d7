package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/coordinator/raftstore"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// changePatience bounds one change of the members: a new one may have to be sent a snapshot first.
const changePatience = 30 * time.Second

// members are the coordinators as the API has them; nil for a coordinator on its own.
func (s *succession) members(ctx context.Context) (members []*api.Member) {
	if s.ledger.alone() {
		return nil
	}
	leader, _ := s.ledger.leader()
	applied, said := s.ledger.applied(), s.colleagues.positions(ctx)
	for _, server := range s.ledger.members() {
		m := &api.Member{Name: string(server.ID), Address: string(server.Address), Leader: string(server.ID) == leader}
		at := said[m.Name]
		switch {
		case server.ID == s.ledger.own:
			m.Reached, m.Version, m.Leaving = true, s.version, s.unfit() != ""
		case at.Position != nil:
			m.Reached, m.Version = true, at.Version
			m.Lag = applied - min(applied, at.Applied)
			m.Skew = durationpb.New(at.ahead)
		}
		if server.ID != s.ledger.own {
			m.Leaving = s.memberGoes(m.Address, at.Position)
		}
		members = append(members, m)
	}
	return members
}

// errAlone refuses calls that need several coordinators.
var errAlone = status.Error(codes.FailedPrecondition, "there is one coordinator only: set peers in its settings to have more")

// TransferLeadership has another coordinator lead.
func (s *operator) TransferLeadership(ctx context.Context, r *api.TransferLeadershipRequest) (*api.TransferLeadershipReply, error) {
	if s.ledger.alone() {
		return nil, errAlone
	}
	if to := r.GetTo(); to != "" {
		switch {
		case !among(s.ledger.servers(), raft.ServerID(to)):
			return nil, noMember(to)
		case to == s.cfg.Name:
			return &api.TransferLeadershipReply{Leader: to}, nil
		}
	}
	if err := s.auditor.begin(ctx); err != nil {
		return nil, err
	}
	if err := s.succession.handOver(ctx, r.GetTo()); err != nil {
		return nil, status.Errorf(codes.Aborted, "%v: %s leads still", err, s.cfg.Name)
	}
	leader := s.succession.successor(ctx)
	s.log.Info("leadership was handed over", "to", leader)
	return &api.TransferLeadershipReply{Leader: leader}, nil
}

func noMember(name string) error {
	return status.Errorf(codes.NotFound, "coordinator %q is no member: lifeboat raft members lists those that are", name)
}

// handOver makes a coordinator the leader: the one that is named, or without a name the best one (makeWay).
func (s *succession) handOver(ctx context.Context, to string) error {
	if to != "" {
		return s.ledger.handOver(to)
	}
	if _, err := s.makeWay(ctx); !errors.Is(err, errNoHeir) {
		return err
	}
	return s.ledger.handOver("")
}

// successor waits for the new leader, and returns its name; empty: none was heard within the time of an election.
func (s *succession) successor(ctx context.Context) string {
	s.ledger.await(ctx)
	if name, _ := s.ledger.leader(); name != s.cfg.Name {
		return name
	}
	return ""
}

// ChangeMembers removes and adds coordinators one at a time, each change by a majority of the members at that moment. Removals come
// first, because a dead member makes every majority harder.
func (s *operator) ChangeMembers(ctx context.Context, r *api.ChangeMembersRequest) (*api.ChangeMembersReply, error) {
	if s.ledger.alone() {
		return nil, errAlone
	}
	were := s.ledger.servers()
	if err := checkRemoved(were, r); err != nil && !s.auditor.repeats(ctx) { // a former leader may have removed them for this very call
		return nil, err
	}
	will, err := membersAfter(were, r)
	if err != nil {
		return nil, err
	}
	if slices.Contains(r.GetRemove(), s.cfg.Name) && among(were, s.ledger.own) {
		return nil, s.leaveTo(ctx, will)
	}
	if err := s.auditor.begin(ctx); err != nil {
		return nil, err
	}
	for _, m := range were {
		if slices.Contains(r.GetRemove(), string(m.ID)) {
			if err := s.ledger.store.UnlessHung(s.ledger.raft.RemoveServer(m.ID, 0, changePatience).Error); err != nil {
				return nil, unchanged("remove", m, err)
			}
			s.log.Warn("a coordinator was removed", "name", string(m.ID), "address", string(m.Address))
		}
	}
	for _, m := range will {
		if !slices.Contains(were, m) || slices.Contains(r.GetRemove(), string(m.ID)) { // the latter is replaced by itself with an empty disk
			if err := s.ledger.store.UnlessHung(s.ledger.raft.AddVoter(m.ID, m.Address, 0, changePatience).Error); err != nil {
				return nil, unchanged("add", m, err)
			}
			s.log.Warn("a coordinator was added", "name", string(m.ID), "address", string(m.Address))
		}
	}
	return &api.ChangeMembersReply{Members: s.succession.members(ctx)}, nil
}

// leaveTo hands the lead to a coordinator that is to stay, when the leader itself is to be removed. The error sends the caller to that one
// with the same call.
func (s *operator) leaveTo(ctx context.Context, will []raft.Server) error {
	var errs []error
	for _, to := range s.succession.heirs(ctx) {
		if !among(will, raft.ServerID(to)) {
			continue
		}
		err := s.ledger.handOver(to)
		if err == nil {
			s.ledger.await(ctx)
			s.log.Info("leadership was handed over by a coordinator that is to be removed", "to", to)
			return overtaken{errFollows}
		}
		errs = append(errs, err)
	}
	return status.Errorf(codes.FailedPrecondition, "%s leads now, and none that is to stay can take the lead (%v): lifeboat raft members shows who answers",
		s.cfg.Name, errors.Join(errs...))
}

func unchanged(what string, m raft.Server, err error) error {
	if _, hangs := errors.AsType[raftstore.HangsError](err); hangs || errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipLost) || errors.Is(err, raft.ErrLeadershipTransferInProgress) {
		return overtaken{errDeposed}
	}
	return status.Errorf(codes.Aborted, "%s coordinator %s at %s: %v: lifeboat raft members shows what was done", what, m.ID, m.Address, err)
}

// checkRemoved refuses to remove a coordinator that is no member, unless the call also adds one: then it may replace one that was removed
// already.
func checkRemoved(were []raft.Server, r *api.ChangeMembersRequest) error {
	if len(r.GetAdd()) > 0 {
		return nil
	}
	for _, name := range r.GetRemove() {
		if !among(were, raft.ServerID(name)) {
			return noMember(name)
		}
	}
	return nil
}

// membersAfter are the members after a change, or the reason why it is refused.
func membersAfter(were []raft.Server, r *api.ChangeMembersRequest) ([]raft.Server, error) {
	will := slices.Clone(were)
	for _, name := range r.GetRemove() {
		will = slices.DeleteFunc(will, func(m raft.Server) bool { return string(m.ID) == name })
	}
	for _, m := range r.GetAdd() {
		if err := (certs.Name{Role: certs.RoleCoordinator, Name: m.GetName()}).Check(); err != nil {
			return nil, fault("coordinator %q: %v", m.GetName(), err)
		}
		if wrong := undialled(m.GetAddress()); wrong != "" {
			return nil, fault("coordinator %s: address %q: %s", m.Name, m.GetAddress(), wrong)
		}
		will = slices.DeleteFunc(will, func(w raft.Server) bool { return string(w.ID) == m.Name })
		if i := slices.IndexFunc(will, func(w raft.Server) bool { return string(w.Address) == m.Address }); i >= 0 {
			return nil, fault("coordinator %s: address %s is %s's", m.Name, m.Address, will[i].ID)
		}
		will = append(will, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(m.Name), Address: raft.ServerAddress(m.Address)})
	}
	switch n := len(will); {
	case n == 0:
		return nil, status.Error(codes.FailedPrecondition, "that would leave no coordinator")
	case n%2 == 0:
		return nil, status.Errorf(codes.FailedPrecondition,
			"that would leave %d coordinators: %[1]d survive no more failures than %d, and more may fail: change an even number at once, or replace one", n, n-1)
	case n > mostPeers:
		return nil, status.Errorf(codes.FailedPrecondition, "that would make %d coordinators: at most %d, every decision waits for more than half of them", n, mostPeers)
	}
	return will, nil
}

// undialled says why an address cannot be dialled, and the remedy; empty: it can be. A member that cannot be reached counts for the majority
// all the same, and so makes every other failure worse.
func undialled(address string) (wrong string) {
	config.CheckDial(func(_ string, _ any, bound, remedy string) { wrong = bound + ": " + remedy }, "", address)
	return wrong
}

// SaveSnapshot sends a snapshot of the registry, with everything that was decided before the call.
func (s *operator) SaveSnapshot(_ *api.SaveSnapshotRequest, stream grpc.ServerStreamingServer[api.SaveSnapshotReply]) error {
	if err := s.ledger.store.UnlessHung(s.ledger.raft.Barrier(changePatience).Error); err != nil {
		return asStatus(s.ledger.whyNot(err))
	}
	if err := s.ledger.fsm.trouble(); err != nil {
		return status.Error(codes.DataLoss, err.Error())
	}
	var frozen *registry.Registry
	s.ledger.view(func(m *registry.Registry) { frozen = m.Freeze() })
	return writeSnapshot(frozen, &parts{stream})
}

type parts struct {
	stream grpc.ServerStreamingServer[api.SaveSnapshotReply]
}

func (p *parts) Write(b []byte) (int, error) {
	for part := range slices.Chunk(b, manifestPart) {
		if err := p.stream.Send(&api.SaveSnapshotReply{Data: part}); err != nil {
			return 0, fmt.Errorf("send the snapshot: %w", err)
		}
	}
	return len(b), nil
}

var _ io.Writer = (*parts)(nil)
