package sidecar

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/preemption"
)

// work is what the sidecar has done about the open incident; the journal remembers it.
type work struct {
	// Told holds what each action was told last, by the action's name.
	Told map[string]told `json:"told,omitempty"`
	// Released names the notices whose sources know that everything is done.
	Released []string `json:"released,omitempty"`
}

type page = preemption.Page[work]

// join makes a notice part of the incident. The notice is on disk before any action is told.
func (s *Sidecar) join(n preemption.Notice) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.joinInTurn(n)
}

// joinInTurn is for callers that hold turn.
func (s *Sidecar) joinInTurn(n preemption.Notice) {
	began := time.Now()
	_, was := s.incidents.Open()
	p, changed, err := s.incidents.Join(n)
	if !changed {
		s.letGo(n, p)
		return
	}
	if err != nil {
		// A full disk must not keep the actions from being told. The price: after a restart now the notice is new, and is
		// told again.
		s.log.Error("cannot write the incident to the journal: a restart would forget it", "incident", p.Incident.ID, "err", err)
	}
	stance, _ := s.stance(p)
	s.log.Info("notice", "incident", p.Incident.ID, "kind", n.Kind, "source", n.Source, "withdrawn", n.Withdrawn, "stance", stance,
		preemption.Left(n.Deadline), "reason", n.Reason, "took", time.Since(began))
	if n.Withdrawn {
		s.unrelease(n)
	}
	if !was {
		s.counts.Incidents.WithLabelValues(string(p.Incident.Kind())).Inc()
	}
}

// letGo releases a shutdown that the policy ignores, unless an action is still being told of another notice.
func (s *Sidecar) letGo(n preemption.Notice, p page) {
	if stance, _ := s.stance(p); n.Source != preemption.SourceLogind || p.Incident.From(n.Source) || !s.over(p, stance) {
		return
	}
	if err := s.notices.Release(context.Background(), n); err != nil {
		s.log.Warn("cannot let the shutdown go on: it waits although there is nothing to carry", "err", err)
	}
}

// stance is how far the node goes now, and when that changes by itself (zero: it does not).
func (s *Sidecar) stance(p page) (stance preemption.Stance, changes time.Time) {
	until := p.Incident.OutlivedAt()
	if p.Incident.Outlived() {
		return preemption.StanceIgnore, time.Time{}
	}
	stance, changes = s.incidents.Stance()
	if changes.IsZero() || !until.IsZero() && until.Before(changes) {
		changes = until
	}
	return stance, changes
}

// errIgnored says that the policy ignores a kind of notice.
var errIgnored = errors.New("the policy ignores it")

// say passes a notice on, and returns the incident that it joined, once that is on disk.
func (s *Sidecar) say(ctx context.Context, n preemption.Notice) (preemption.Incident, error) {
	if !s.policy.Load().Stance(n.Kind).AtLeast(preemption.StanceWatch) {
		return preemption.Incident{}, fmt.Errorf("notice of kind %s: %w", n.Kind, errIgnored)
	}
	return preemption.Say(ctx, s.manual, s.incidents, n)
}

// Signalled passes on SIGPWR as a notice: this machine is going, and the deadline is not known.
func (s *Sidecar) Signalled() {
	s.manual.Say(preemption.Notice{Source: preemption.SourceSignal, ID: preemption.SourceSignal, Kind: preemption.KindManual, Reason: "SIGPWR"})
}

// cancel takes back the notices that were given on this host. still names the notice that keeps the incident open all the
// same.
func (s *Sidecar) cancel(ctx context.Context, reason string) (cancelled bool, still string) {
	cancelled = s.manual.Withdraw(reason)
	for changed := s.incidents.Changes(); ; changed = s.incidents.Changes() {
		p, open := s.incidents.Open()
		if !open || p.Incident.Withdrawn() {
			return cancelled, ""
		}
		if !cancelled || !p.Incident.SaidHere() {
			return cancelled, p.Incident.Source() + " says " + string(p.Incident.Kind())
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return cancelled, ctx.Err().Error()
		}
	}
}

// Reload takes over the policy of a new configuration, which applies to notices that come after it. It returns the sections
// that differ and were not taken over: they need a restart.
func (s *Sidecar) Reload(cfg Config) (left []string) {
	s.policy.Store(&cfg.Policy)
	return config.Differs(s.cfg, cfg, "policy")
}
