// Command lifeboat is the whole of Lifeboat in one binary: the agent of every host, the thin coordinator, a fleet on
// loopback for trying it out, and the verbs of people who run fleets.
//
// The verbs only ask and print. They ask the coordinator (package api, service Operator) or the agent of this machine (service Local,
// on its socket); they keep nothing, decide nothing and move no block but the one that `get` was asked for. Data goes to stdout and
// progress to stderr, so that a pipe gets only the data. Package show formats both.
//
// The files by subject:
//
//	where it begins:       main, root, exit, version, man
//	the daemons:           agent, coordinator, sidecar, dev; daemon, log, memory, service
//	whom a verb asks:      reach, tls, token, revoke
//	what comes and goes:   screen, typed
//	a node leaves:         decommission, deactivate, forget, refresh, simulate; leaving, wait, machines, maintenance, value, apps
//	what became of it:     nodes, nodes_room, status, status_fallback, status_json, brake, space, account, manifest, manifest_sums, audit, events, web
//	blocks:                blocks, blocks_rm, locate, holders, get, resumed, target, shuffles
//	what is wrong:         doctor, diagnose, diagnose_coordinator, probes, stores, disks, config
//	a fleet begins:        init, join, generalize, raft
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lifeboat/lifeboat/workloads"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == workloads.SupervisorArg {
		os.Exit(workloads.Supervise(os.Args[2:])) // the parent process of a hook: it outlives the daemon that started it
	}
	os.Exit(run(untilTold(), os.Args[1:], os.Stdout, os.Stderr))
}

// echoes is how long after the first signal another counts as the same one: timeout(1) sends its signal to the program, and then again to
// the program's whole group.
const echoes = time.Second

// untilTold returns a context that the first SIGINT or SIGTERM cancels. A second signal, later than echoes, kills the process as it would
// any program.
func untilTold() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(echoes, stop) })
	return ctx
}
