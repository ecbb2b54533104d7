package sidecar

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/lifeboat/lifeboat/figures"
	"github.com/lifeboat/lifeboat/localsock"
	"github.com/lifeboat/lifeboat/preemption"
)

// dialTimeout bounds a connection to something on this machine or near it.
const dialTimeout = 5 * time.Second

// New opens the journal and the listeners. It starts nothing: connections that come in before Run wait. After an error
// nothing stays open.
func New(ctx context.Context, cfg Config, deps Deps) (_ *Sidecar, err error) {
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Listen == nil {
		deps.Listen = net.Listen
	}
	if deps.Dial == nil {
		deps.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	s := &Sidecar{cfg: cfg, deps: deps, log: deps.Log, started: time.Now(), manual: preemption.NewManual(), counts: newCounters(deps.Version)}
	s.counts.registry.MustRegister(figures.Now(s.figures))
	s.policy.Store(&cfg.Policy)
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.incidents, err = preemption.OpenKeeper[work](preemption.KeeperConfig{
		Dir: cfg.DataDir, Log: s.log, Policy: func() preemption.Policy { return *s.policy.Load() }, Clock: deps.Clock, Synced: s.counts.Synced,
	}); err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}
	if s.actions, err = cfg.build(deps); err != nil {
		return nil, err
	}
	if err := s.openNotices(); err != nil {
		return nil, err
	}
	s.resume()
	return s, s.listen(ctx)
}

func (s *Sidecar) openNotices() (err error) {
	sources := []preemption.Source{s.manual}
	if s.deps.Logind != nil {
		sources = append(sources, s.deps.Logind)
	}
	if s.cloud, err = s.cfg.Cloud.Open(s.log, s.deps.Dial, s.counts.Polled); err != nil {
		return err
	}
	if s.cloud != nil {
		sources = append(sources, s.cloud)
	} else {
		s.log.Info("no cloud's notices are listened for: only the operating system, the socket and SIGPWR are heard", "provider", s.cfg.Cloud.Provider)
	}
	s.notices = preemption.NewWatcher(s.log, sources...)
	return nil
}

// resume tells the sources which of their notices an earlier process knew.
func (s *Sidecar) resume() {
	p, open := s.incidents.Open()
	if !open {
		return
	}
	s.notices.Believe(p.Incident.Notices...)
	s.log.Info("resuming", "incident", p.Incident.ID, "kind", p.Incident.Kind(), "told", len(p.Work.Told), preemption.Left(p.Incident.Deadline()))
}

func (s *Sidecar) listen(ctx context.Context) (err error) {
	if s.cfg.Listen.HTTP != "" {
		if s.at.http, err = s.deps.Listen("tcp", s.cfg.Listen.HTTP); err != nil {
			return fmt.Errorf("listen.http: %w", err)
		}
	}
	if s.at.socket, err = localsock.Listen(ctx, localsock.Network{Listen: s.deps.Listen, Dial: s.deps.Dial}, s.cfg.Listen.Socket); err != nil {
		return fmt.Errorf("listen.socket: %w", err)
	}
	return nil
}

// close releases what New opened. The goroutines that used it have ended.
func (s *Sidecar) close() {
	for _, l := range []net.Listener{s.at.http, s.at.socket} {
		if l != nil {
			l.Close() // the server that used it has closed it already
		}
	}
}
