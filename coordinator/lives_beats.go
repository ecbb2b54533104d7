package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/blockmap"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

const (
	// appLease is how long an app may be silent if it does not name a lease. Celeborn gives an app five minutes
	// (celeborn.master.heartbeat.application.timeout). Here the end of an app removes blocks that nobody may be able to compute again in
	// time, so an app has twice that.
	appLease = 10 * time.Minute
	// A lease below leastAppLease would take a garbage collector's pause, or an election, for the end of an app; above mostAppLease silence
	// means nothing.
	leastAppLease = 30 * time.Second
	mostAppLease  = 24 * time.Hour

	// appsAtOnce bounds the apps that one call names.
	appsAtOnce = 1024

	// mostOver bounds the reason why an app is over. Holders repeat it when they report its blocks as gone, and checkReport bounds that.
	mostOver = maxWord + maxName - 64
)

// lives is what is known of apps: which run where, which are over, and which executors go with a node.
type lives struct {
	log     *slog.Logger
	ledger  *ledger
	leases  *leases
	silence *silence
	blocks  *blockmap.Map
	quotas  *quotas
	do      decider

	apps  *apps
	beats appBeats
}

// clear forgets all, for a new term as the leader.
func (v *lives) clear(now time.Time) {
	v.apps.clear()
	v.beats.begin(now)
}

// appBeats is when each app last beat. It is soft: a new leader grants each app a full lease.
type appBeats struct {
	mu   sync.Mutex // guards what follows
	last map[string]time.Time
	from time.Time // leases of apps that were not heard since count from here
}

// begin forgets all, for a new term as the leader.
func (b *appBeats) begin(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last, b.from = map[string]time.Time{}, now
}

// regrant grants all apps a new lease, because it was this coordinator that was not there to hear them.
func (b *appBeats) regrant(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.from = now
}

func (b *appBeats) beat(app string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last[app] = now
}

// silent returns for how long an app's lease has run, and when the app last beat; the zero time: not since this leader took over.
func (b *appBeats) silent(app string, l registry.Life, now time.Time) (took time.Duration, last time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last = b.last[app]
	return now.Sub(slices.MaxFunc([]time.Time{last, b.from, l.Since}, time.Time.Compare)), last
}

// forget drops the beats of apps that are over.
func (b *appBeats) forget(apps []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, app := range apps {
		delete(b.last, app)
	}
}

// lapse ends the apps that have been silent for longer than their leases. While a brake holds the network is in trouble and silence
// means nothing, and removed blocks cannot be brought back: so no app ends, and all leases begin anew.
func (v *lives) lapse(now time.Time) {
	silent := map[time.Duration][]string{} // by lease
	v.ledger.view(func(m *registry.Registry) {
		for app, l := range m.Lives {
			if took, _ := v.beats.silent(app, l, now); l.Beats() && took > l.Lease {
				silent[l.Lease] = append(silent[l.Lease], app)
			}
		}
	})
	if len(silent) == 0 {
		return
	}
	if len(v.silence.brakes(now)) > 0 {
		v.beats.regrant(now)
		return
	}
	for lease, apps := range silent {
		slices.Sort(apps)
		for batch := range slices.Chunk(apps, appsAtOnce) {
			if _, err := v.do(registry.Command{Do: registry.DoLapseApps, Apps: batch, Reason: fmt.Sprintf("it was silent for %s", lease)}); err != nil {
				v.log.Warn("cannot write to the log that silent apps are over: it is tried again", "apps", len(batch), "err", err)
				return // the next look tries again
			}
			v.beats.forget(batch)
		}
	}
}

// checkApp refuses a name that cannot be the scope of a block's id.
func checkApp(app string) error {
	if err := checkWord("app", app, maxName); err != nil {
		return err
	}
	if app == "" || app == "-" || strings.Contains(app, "/") {
		return fault("app %q: must be what stands second in the ids of its blocks, STORE/APP/NAME", app)
	}
	return nil
}

func checkApps(apps []string) error {
	if err := checkCount("apps", len(apps), appsAtOnce); err != nil {
		return err
	}
	return checkEach(apps, checkApp)
}

// BeatApp implements the operators' call.
func (s *operator) BeatApp(ctx context.Context, r *api.BeatAppRequest) (*api.BeatAppReply, error) {
	name, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	return &api.BeatAppReply{}, s.lives.hear(name, r)
}

// hear takes a beat of an app, or its word that it is over, from the certificate that speaks for it.
func (v *lives) hear(name certs.Name, r *api.BeatAppRequest) error {
	if err := cmp.Or(checkApp(r.GetApp()), checkSpan("lease", r.GetLease())); err != nil {
		return err
	}
	lease := appLease
	if r.Lease != nil {
		lease = r.Lease.AsDuration()
	}
	if lease < leastAppLease || lease > mostAppLease {
		return fault("lease %s: must be %s to %s", lease, leastAppLease, mostAppLease)
	}
	c := registry.Command{Do: registry.DoBeatApp, Apps: []string{r.App}, Owner: string(name.Role) + ":" + name.Name, Lease: lease}
	if r.Over {
		c = registry.Command{Do: registry.DoEndApps, Apps: c.Apps, Owner: c.Owner, Reason: "it said so"}
	}
	if err := v.quotas.doForApps(name, c); err != nil {
		return err
	}
	if r.Over {
		v.beats.forget(c.Apps)
	} else {
		v.beats.beat(r.App, time.Now())
	}
	return nil
}

// EndApps ends apps by an operator's call, or takes their end back.
func (s *operator) EndApps(ctx context.Context, r *api.EndAppsRequest) (*api.EndAppsReply, error) {
	apps := slices.Compact(slices.Sorted(slices.Values(r.GetApps())))
	if len(apps) == 0 {
		return nil, fault("no app is named")
	}
	if err := cmp.Or(checkApps(apps), checkText("reason", r.GetReason())); err != nil {
		return nil, err
	}
	name, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	why := string(name.Role) + ":" + name.Name + " said so"
	if r.Reason != "" {
		why += ": " + r.Reason
	}
	c := registry.Command{Do: registry.DoEndApps, Apps: apps, Reason: registry.ShortenedTo(mostOver, why)}
	if r.Undo {
		c = registry.Command{Do: registry.DoResume, Apps: apps}
		if unknown := s.lives.neverOver(apps); unknown != "" && !s.auditor.repeats(ctx) {
			return nil, status.Errorf(codes.NotFound, "app %q is not over: lifeboat apps lists those that are", unknown)
		}
	}
	if _, err := s.auditor.decide(ctx, c); err != nil {
		return nil, appStatus(err)
	}
	s.lives.beats.forget(apps)
	return &api.EndAppsReply{Apps: s.lives.shown(func(app string) bool { _, named := slices.BinarySearch(apps, app); return named })}, nil
}

// neverOver is the first of the apps that is not over; empty: all are.
func (v *lives) neverOver(apps []string) (one string) {
	v.ledger.view(func(m *registry.Registry) {
		if i := slices.IndexFunc(apps, func(app string) bool { return m.Lives[app].Over == "" }); i >= 0 {
			one = apps[i]
		}
	})
	return one
}

// appStatus is asStatus with the errors about apps.
func appStatus(err error) error {
	switch {
	case errors.Is(err, registry.ErrAppOver):
		return status.Errorf(codes.FailedPrecondition, "%v: an operator takes that back with lifeboat apps end --undo", err)
	case errors.Is(err, registry.ErrAppOthers):
		return status.Error(codes.PermissionDenied, err.Error())
	case errors.Is(err, registry.ErrAppNobody):
		return status.Errorf(codes.NotFound, "%v: an app that never beat is ended by an operator, with lifeboat apps end", err)
	case errors.Is(err, registry.ErrManyApps):
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return asStatus(err)
}

// CheckApps tells a node which of the apps that it has blocks of are over.
func (s *membership) CheckApps(ctx context.Context, r *api.CheckAppsRequest) (*api.CheckAppsReply, error) {
	if _, err := speaker(ctx, r.GetNode()); err != nil {
		return nil, err
	}
	if err := checkCount("apps", len(r.GetApps()), appsAtOnce); err != nil {
		return nil, err
	}
	reply := &api.CheckAppsReply{}
	s.ledger.view(func(m *registry.Registry) {
		for _, app := range r.Apps { // not checked: a name that no app can have is of no known app
			if l := m.Lives[app]; l.Over != "" {
				reply.Over = append(reply.Over, &api.AppOver{App: app, Why: l.Over})
			}
		}
	})
	return reply, nil
}
