package coordinator

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// fleet is all that a running coordinator knows: the durable ledger and the soft rest. What needs many of its parts is done here: deciding,
// taking over, and ending what has run out.
type fleet struct {
	cfg     Config
	log     *slog.Logger
	version string // of this build
	started time.Time
	metrics *metrics

	ledger     *ledger
	colleagues *colleagues
	succession *succession
	accounts   *accounts

	leases    *leases
	silence   *silence
	roster    *roster
	bars      *bars
	locations *locations
	lives     *lives
	leavers   *leavers

	maintenance *maintenance
	hosts       *hostFiles
	access      *access
	quotas      *quotas
	denials     *denials
	auditor     *auditor
	gate        gate

	publisher *publisher
	audience  *audience
	hooks     hooks
}

// openFleet reads data_dir. The fleet decides nothing before takeOver.
func openFleet(cfg Config, st *streams, deps Deps) (*fleet, error) {
	log := deps.Log
	if err := makeDir(cfg.DataDir); err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}
	l, err := openLedger(ledgerConfig{dir: cfg.DataDir, own: cfg.Name, peers: cfg.Peers, election: cfg.Election, streams: st, log: log})
	if err != nil {
		return nil, err
	}
	kept, err := openManifests(filepath.Join(cfg.DataDir, "manifests"), log)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("manifests: %w", err), l.Close())
	}
	now := time.Now()
	f := &fleet{cfg: cfg, log: log, version: deps.Version, ledger: l, started: now, denials: new(denials), audience: newAudience()}
	f.metrics = newMetrics(f)
	f.publisher = &publisher{ledger: l, metrics: f.metrics}
	f.auditor = &auditor{log: log, ledger: l, own: cfg.Name, do: f.do}
	f.access = &access{log: log, ledger: l, denials: f.denials, identity: deps.Identity}
	f.quotas = &quotas{log: log, ledger: l, denials: f.denials, do: f.do}
	f.gate = gate{log: log, own: cfg.Name, ledger: l, access: f.access, denials: f.denials, auditor: f.auditor}
	f.hooks = newHooks(cfg.Webhooks, deps.Web, l, f.do, f.metrics.hooks, log)

	f.colleagues = &colleagues{ledger: l, conns: map[Peer]*grpc.ClientConn{}}
	if st != nil {
		f.colleagues.identity, f.colleagues.dial = st.identity, st.dial
	}
	f.leases = newLeases(cfg.Lease, nil, now)
	f.succession = &succession{cfg: cfg, version: deps.Version, log: log, ledger: l, leases: f.leases, colleagues: f.colleagues, identity: deps.Identity}
	f.accounts = newAccounts(l, f.colleagues, kept, log)

	f.hosts = newHostFiles(cfg, l, f.auditor, f.metrics.refused, log)
	f.maintenance = &maintenance{ledger: l, lead: cfg.MaintenanceLead, timeout: cfg.DecommissionTimeout}
	f.roster = &roster{ledger: l, leases: f.leases, hosts: f.hosts, maintenance: f.maintenance, stale: true}
	f.silence = newSilence(cfg, l, f.leases, f.roster, f.publisher, f.metrics.recovered, log)
	f.bars = &bars{log: log, ledger: l, leases: f.leases, publisher: f.publisher, of: map[string]bar{}}
	f.locations = newLocations(cfg, l, f.leases, f.accounts, f.publisher, log)
	f.lives = &lives{log: log, ledger: l, leases: f.leases, silence: f.silence, blocks: f.locations.blocks, quotas: f.quotas, do: f.do, apps: newApps()}
	f.lives.beats.begin(now)
	f.leavers = &leavers{log: log, ledger: l, leases: f.leases, apps: f.lives.apps}
	l.decided = f.follow
	return f, nil
}

func (f *fleet) Close() error {
	f.ledger.office.quit()
	f.audience.senders.Wait()
	return errors.Join(f.colleagues.Close(), f.ledger.Close(), f.accounts.files.Close())
}

// decider decides a command: fleet.do, as the parts have it.
type decider func(registry.Command) ([]registry.Event, error)

// do decides a command.
func (f *fleet) do(c registry.Command) ([]registry.Event, error) {
	return f.ledger.do(f.lives.nameExecutors(c))
}

// follow brings the soft state in line with what was decided.
func (f *fleet) follow(events []registry.Event) {
	for _, e := range events {
		switch e.Type {
		case registry.EventReplaced, registry.EventForgotten:
			f.locations.forget(e.Node)
			f.leases.forget(e.Node)
			f.lives.apps.forget(e.Node)
		case registry.EventRegistered, registry.EventReturned, registry.EventRecommissioned, registry.EventAnnounced:
			f.leases.expect(e.Node, time.Now())
		case registry.EventLost, registry.EventShutdown, registry.EventDecommissioned:
			f.lives.apps.quit(e.Node)
			f.leases.cleared(e.Node)
			f.accounts.settle(e.Node)
		case registry.EventManifest:
			f.accounts.settle(e.Node)
		case registry.EventHosts:
			f.hosts.changed()
		case registry.EventAppResumed:
			f.locations.blocks.Resume()
		}
		f.metrics.saw(e)
	}
	tellChanges(f.log, events)
	if len(events) > 0 {
		f.roster.change()
		f.bars.heed(events)
	}
}

// picture is one node as people and programs see it.
func (f *fleet) picture(n registry.Node) *api.Node {
	now := time.Now()
	p := f.leases.read(n.Name)
	out := nodeTo(n, p, now)
	out.SubState, out.WaitsFor = waits(n, p, f.leavers.elsewhere(n, now), now)
	away := n.State == registry.Lost || n.State == registry.Shutdown || n.Shown() == registry.Gone
	stalls := away || !p.suspected.IsZero() || out.SubState == timeIsUp
	if out.Status != nil && (away || stalls && out.Status.GetDrain() != nil) {
		last := proto.Clone(out.Status).(*api.Status)
		if away {
			last.RoomBytes, last.VaultRoomBytes = 0, nil // a node that is away has no room
		}
		if last.Drain != nil {
			last.Drain.BytesPerSecond = 0 // the last rate would promise an end that does not come
		}
		out.Status = last
	}
	if !p.suspected.IsZero() {
		out.Suspect, out.Schedulable = durationpb.New(now.Sub(p.suspected)), false
		if n.State == registry.Active {
			out.SubState = "SUSPECT"
		}
	}
	a := f.maintenance.scheduled().Of(n.Name, n.PeerAddress, now)
	if a.Past(now) {
		a = registry.Appointment{}
	}
	if out.Maintenance = a.Mode(); f.hosts.maintained(n, now) {
		out.Maintenance = registry.ModeDown
	}
	if a.Scheduled != nil {
		out.MaintenanceStart = timestamppb.New(a.Of.From())
		if a.Of.Duration != nil {
			out.MaintenanceDuration = durationpb.New(*a.Of.Duration)
		}
	}
	out.Schedulable = out.Schedulable && out.Maintenance == registry.ModeUp
	return out
}

// asStatus turns an error into a gRPC status, with the code that callers act on and a remedy for people.
func asStatus(err error) error {
	if _, often := errors.AsType[tooOften](err); often {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, registry.ErrUnknownNode):
		return status.Errorf(codes.NotFound, "%v: it must register first; lifeboat nodes lists those that did", err)
	case errors.Is(err, registry.ErrIncarnation):
		return status.Errorf(codes.FailedPrecondition, "%v: another machine has this name, or this one has yet to register", err)
	case errors.Is(err, registry.ErrExcluded):
		return status.Errorf(codes.FailedPrecondition, "%v: change the file, then lifeboat refresh-nodes", err)
	case errors.Is(err, registry.ErrGone):
		return status.Errorf(codes.FailedPrecondition, "%v: the machine comes back as another one, with an empty data_dir (lifeboat generalize)", err)
	case errors.Is(err, registry.ErrDown):
		return status.Errorf(codes.FailedPrecondition, "%v: lifeboat maintenance up ends that", err)
	case errors.Is(err, registry.ErrNotRevoked):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, registry.ErrManyRevoked):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, registry.ErrNotScheduled):
		return status.Errorf(codes.NotFound, "%v: lifeboat maintenance show has all that are", err)
	case errors.Is(err, registry.ErrSchedule), errors.Is(err, registry.ErrNotDraining), errors.Is(err, registry.ErrNotDown):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, registry.ErrNotAway):
		return status.Errorf(codes.FailedPrecondition, "%v: lifeboat drain NODE --max-grace-period 0 --mark-gone is for one that never comes back", err)
	case errors.Is(err, registry.ErrOwnNotice):
		return status.Errorf(codes.FailedPrecondition, "%v: %s", err, howItEnds)
	case errors.Is(err, errDeposed), errors.Is(err, errFollows):
		return overtaken{err}
	case errors.Is(err, errNoLog):
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}
