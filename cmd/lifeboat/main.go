// Command lifeboat is the whole of Lifeboat in one binary: the agent of every host, the thin coordinator, a fleet on
// loopback for trying it out, and the verbs of people who run fleets.
//
// The verbs only ask and print. What they know they learn from the coordinator (package api, service Operator) or from
// the agent of this machine (service Local, on its socket); they keep nothing, decide nothing and move no block but the
// one that `get` was asked for. Data goes to stdout and progress to stderr, so that a pipe sees only what it asked for; how that looks
// is package show's.
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
		os.Exit(workloads.Supervise(os.Args[2:])) // a hook's parent, which outlives the daemon that started it
	}
	os.Exit(run(untilTold(), os.Args[1:], os.Stdout, os.Stderr))
}

// echoes is how long after the first signal a second one is the same: timeout(1) sends its own to the program, and then to all of
// its group.
const echoes = time.Second

// untilTold ends with the first signal that asks us to end; a second one ends us as it would any program.
func untilTold() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(echoes, stop) })
	return ctx
}
