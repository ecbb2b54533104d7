// Package agent is the daemon of every host. It introduces the packages that do the work to each other: preemption hears
// that the machine will go, the journal remembers it, workloads tells and stops what runs here, migration carries the
// blocks to peers, heartbeat keeps the coordinator told. The story is in this file; each other file is one part of it.
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
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/fallback"
	"github.com/lifeboat/lifeboat/heartbeat"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/receiver"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/workloads"
)

// Deps are what an agent is given by whoever runs it.
type Deps struct {
	Log      *slog.Logger
	Identity *certs.Identity
	Version  string // of this build, for the coordinator's tables

	// Listen and Dial replace the network in tests. Nil: the real one.
	Listen func(network, address string) (net.Listener, error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)

	// Clock replaces the machine's clocks in a synctest bubble, whose time the kernel does not know. Nil: preemption.Now.
	Clock func() preemption.Moment

	// Logind tells of the end of the operating system. Nil: nobody is asked, and SIGTERM is never more than that.
	Logind *preemption.Logind

	// ProbeCommand starts a process that calls disks.ServeProbes. Empty: disks are probed by this process, and one that
	// hangs holds one of its threads.
	ProbeCommand []string
	// Monitor replaces what watches the disks, in tests. Nil: a disks.Monitor.
	Monitor func(disks.Config) Monitor

	// Units replaces systemd for workloads, in tests. Nil: systemd.
	Units workloads.Units

	Ready func() // called once the agent serves; may be nil
}

// Agent is one node's agent. It is made by New and runs once.
type Agent struct {
	cfg         Config // as in the file, but for the node's name where that leaves it out
	file        Config
	place       atomic.Pointer[place]
	limits      atomic.Pointer[limits]
	deps        Deps
	log         *slog.Logger
	started     time.Time
	incarnation string // of this node

	stores      []*inventory.Store
	vault       *vault.Vault
	index       *inventory.Index
	told        *migration.Appraisals // by programs on this machine; nil: it cannot be read
	receiver    *receiver.Receiver
	reader      *reading.Reader
	beat        *heartbeat.Client
	manual      *preemption.Manual
	cloud       preemption.Cloud // nil: none is listened to
	directives  *directives
	notices     *preemption.Watcher
	incidents   *preemption.Keeper[work]
	evacuations *evacuations
	disks       Monitor
	landing     *landing
	disk        *durable.Beside               // writes to data_dir what is small and must not be waited for
	refuge      *refuge                       // of the accounts of drains, while that hangs
	storage     fallback.Storage              // behind fallback
	fallback    *lastresort.Storage           // nil: none is configured
	fallbackIs  atomic.Pointer[fallbackState] // nil: not tried yet
	workloads   []*watched
	attention   *attention
	vigil       vigil         // of the open incident
	behind      atomic.Bool   // it was away, and has yet to find out what has changed elsewhere
	doubted     chan string   // nodes that say to ask them what has changed there
	written     chan page     // has what there is something to carry again of
	accounting  chan struct{} // has one while an account is written and sent
	passing     chan struct{} // has one while a pass of a drain runs
	drains      drains
	ballast     ballast
	counts      *counters
	at          listeners
	guests      guests
	page        http.Handler   // on the loopback address
	aside       sync.WaitGroup // calls that only the end waits for
}

// Run serves peers and readers, beats, hears notices and drains, until ctx ends. Everything else outlives the drain: a
// node that falls silent looks dead to those who are about to take its blocks.
func (a *Agent) Run(ctx context.Context) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, life := errgroup.WithContext(life)
	g.Go(func() error { return a.receiver.Run(life) })
	g.Go(func() error { return a.serve(life) })
	g.Go(func() error { return a.beat.Run(life) })
	g.Go(func() error { return a.notices.Run(life) })
	g.Go(func() error { return a.learnPlace(life) })
	g.Go(func() error { return a.keepCertificate(life) })
	g.Go(func() error { return a.watchDisks(life) })
	g.Go(func() error { return a.tellOfDisks(life) })
	g.Go(func() error { return a.saveDisks(life) })
	g.Go(func() error { return a.evacuate(life) })
	g.Go(func() error { return a.attendWorkloads(life) })
	g.Go(func() error { return a.tendFallback(life) })
	g.Go(func() error { return a.tidyValues(life) })
	g.Go(func() error { return a.index.Run(life) })
	g.Go(func() error { return a.lookBack(life) })
	g.Go(func() error { return a.catchUp(life) })
	g.Go(func() error { return a.keepBallast(life) })
	g.Go(func() error { return a.tendRefuge(life) })
	g.Go(func() error { return a.tellManager(life) })
	g.Go(func() error { return a.feedWatchdog(life) })
	g.Go(func() error {
		defer end()
		attending, stop := context.WithCancel(life) // a sibling that fails ends the drain too: a restart resumes it
		defer stop()
		g.Go(func() error {
			select {
			case <-ctx.Done():
				a.lastCall(attending)
				stop()
			case <-attending.Done():
			}
			return nil
		})
		a.ready()
		err := a.attend(attending)
		a.farewell(ctx)
		return err
	})
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = g.Wait()
		a.aside.Wait()
		a.close()
	}()
	<-life.Done()
	select {
	case <-ended:
		return err
	case <-time.After(stopPatience):
		a.log.Error("the agent stops although calls on a hung disk have not returned")
		return nil
	}
}

// stopPatience is how long the end of Run waits for whoever works for it: far longer than requests under way may take.
const stopPatience = 20 * time.Second

// attend does what the notices ask, one incident after the other. An incident that a crash interrupted comes first.
func (a *Agent) attend(ctx context.Context) error {
	for ctx.Err() == nil {
		var err error
		p, _ := a.incidents.Open()
		switch stance, _ := a.incidents.Stance(); {
		case p.Begun && !stance.AtLeast(preemption.StanceDrain): // killed after a withdrawal was written, and before it was heeded
			a.recommission(ctx, errWithdrawn)
		case stance.AtLeast(preemption.StanceDrain):
			err = a.leave(ctx)
		case stance.AtLeast(preemption.StancePreCopy):
			err = a.prepare(ctx)
		default:
			err = a.hear(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hear waits for the next notice and joins it to the incident, or until it is time for something by itself.
func (a *Agent) hear(ctx context.Context) error {
	waiting, stop := a.untilDue(ctx)
	defer stop()
	n, err := a.notices.Next(waiting)
	switch {
	case err == nil:
		a.join(ctx, n)
	case ctx.Err() != nil:
	case waiting.Err() != nil:
		a.review(ctx)
	default:
		return err
	}
	return nil
}

// prepare carries blocks away while the node serves on, until the stance is another.
func (a *Agent) prepare(ctx context.Context) error {
	preparing, stop := context.WithCancel(ctx)
	defer stop()
	g, preparing := errgroup.WithContext(preparing)
	g.Go(func() error {
		defer stop()
		for preparing.Err() == nil {
			if stance, _ := a.incidents.Stance(); stance != preemption.StancePreCopy {
				return nil
			}
			if err := a.hear(preparing); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() error { a.copyAhead(preparing); return nil })
	g.Go(func() error { a.carryAgain(preparing); return nil })
	return g.Wait()
}

// leave empties the node, tells everybody, and stays until the machine goes or the notice is taken back.
func (a *Agent) leave(ctx context.Context) error {
	if p, _ := a.incidents.Open(); !p.Incident.Leaving() {
		a.begin(p.Incident) // it was time to while this process started
	}
	if !a.leaving() {
		return nil // it is not any more, as far as is known how long leaving takes
	}
	leaving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	g, leaving := errgroup.WithContext(leaving)
	g.Go(func() error { // what is said meanwhile may shorten the time, or end it all
		for leaving.Err() == nil {
			if err := a.hear(leaving); err != nil {
				return err
			}
			if why := a.staysAfterAll(); why != nil {
				stop(why)
			}
		}
		return nil
	})
	g.Go(func() error { a.tell(leaving); return nil })
	g.Go(func() error { a.stopWorkloads(leaving); return nil })
	g.Go(func() error { a.carryAgain(leaving); return nil })
	g.Go(func() error {
		released := make(map[string]bool)
		for leaving.Err() == nil && a.drain(leaving) {
			a.leaveAccount(leaving)
			if a.wroteSince(leaving) {
				continue
			}
			a.release(leaving, released)
			a.untilNews(leaving, released)
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
