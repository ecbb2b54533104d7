// Package sidecar passes this machine's notices on: to a process, to a unit, to a program, to a URL, or to an agent. It is
// for a machine whose engine knows how to leave by itself and only must be told in time.
//
// It hears what an agent hears, keeps it as durably, and tells the actions of its configuration, each as soon as the node
// goes as far as the action's "when". It carries no block, asks no coordinator, and decides nothing but which action is told
// what. Its journal says what each was told: after a restart none is forgotten, and none is told twice, except a word that
// was under way.
//
// Stopping it tells no action anything, unless the operating system is going down.
package sidecar

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
)

// Deps are what a sidecar is given by whoever runs it.
type Deps struct {
	Log     *slog.Logger
	Version string // of this build, for its status

	Logind *preemption.Logind // nil: the operating system is not asked whether it goes down

	// Listen and Dial replace the network in tests, Clock the kernel's clocks. Nil: the real ones.
	Listen func(network, address string) (net.Listener, error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Clock  func() preemption.Moment

	Ready func() // called once the sidecar listens; may be nil
}

// Sidecar is one machine's sidecar. It is made by New and runs once.
type Sidecar struct {
	cfg     Config
	policy  atomic.Pointer[preemption.Policy]
	deps    Deps
	log     *slog.Logger
	started time.Time

	manual    *preemption.Manual
	cloud     preemption.Cloud // nil: none is listened to
	notices   *preemption.Watcher
	incidents *preemption.Keeper[work]
	actions   []*action
	counts    *counters
	at        struct{ http, socket net.Listener } // http: nil where none is configured

	// turn is held from reading the incident until what follows from it is written down, so that two decisions never
	// overlap. It is not held while an action is told.
	turn sync.Mutex
}

// Run hears notices and tells the actions, until ctx ends. When the whole host goes down it goes on telling after that, and
// its servers run until the telling has ended.
func (s *Sidecar) Run(ctx context.Context) error {
	defer s.close()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, life := errgroup.WithContext(life)
	attending, stop := context.WithCancel(life)
	g.Go(func() error { return s.notices.Run(life) })
	g.Go(func() error { return s.serve(life) })
	// While the service manager is too busy to take messages these hang. Nothing waits for them, not even the end.
	go s.tellManager(life)
	go s.feedWatchdog(life)
	g.Go(func() error {
		defer stop()
		s.lastWords(ctx, life)
		return nil
	})
	g.Go(func() error {
		defer end()
		return s.attend(attending)
	})
	return g.Wait()
}

// lastWords waits until the sidecar is told to stop. If the host goes down, it passes that on as a notice and waits until
// the actions know: for a shutdown that did not go through logind, and for actions that logind's delay was too short for.
func (s *Sidecar) lastWords(ctx, life context.Context) {
	select {
	case <-ctx.Done():
	case <-life.Done():
		return
	}
	if s.deps.Logind == nil {
		return
	}
	n, down := s.deps.Logind.Terminating(life)
	if !down {
		return
	}
	s.log.Info("told to stop while the host goes down", "kind", n.Kind, preemption.Left(n.Deadline))
	s.join(n)
	for {
		changed := s.incidents.Changes()
		if s.idle() || !wait(life, changed, n.Deadline) || !n.Deadline.IsZero() && !time.Now().Before(n.Deadline) {
			return
		}
	}
}

// attend does what the notices ask. Each action has a goroutine of its own, so that one that hangs holds up no other.
func (s *Sidecar) attend(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.hear(ctx) })
	g.Go(func() error { return s.mind(ctx) })
	for _, a := range s.actions {
		g.Go(func() error { return s.look(ctx, a) })
	}
	return g.Wait()
}

// hear joins each notice to the incident.
func (s *Sidecar) hear(ctx context.Context) error {
	for {
		n, err := s.notices.Next(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		s.join(n)
	}
}

// wait waits until the incident changes, until again (zero: never), or until ctx ends, and then returns false.
func wait(ctx context.Context, changed <-chan struct{}, again time.Time) bool {
	var due <-chan time.Time
	if !again.IsZero() {
		due = time.After(time.Until(again))
	}
	select {
	case <-changed:
	case <-due:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// ready tells Deps.Ready and the service manager that the sidecar listens.
func (s *Sidecar) ready() {
	page := "none"
	if s.at.http != nil {
		page = s.at.http.Addr().String()
	}
	s.log.Info("sidecar listens", "node", s.cfg.Node.Name, "provider", s.cfg.Cloud.Resolve(), "http", page, "socket", s.cfg.Listen.Socket,
		"actions", len(s.actions))
	if s.deps.Ready != nil {
		s.deps.Ready()
	}
	if err := systemd.Ready(); err != nil {
		s.log.Warn("the service manager was not told", "err", err)
	}
}

// feedWatchdog tells the service manager that the sidecar is alive. Each time it first looks at the incident, so a deadlock
// silences it.
func (s *Sidecar) feedWatchdog(ctx context.Context) {
	systemd.KeepAlive(ctx, s.log, func() { s.idle() }) // idle waits for turn
}
