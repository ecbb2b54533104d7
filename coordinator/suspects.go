package coordinator

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// Soft events about silence: only the present leader hears heartbeats.
const (
	evSuspect    = "NodeSuspect" // silent for too long to be trusted with blocks
	evTrusted    = "NodeTrusted" // and heard again
	evBrakeHolds = "BrakeHolds"
)

// brakes is the brake of a fleet, with the lock for its two users: the clock (reap) and operators' calls.
type brakes struct {
	mu sync.Mutex // guards what follows
	*brake
	suspects []suspect // as last judged
}

// begin forgets all, for a new term as the leader.
func (b *brakes) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
	b.suspects = nil
}

// judge makes nodes that have been silent for too long suspects, and returns those that are LOST now.
func (f *fleet) judge(now time.Time) (lost []string) {
	var suspects []suspect
	var fresh []string
	silent := f.leases.silent(now, f.cfg.suspectAfter())
	f.ledger.view(func(m *registry.Registry) {
		for _, name := range silent {
			n := m.Nodes[name]
			if n.State != registry.Active && !n.Leaving() {
				continue
			}
			p, newly := f.leases.watch(name, now, f.cfg.suspectAfter())
			if newly {
				fresh = append(fresh, name)
			}
			if p.suspected.IsZero() || n.Leaving() && !n.Decommission.Deadline().IsZero() { // heard meanwhile; or its deadline ends it
				continue
			}
			suspects = append(suspects, suspect{
				node: name, of: part{n.Pool, n.Zone}, since: p.seen, overdue: now.Sub(p.seen) > f.cfg.Lease,
				announced: n.Leaving() || watched(p.status),
			})
		}
	})
	for _, name := range slices.Sorted(slices.Values(fresh)) {
		f.bursts.silent.saw(f.log, name)
		f.herald.tell(evSuspect, name, nil)
	}
	if len(fresh) > 0 {
		f.roster.change()
	}

	f.brakes.mu.Lock()
	f.brakes.suspects = suspects
	lost, news := f.brakes.judge(now, suspects, f.scopes)
	f.brakes.mu.Unlock()
	for _, b := range news {
		f.tellBrake(b, now)
	}
	return lost
}

// scopes counts the nodes that should be there, in the fleet and in each pool and zone.
func (f *fleet) scopes() map[scope]int {
	parts, noticed := map[part]int{}, f.leases.noticed()
	f.ledger.view(func(m *registry.Registry) {
		for name, n := range m.Nodes {
			if n.State == registry.Active && !noticed[name] {
				parts[part{n.Pool, n.Zone}]++
			}
		}
	})
	return byScope(parts)
}

func (f *fleet) tellBrake(b braking, now time.Time) {
	data := registry.Saying("scope", b.scope.kind, "name", b.scope.name, "suspects", strconv.Itoa(b.hold.suspects), "nodes", strconv.Itoa(b.hold.nodes))
	if b.holds {
		f.log.Error("a brake holds: too many nodes fell silent at once, and none of them is lost before they come back or lifeboat brake release says so",
			"scope", b.scope.String(), "suspects", b.hold.suspects, "nodes", b.hold.nodes)
		f.herald.tell(evBrakeHolds, "", data)
		return
	}
	f.log.Warn("a brake lets go", "scope", b.scope.String(), "suspects", b.hold.suspects, "took", now.Sub(b.hold.since).Round(time.Second))
	f.herald.tell(registry.EventBrakeReleased, "", data)
}

// hears notes that a node was heard, and tells if it was a suspect, or if the state of its clock has changed.
func (f *fleet) hears(name string, st *api.Status) {
	trusted, is, ahead := f.leases.hears(name, st)
	if trusted {
		f.bursts.heard.saw(f.log, name)
		f.herald.tell(evTrusted, name, nil)
		f.metrics.recovered.Inc()
		f.roster.change()
	}
	if is != nil {
		f.bursts.clock(name, *is, ahead)
	}
}

// livenessTo adds suspects, clocks and brakes to a status: only the leader knows them.
func (f *fleet) livenessTo(s *api.CoordinatorStatus) {
	if !f.ledger.leads() {
		return
	}
	suspects, apart, _ := f.leases.tally()
	s.Suspects, s.ClocksApart, s.Brakes = int64(suspects), int64(apart), f.brakesTo(time.Now())
}

func (f *fleet) brakesTo(now time.Time) (all []*api.Brake) {
	f.brakes.mu.Lock()
	defer f.brakes.mu.Unlock()
	for _, sc := range slices.SortedFunc(maps.Keys(f.brakes.holds), compareScopes) {
		h := f.brakes.holds[sc]
		all = append(all, &api.Brake{Scope: sc.kind, Name: sc.name, Suspects: int64(h.suspects), Nodes: int64(h.nodes), Age: durationpb.New(now.Sub(h.since))})
	}
	return all
}

// silent are the suspects that have not been heard since.
func (f *fleet) silent(suspects []suspect) (still []suspect) {
	for _, s := range suspects {
		if !f.leases.read(s.node).suspected.IsZero() {
			still = append(still, s)
		}
	}
	return still
}

// ReleaseBrake lets the nodes that brakes hold be LOST: at once if their leases are over, and else when they are.
func (s *operator) ReleaseBrake(ctx context.Context, r *api.ReleaseBrakeRequest) (*api.ReleaseBrakeReply, error) {
	if err := checkText("reason", r.GetReason()); err != nil {
		return nil, err
	}
	s.brakes.mu.Lock()
	s.brakes.suspects = s.silent(s.brakes.suspects)
	held, lost := len(s.brakes.holds) > 0, s.brakes.behind(s.brakes.suspects)
	s.brakes.mu.Unlock()
	if !held {
		return nil, status.Error(codes.FailedPrecondition, "no brake holds: lifeboat brake shows those that do")
	}
	if _, err := s.decide(ctx, registry.Command{Do: registry.DoRelease, Nodes: lost, Reason: r.GetReason()}); err != nil {
		return nil, asStatus(err)
	}
	s.brakes.mu.Lock()
	s.brakes.release(s.silent(s.brakes.suspects))
	s.brakes.mu.Unlock()
	return &api.ReleaseBrakeReply{Nodes: lost}, nil
}
