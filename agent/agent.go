// Package agent is the daemon of every host. It introduces the packages that do the work to each other: preemption hears
// that the machine will go, the journal remembers it, workloads tells and stops what runs here, migration carries the
// blocks to peers, heartbeat keeps the coordinator told. This file lists what an agent consists of; the story is in course.go.
//
// The agent never waits for the coordinator: it drains to the peers that it last heard of. It never changes a file of a
// store that it did not put there itself. An error from Run means that the process cannot do its work and should be
// restarted; the new process resumes the drain.
//
// What each type owns, and the files by it. The first four serve the others, which do not know each other; only the course
// asks the attendant, the evacuations and the refuge:
//
//	rules:        limits that a reload may change: reload
//	incidents:    the journal, and what is asked about the open incident alone: state
//	fleet:        the connection to the coordinator, and what is asked of it: fleet
//	landing:      the monitor of the disks: disks, landing
//	course:       what is done about the open incident: course, state, lastcall
//	  ahead:      prepare
//	  drains:     leave, waiting, reasons, account, earlier
//	  again:      again, afterwards, vigil
//	attendant:    the workloads: workloads, attention, words, stopping
//	evacuations:  disks that are emptied while the node stays: evacuate, evacuations
//	refuge:       accounts while the disk of data_dir hangs: refuge, datadir, ballast
//	standby:      the fallback: fallback
//	behind:       copies that may be out of date: catch_up
//	doors:        listeners and who is connected: listen, guests
//	Agent:        the rest: new, wire, keep, values, place, certificate, socket, simulate, load, manager, metrics, counters, directives
//	Config:       what comes before one: config, join, machine, generalize, start
package agent

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/config"
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
	cfg     Config // as in the file; a node's name that the file leaves out is the certificate's
	file    Config
	place   atomic.Pointer[place]
	limits  rules
	deps    Deps
	log     *slog.Logger
	started time.Time

	stores      []*inventory.Store
	vault       *vault.Vault
	index       *inventory.Index
	told        *migration.Appraisals // the values that programs on this machine gave blocks; nil: the file cannot be read
	receiver    *receiver.Receiver
	reader      *reading.Reader
	fleet       fleet
	cloud       preemption.Cloud // nil: none is listened to
	directives  *directives
	incidents   incidents
	evacuations *evacuations
	disks       landing
	disk        *dataDisk
	refuge      *refuge // keeps the accounts of drains in memory while the disk of data_dir hangs
	fallback    standby
	workloads   attendant
	course      course
	behind      behind
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
	g.Go(func() error { return a.fleet.Run(life) })
	g.Go(func() error { return a.course.notices.Run(life) })
	g.Go(func() error { return a.learnPlace(life) })
	g.Go(func() error { return a.keepCertificate(life) })
	g.Go(func() error { return a.disks.Run(life) })
	g.Go(func() error { return a.tellOfDisks(life) })
	g.Go(func() error { return a.evacuations.Run(life) })
	g.Go(func() error { return a.workloads.Run(life) })
	g.Go(func() error { return a.fallback.Run(life) })
	g.Go(func() error { return a.tidyValues(life) })
	g.Go(func() error { return a.index.Run(life) })
	g.Go(func() error { return a.course.lookBack(life) })
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
				a.course.lastCall(attending)
				stop()
			case <-attending.Done():
			}
			return nil
		})
		a.aside.Go(a.ready) // a service manager that is too busy to hear it must not keep the node from leaving
		err := a.course.Run(attending)
		a.course.farewell(ctx)
		return err
	})
	var err error
	ended := await.Beside(func() {
		err = g.Wait()
		a.aside.Wait()
		a.close()
	})
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

// drainConfig is for a drain that carries every block of this node that the ledger in dir does not name as moved.
func (a *Agent) drainConfig(id, dir string, cap config.Bytes) migration.DrainConfig {
	at := a.place.Load()
	cfg := migration.DrainConfig{
		Node: a.cfg.Node.Name, Zone: at.zone, Pool: at.pool, Incident: id, Dir: dir, Log: a.log,
		Stores: a.stores, Vault: a.vault, Told: a.told, Disks: &a.disks, Index: a.index,
		Settle: a.receiver.Settle, Advised: a.incidents.leaving, Over: a.course.appsOver, OverChanged: a.fleet.AppsChanged,
		Alone: a.fleet.alone, Peers: a.fleet.peers, Missed: a.fleet.missesPeers, Where: a.fleet.whereIs,
		Dial: a.dialPeer, Forget: a.reader.Fetch.Forget, ForgetElsewhere: a.reader.Fetch.ForgetElsewhere, AtHome: a.reader.Fetch.AtHome,
		Connections: a.limits.Load().Drain.ConnectionsPerPeer, MaxBytesPerSecond: int64(cap), Fallback: a.fallback.lastResort,
	}
	if a.behind.is.Load() {
		cfg.WhoElse = a.fleet.whoElse
	}
	if a.fleet.Namesake() {
		cfg.Namesake = a.behind.askHolders()
	}
	return cfg
}
