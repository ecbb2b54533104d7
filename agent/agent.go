// Package agent is the daemon of every host. It introduces the packages that do the work to each other: preemption hears
// that the machine will go, the journal remembers it, migration carries the blocks to peers, heartbeat keeps the
// coordinator told. The story is in this file; each other file is one part of it.
//
// The agent never waits for the coordinator: it drains to the peers that it last heard of. It never touches a file of a
// store that it did not put there. An error from Run means that the process cannot do its work and should be started
// anew; a drain then goes on where it was.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/heartbeat"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/preemption"
)

// Deps are what an agent is given by whoever runs it.
type Deps struct {
	Log      *slog.Logger
	Identity *certs.Identity
	Version  string // of this build, for the coordinator's tables

	// Listen and Dial replace the network in tests. Nil: the real one.
	Listen func(network, address string) (net.Listener, error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)

	Ready func() // called once the agent serves; may be nil
}

// Agent is one node's agent. It is made by New and runs once.
type Agent struct {
	cfg     Config // as in the file, but for what the cloud filled in
	file    Config
	limits  atomic.Pointer[limits]
	deps    Deps
	log     *slog.Logger
	started time.Time

	stores     []*migration.Store
	vault      *migration.Vault
	receiver   *migration.Receiver
	reader     *migration.Reader
	beat       *heartbeat.Client
	manual     *preemption.Manual
	ec2        *preemption.EC2 // nil: not on EC2
	directives *directives
	notices    *preemption.Watcher
	meter      *disks.Meter
	journal    *journal
	room       roomGauge
	news       state
	at         listeners
}

// Run serves peers and readers, beats, hears notices and drains, until ctx ends. Everything else outlives the drain: a
// node that falls silent looks dead to those who are about to take its blocks.
func (a *Agent) Run(ctx context.Context) error {
	defer a.close()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, life := errgroup.WithContext(life)
	g.Go(func() error { return a.receiver.Run(life) })
	g.Go(func() error { return a.serve(life) })
	g.Go(func() error { return a.beat.Run(life) })
	g.Go(func() error { return a.notices.Run(life) })
	g.Go(func() error { return a.watchRoom(life) })
	g.Go(func() error { return a.feedWatchdog(life) })
	g.Go(func() error {
		defer end()
		attending, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(life, stop)() // a sibling that fails ends the drain too: a restart resumes it
		a.ready()
		err := a.attend(attending)
		a.farewell(ctx)
		return err
	})
	return g.Wait()
}

// attend does what the notices ask, one incident after the other. An incident that a crash interrupted comes first.
func (a *Agent) attend(ctx context.Context) error {
	for ctx.Err() == nil {
		if !a.news.leaving() {
			if err := a.hear(ctx); err != nil {
				return err
			}
			continue
		}
		if err := a.leave(ctx); err != nil {
			return err
		}
	}
	return nil
}

// hear waits for the next notice and joins it to the incident.
func (a *Agent) hear(ctx context.Context) error {
	n, err := a.notices.Next(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	a.join(ctx, n)
	return nil
}

// leave empties the node, tells everybody, and stays until the machine goes or the notice is taken back.
func (a *Agent) leave(ctx context.Context) error {
	leaving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	g, leaving := errgroup.WithContext(leaving)
	g.Go(func() error { // what is said meanwhile may shorten the time, or end it all
		for leaving.Err() == nil {
			if err := a.hear(leaving); err != nil {
				return err
			}
			if !a.news.leaving() {
				stop(errWithdrawn)
			}
		}
		return nil
	})
	g.Go(func() error {
		a.tell(leaving)
		return nil
	})
	g.Go(func() error {
		a.drain(leaving)
		if a.outlived(leaving) {
			stop(errOutlived)
		}
		return nil
	})
	err := g.Wait()
	if why := context.Cause(leaving); ctx.Err() == nil && (errors.Is(why, errWithdrawn) || errors.Is(why, errOutlived)) {
		a.recommission(ctx, why)
		return nil
	}
	return err
}

var (
	errWithdrawn = errors.New("the notice was withdrawn")
	errOutlived  = errors.New("the machine outlived its deadline")
)
