package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// unsaidBeats is how many beats in a row without notice and drain mean that an announced decommission was withdrawn while no coordinator
// could hear it.
const unsaidBeats = 3

// membership is the service that agents call. Their certificates say which node calls.
type membership struct {
	api.UnimplementedMembershipServer
	*fleet
}

func (s *membership) Register(ctx context.Context, r *api.RegisterRequest) (*api.RegisterReply, error) {
	name, err := speaker(ctx, r.GetNode())
	if err != nil {
		return nil, err
	}
	if err := checkRegister(r); err != nil {
		return nil, err
	}
	now := time.Now()
	// A DECOMMISSIONED node that registers has come back to stay, unless it only reattaches. It reattaches if its process has registered
	// with this leader before, or if it has not because this leader is the one that is new.
	p := s.leases.read(name)
	reattach := p.registers(r) || !p.registered && (now.Sub(s.leases.tookOver()) <= s.cfg.Lease || p.heard)
	c := registry.Command{
		Do: registry.DoRegister, Nodes: []string{name}, UnderNotice: watched(r.Status), Reattach: reattach,
		Facts: &registry.Facts{Incarnation: r.Incarnation, PeerAddress: r.PeerAddress, Zone: r.Zone, Pool: r.Pool, Version: r.Version},
	}
	if err := s.hosts.admit(c); err != nil {
		return nil, err
	}
	was, _ := s.ledger.node(name)
	if was.Incarnation == r.Incarnation && s.leases.repeats(name, r) { // a cut link held it back: it must not undo what has happened since
		return &api.RegisterReply{NodeId: was.ID, Pace: s.paceTo(was), Term: s.ledger.reign()}, nil
	}
	if s.leases.fences(name, r.Incarnation, now) {
		return nil, asStatus(fmt.Errorf("node %s: %w", name, registry.ErrIncarnation))
	}
	if was.State != registry.Active && !was.Leaving() { // else a namesake that is refused would keep it from being LOST
		s.leases.returns(name, now)
	}
	if _, err := s.quotas.doFor(name, c); err != nil {
		return nil, asStatus(err)
	}
	s.leases.register(name, r, now)
	if was.Incarnation != r.Incarnation {
		s.leases.fence(name, was.Incarnation)
	}
	s.silence.hears(name, r.Status)
	s.lives.apps.hear(name, r.Status)
	s.roster.change()
	n, _ := s.ledger.node(name)
	s.bars.heedNotice(n, r.Status)
	return &api.RegisterReply{NodeId: n.ID, Pace: s.paceTo(n), Term: s.ledger.reign(), Namesake: n.Namesake}, nil
}

func (s *membership) Heartbeat(ctx context.Context, r *api.HeartbeatRequest) (*api.HeartbeatReply, error) {
	name, err := speaker(ctx, r.GetNode())
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(checkIncarnation(r.Incarnation), checkStatus(r.Status)); err != nil {
		return nil, err
	}
	n, known := s.ledger.node(name)
	if !known || n.Incarnation != r.Incarnation {
		s.metrics.beats.WithLabelValues("unknown").Inc()
		return s.reply(n, &api.HeartbeatReply{Register: true}), nil
	}
	if s.leases.overtaken(name, r.Sequence) {
		s.metrics.beats.WithLabelValues("overtaken").Inc()
		// What a reply leaves out of these two counts as taken back.
		reply := &api.HeartbeatReply{Directive: s.leavers.directive(n, s.ledger.steady.now()), Again: s.locations.again(n), PeersVersion: r.PeersVersion}
		return s.reply(n, reply), nil
	}
	s.silence.hears(name, r.Status)
	changed, unsaid := s.leases.beat(name, r.Status, time.Now())
	s.lives.apps.hear(name, r.Status)
	if changed {
		s.roster.change()
	}
	if !s.leases.read(name).registered || n.State == registry.Lost || n.State == registry.Shutdown || s.welcome(n, r.Status) {
		// A node that registers reports its blocks, which a new leader needs; and a node that is away comes back by registering.
		s.metrics.beats.WithLabelValues("reattach").Inc()
		return s.reply(n, &api.HeartbeatReply{Register: true}), nil
	}
	s.metrics.beats.WithLabelValues("known").Inc()
	if n, err = s.heal(n, r.Status, unsaid); err != nil {
		return nil, asStatus(err)
	}
	if n, err = s.heedDisks(n, r.Status); err != nil {
		return nil, asStatus(err)
	}
	s.bars.heedNotice(n, r.Status)
	if err := s.lives.tellLate(n, r.Status); err != nil {
		return nil, asStatus(err)
	}
	reply := s.reply(n, &api.HeartbeatReply{Directive: s.leavers.directive(n, s.ledger.steady.now()), Again: s.locations.again(n)})
	reply.PeersVersion, reply.Peers = s.roster.peersOf(name, r.PeersVersion)
	reply.RevokedVersion, reply.Revoked = s.access.revoked(r.RevokedVersion)
	s.access.knowsMore(name, r.RevokedVersion, reply.RevokedVersion)
	if n := s.locations.blocks.EndsOf(name); n > 0 {
		reply.Lapses = s.ledger.reign()<<32 | uint64(n) // with the term, because a new leader counts from 0
	}
	s.ledger.view(func(m *registry.Registry) {
		reply.Unaccounted = unaccounted(n, r.Status) && !m.Told(n, r.Status.GetAccounted())
		reply.AppsChanged = m.LivesSaid
	})
	return reply, nil
}

// welcome reports whether a node whose decommission was undone may come back: neither a notice nor the host files nor maintenance is
// against it.
func (s *membership) welcome(n registry.Node, st *api.Status) bool {
	return n.MayReturn() && !watched(st) && !s.hosts.inForce().Lists.Judge(n.Name, n.PeerAddress).Excluded() &&
		s.maintenance.scheduled().Of(n.Name, n.PeerAddress, time.Now()).Mode() != registry.ModeDown
}

// heal brings the node's state in line with its status, in case it announced or withdrew a notice while no coordinator could hear it.
func (s *membership) heal(n registry.Node, st *api.Status, unsaid int) (registry.Node, error) {
	c := registry.Command{Nodes: []string{n.Name}, Incarnation: n.Incarnation}
	switch d := n.Decommission; {
	case (n.State == registry.Active || n.Leaving()) && leaves(st) && checkAnnounced(st.Notice) == nil:
		c.Do, c.Notice = registry.DoAnnounce, noticeFrom(st.Notice, time.Now())
	case (n.Leaving() || n.State == registry.Decommissioned) && d != nil && d.Order == nil && d.Notice != nil && (unsaid >= unsaidBeats || staysSince(d.Notice, st)):
		c.Do, c.Incident = registry.DoWithdraw, d.Notice.Incident
	default:
		return n, nil
	}
	events, err := s.quotas.doFor(n.Name, c)
	if err != nil || len(events) == 0 {
		return n, unlessOften(err)
	}
	n, _ = s.ledger.node(n.Name)
	return n, nil
}

// staysSince reports whether a node is over the notice that it left for, and is now under another one, for which it does not leave.
func staysSince(left *registry.Notice, st *api.Status) bool {
	n := st.GetNotice()
	return n.GetIncident() != "" && n.Incident != left.Incident && !leaves(st)
}

// unaccounted reports whether the registry lacks the manifest of the incident that the node says it has accounted for: it gave that to a
// coordinator whose log is lost, or that was restored from an older snapshot.
func unaccounted(n registry.Node, st *api.Status) bool {
	given := st.GetAccounted()
	return given != "" && (n.Leaving() || n.State == registry.Decommissioned) && (n.Manifest == nil || n.Manifest.Incident != given)
}

func (s *membership) WorkerDecommission(ctx context.Context, r *api.WorkerDecommissionRequest) (*api.WorkerDecommissionReply, error) {
	name, err := speaker(ctx, r.GetNode())
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(checkIncarnation(r.Incarnation), checkAnnounced(r.Notice)); err != nil {
		return nil, err
	}
	if s.leases.overtaken(name, r.Sequence) {
		return &api.WorkerDecommissionReply{}, nil
	}
	now := time.Now()
	_, err = s.quotas.doFor(name, registry.Command{
		Do: registry.DoAnnounce, Nodes: []string{name},
		Incarnation: r.Incarnation, Notice: noticeFrom(r.Notice, now),
	})
	return &api.WorkerDecommissionReply{}, asStatus(err)
}

func checkAnnounced(n *api.Notice) error {
	if n.GetIncident() == "" {
		return fault("notice without an incident: name the incident, so that repeating it is no second one")
	}
	return checkNotice(n)
}

func (s *membership) WithdrawDecommission(ctx context.Context, r *api.WithdrawDecommissionRequest) (*api.WithdrawDecommissionReply, error) {
	name, err := speaker(ctx, r.GetNode())
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(checkIncarnation(r.Incarnation), checkWord("incident", r.Incident, maxWord)); err != nil {
		return nil, err
	}
	if s.leases.overtaken(name, r.Sequence) { // by a beat of the same moment, which does not tell of the withdrawal, or by another notice
		return nil, overtakenBy(name)
	}
	_, err = s.quotas.doFor(name, registry.Command{Do: registry.DoWithdraw, Nodes: []string{name}, Incarnation: r.Incarnation, Incident: r.Incident})
	return &api.WithdrawDecommissionReply{}, asStatus(err)
}

// overtakenBy is the error for a message that a newer one overtook, if no later message repeats what it says.
func overtakenBy(node string) error {
	return status.Errorf(codes.Aborted, "a newer word of node %s was heard: say it again if it is so still", node)
}

func (s *membership) ReportUnavailable(ctx context.Context, r *api.ReportUnavailableRequest) (*api.ReportUnavailableReply, error) {
	name, err := speaker(ctx, r.GetNode())
	if err != nil {
		return nil, err
	}
	if err := checkIncarnation(r.Incarnation); err != nil {
		return nil, err
	}
	if s.leases.overtaken(name, r.Sequence) { // a cut link held it back: the node is here again
		return nil, overtakenBy(name)
	}
	_, err = s.quotas.doFor(name, registry.Command{Do: registry.DoUnavailable, Nodes: []string{name}, Incarnation: r.Incarnation})
	return &api.ReportUnavailableReply{}, asStatus(err)
}

func (s *membership) registered(name, incarnation string) error {
	switch n, known := s.ledger.node(name); {
	case !known:
		return status.Errorf(codes.NotFound, "node %s is not known here: it must register first", name)
	case n.Incarnation != incarnation:
		return status.Errorf(codes.FailedPrecondition, "node %s is registered with incarnation %s, not %q: it must register first", name, n.Incarnation, incarnation)
	}
	return nil
}

func (s *membership) Locate(ctx context.Context, r *api.LocateRequest) (*api.LocateReply, error) {
	asker, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	return s.locations.locateFor(asker.Name, r)
}
