package coordinator

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

// silence is what the leader makes of nodes that it does not hear: suspects first, and LOST ones, unless a brake holds.
type silence struct {
	cfg       Config
	log       *slog.Logger
	ledger    *ledger
	leases    *leases
	roster    *roster
	publisher *publisher
	recovered prometheus.Counter
	bursts    *bursts

	mu       sync.Mutex // guards what follows, for the clock (reap) and operators' calls
	brake    *brake
	suspects []suspect // as last judged
}

func newSilence(cfg Config, l *ledger, heard *leases, r *roster, p *publisher, recovered prometheus.Counter, log *slog.Logger) *silence {
	return &silence{
		cfg: cfg, log: log, ledger: l, leases: heard, roster: r, publisher: p,
		recovered: recovered, bursts: newBursts(log), brake: newBrake(cfg.Loss, cfg.Lease),
	}
}

// clear forgets all, for a new term as the leader.
func (s *silence) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.brake.clear()
	s.suspects = nil
}

// judge makes nodes that have been silent for too long suspects, and returns those that are LOST now.
func (s *silence) judge(now time.Time) (lost []string) {
	var suspects []suspect
	var fresh []string
	silent := s.leases.silent(now, s.cfg.suspectAfter())
	s.ledger.view(func(m *registry.Registry) {
		for _, name := range silent {
			n := m.Nodes[name]
			if n.State != registry.Active && !n.Leaving() {
				continue
			}
			p, newly := s.leases.watch(name, now, s.cfg.suspectAfter())
			if newly {
				fresh = append(fresh, name)
			}
			if p.suspected.IsZero() || n.Leaving() && !n.Decommission.Deadline().IsZero() { // heard meanwhile; or its deadline ends it
				continue
			}
			suspects = append(suspects, suspect{
				node: name, of: part{n.Pool, n.Zone}, since: p.seen, overdue: now.Sub(p.seen) > s.cfg.Lease,
				announced: n.Leaving() || watched(p.status),
			})
		}
	})
	for _, name := range slices.Sorted(slices.Values(fresh)) {
		s.bursts.silent.saw(s.log, name)
		s.publisher.tell(evSuspect, name, nil)
	}
	if len(fresh) > 0 {
		s.roster.change()
	}

	s.mu.Lock()
	s.suspects = suspects
	lost, news := s.brake.judge(now, suspects, s.scopes)
	s.mu.Unlock()
	for _, b := range news {
		s.tell(b, now)
	}
	return lost
}

// scopes counts the nodes that should be there, in the fleet and in each pool and zone.
func (s *silence) scopes() map[scope]int {
	parts, noticed := map[part]int{}, s.leases.noticed()
	s.ledger.view(func(m *registry.Registry) {
		for name, n := range m.Nodes {
			if n.State == registry.Active && !noticed[name] {
				parts[part{n.Pool, n.Zone}]++
			}
		}
	})
	return byScope(parts)
}

func (s *silence) tell(b braking, now time.Time) {
	data := registry.Saying("scope", b.scope.kind, "name", b.scope.name, "suspects", strconv.Itoa(b.hold.suspects), "nodes", strconv.Itoa(b.hold.nodes))
	if b.holds {
		s.log.Error("a brake holds: too many nodes fell silent at once, and none of them is lost before they come back or lifeboat brake release says so",
			"scope", b.scope.String(), "suspects", b.hold.suspects, "nodes", b.hold.nodes)
		s.publisher.tell(evBrakeHolds, "", data)
		return
	}
	s.log.Warn("a brake lets go", "scope", b.scope.String(), "suspects", b.hold.suspects, "took", now.Sub(b.hold.since).Round(time.Second))
	s.publisher.tell(registry.EventBrakeReleased, "", data)
}

// hears notes that a node was heard, and tells if it was a suspect, or if the state of its clock has changed.
func (s *silence) hears(name string, st *api.Status) {
	trusted, is, ahead := s.leases.hears(name, st)
	if trusted {
		s.bursts.heard.saw(s.log, name)
		s.publisher.tell(evTrusted, name, nil)
		s.recovered.Inc()
		s.roster.change()
	}
	if is != nil {
		s.bursts.clock(name, *is, ahead)
	}
}

// statusTo adds suspects, clocks and brakes to a status: only the leader knows them.
func (s *silence) statusTo(to *api.CoordinatorStatus) {
	if !s.ledger.leads() {
		return
	}
	suspects, apart, _ := s.leases.tally()
	to.Suspects, to.ClocksApart, to.Brakes = int64(suspects), int64(apart), s.brakes(time.Now())
}

func (s *silence) brakes(now time.Time) (all []*api.Brake) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sc := range slices.SortedFunc(maps.Keys(s.brake.holds), compareScopes) {
		h := s.brake.holds[sc]
		all = append(all, &api.Brake{Scope: sc.kind, Name: sc.name, Suspects: int64(h.suspects), Nodes: int64(h.nodes), Age: durationpb.New(now.Sub(h.since))})
	}
	return all
}

// held are the nodes that would be LOST now if no brake held them; holds is false if none does.
func (s *silence) held() (lost []string, holds bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.brake.behind(s.still()), len(s.brake.holds) > 0
}

// release frees the suspects that brakes hold.
func (s *silence) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.brake.release(s.still())
}

// still are the suspects that have not been heard since. The lock is held.
func (s *silence) still() (silent []suspect) {
	for _, one := range s.suspects {
		if !s.leases.read(one.node).suspected.IsZero() {
			silent = append(silent, one)
		}
	}
	return silent
}

// ReleaseBrake lets the nodes that brakes hold be LOST: at once if their leases are over, and else when they are.
func (s *operator) ReleaseBrake(ctx context.Context, r *api.ReleaseBrakeRequest) (*api.ReleaseBrakeReply, error) {
	if err := checkText("reason", r.GetReason()); err != nil {
		return nil, err
	}
	lost, holds := s.silence.held()
	if !holds && !s.auditor.repeats(ctx) {
		return nil, status.Error(codes.FailedPrecondition, "no brake holds: lifeboat brake shows those that do")
	}
	if _, err := s.auditor.decide(ctx, registry.Command{Do: registry.DoRelease, Nodes: lost, Reason: r.GetReason()}); err != nil {
		return nil, asStatus(err)
	}
	s.silence.release()
	return &api.ReleaseBrakeReply{Nodes: lost}, nil
}
