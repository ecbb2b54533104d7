// Package agent is the daemon of every host. It introduces the packages that do the work to each other: preemption hears
// that the machine will go, the journal remembers it, workloads tells and stops what runs here, migration carries the
// blocks to peers, heartbeat keeps the coordinator told. The story is in this file; each other file is one part of it.
//
// The agent never waits for the coordinator: it drains to the peers that it last heard of. It never changes a file of a
// store that it did not put there itself. An error from Run means that the process cannot do its work and should be
// restarted; the new process resumes the drain.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
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

	// Logind reports that the operating system goes down. Nil: logind is not asked, and SIGTERM only stops the agent.
	Logind *preemption.Logind

	// ProbeCommand starts a process that calls disks.ServeProbes. Empty: this process probes the disks itself, and each disk
	// that hangs holds one of its threads.
	ProbeCommand []string
	// Monitor replaces the disk monitor, in tests. Nil: a disks.Monitor.
	Monitor func(disks.Config) Monitor

	// Units replaces systemd for workloads, in tests. Nil: systemd.
	Units workloads.Units

	Ready func() // called once the agent serves; may be nil
}

// Agent is one node's agent. It is made by New and runs once.
type Agent struct {
	cfg         Config // as in the file; a node's name that the file leaves out is the certificate's
	file        Config
	place       atomic.Pointer[place]
	limits      rules
	deps        Deps
	log         *slog.Logger
	started     time.Time
	incarnation string // of this node

	stores      []*inventory.Store
	vault       *vault.Vault
	index       *inventory.Index
	told        *migration.Appraisals // the values that programs on this machine gave blocks; nil: the file cannot be read
	receiver    *receiver.Receiver
	reader      *reading.Reader
	beat        fleet
	manual      *preemption.Manual
	cloud       preemption.Cloud // nil: none is listened to
	directives  *directives
	notices     *preemption.Watcher
	incidents   incidents
	evacuations *evacuations
	disks       landing
	disk        *dataDisk
	refuge      *refuge // keeps the accounts of drains in memory while the disk of data_dir hangs
	fallback    standby
	workloads   attendant
	vigil       vigil // of the open incident
	behind      behind
	written     chan page     // pages of drains that are over, after which something was written here
	accounting  chan struct{} // full while an account is written and sent
	passing     chan struct{} // full while a pass of a drain runs
	drains      drains
	ballast     ballast
	counts      *counters
	at          doors
	aside       sync.WaitGroup // calls in the background: only the end of Run waits for them
}

// Run serves peers and readers, beats, hears notices and drains, until ctx ends. The servers and the heartbeat outlive the
// drain: the peers that are about to take a node's blocks would take a silent node for dead.
func (a *Agent) Run(ctx context.Context) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, life := errgroup.WithContext(life)
	g.Go(func() error { return a.receiver.Run(life) })
	g.Go(func() error { return a.at.Run(life) })
	g.Go(func() error { return a.beat.Run(life) })
	g.Go(func() error { return a.notices.Run(life) })
	g.Go(func() error { return a.learnPlace(life) })
	g.Go(func() error { return a.keepCertificate(life) })
	g.Go(func() error { return a.disks.Run(life) })
	g.Go(func() error { return a.tellOfDisks(life) })
	g.Go(func() error { return a.evacuations.Run(life) })
	g.Go(func() error { return a.workloads.Run(life) })
	g.Go(func() error { return a.fallback.Run(life) })
	g.Go(func() error { return a.tidyValues(life) })
	g.Go(func() error { return a.index.Run(life) })
	g.Go(func() error { return a.lookBack(life) })
	g.Go(func() error { return a.behind.Run(life) })
	g.Go(func() error { return a.keepBallast(life) })
	g.Go(func() error { return a.refuge.Run(life) })
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

// stopPatience is how long Run, at its end, waits for its goroutines: far longer than requests under way may take
// (farewellTimeout).
const stopPatience = 20 * time.Second

// attend does what the notices ask, one incident after the other. An incident that a crash interrupted comes first.
func (a *Agent) attend(ctx context.Context) error {
	for ctx.Err() == nil {
		var err error
		p, _ := a.incidents.Open()
		switch stance, _ := a.incidents.Stance(); {
		case p.Begun && !stance.AtLeast(preemption.StanceDrain): // a process was killed between writing a withdrawal and acting on it
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

// hear waits for the next notice and joins it to the incident. If the incident is due for a review before one comes, as when
// an appointment is near, it does that instead.
func (a *Agent) hear(ctx context.Context) error {
	waiting, stop := a.incidents.untilDue(ctx)
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

// prepare copies blocks to peers while the node serves on, until the stance changes.
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

// leave empties the node, tells the coordinator and the workloads, and stays until the machine goes or the notice is taken
// back.
func (a *Agent) leave(ctx context.Context) error {
	if p, _ := a.incidents.Open(); !p.Incident.Leaving() {
		a.begin(p.Incident) // the time to leave came while this process started
	}
	if !a.incidents.leaving() {
		return nil // the estimate of how long leaving takes has shrunk since: it is too early
	}
	leaving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	g, leaving := errgroup.WithContext(leaving)
	g.Go(func() error { // a notice that comes meanwhile may shorten the time, or take the leaving back
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
	g.Go(func() error { a.workloads.stop(leaving); return nil })
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
