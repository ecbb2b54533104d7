package coordinator

import (
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// What holds up a leaving node: YARN's words (DecommissioningNodesWatcher), and MIGRATING, which YARN does not need.
const (
	waitsForNothing  = "NONE" // it does not leave
	waitsForWorkload = "WAIT_WORKLOAD"
	waitsForApp      = "WAIT_APP"
	migrating        = "MIGRATING"
	ready            = "READY"
	timeIsUp         = "TIMEOUT"
)

// waits says what a leaving node waits for, from the log and the node's last status. A node moves its blocks from the beginning, so
// if it also waits for a workload or an app, the sub-state names that.
func waits(n registry.Node, p pulse, elsewhere []appElsewhere, now time.Time) (subState string, waitsFor []string) {
	switch {
	case n.State == registry.Decommissioned && n.Decommission != nil && n.Decommission.Outcome == registry.TimedOut:
		return timeIsUp, nil
	case n.State == registry.Decommissioned:
		return string(n.Shown()), nil
	case !n.Leaving():
		return waitsForNothing, nil
	}
	subState = migrating
	if p.status.GetDrain().GetPhase() == "drained" {
		subState = ready
	}
	if len(elsewhere) > 0 {
		subState = waitsForApp
	}
	for _, w := range p.status.GetWorkloads() {
		if w.GetAwaited() && !ended(w) {
			subState = waitsForWorkload
			waitsFor = append(waitsFor, workloadWords(w))
		}
	}
	for _, dir := range p.status.GetDrain().GetAwaits() {
		waitsFor = append(waitsFor, fmt.Sprintf("disk %s (does not answer)", dir))
	}
	if !p.heard || !p.suspected.IsZero() {
		waitsFor = append(waitsFor, "a heartbeat") // its last status may be out of date
	}
	for i, e := range elsewhere {
		if i == appsNamed {
			waitsFor = append(waitsFor, fmt.Sprintf("%d apps more", len(elsewhere)-i))
			break
		}
		waitsFor = append(waitsFor, e.String())
	}
	if subState != ready && n.Late(now) {
		subState = timeIsUp
	}
	return subState, waitsFor
}

func workloadWords(w *api.Workload) string {
	words := "workload " + w.GetName()
	switch n := w.GetProcesses(); {
	case w.GetState() == "UNKNOWN":
		words += " (not known whether it runs)"
	case n == 1:
		words += " (1 process)"
	case n > 1:
		words += fmt.Sprintf(" (%d processes)", n)
	}
	return words
}

// leavers are the nodes that leave, with what holds them up.
type leavers struct {
	log    *slog.Logger
	ledger *ledger
	leases *leases
	apps   *apps
}

// elsewhere are the apps that n waits for.
func (w *leavers) elsewhere(n registry.Node, now time.Time) []appElsewhere {
	if !n.WaitsForApps() {
		return nil
	}
	return w.apps.elsewhere(n.Name, w.leases.settled(now), func(other string) bool {
		o, _ := w.ledger.node(other)
		return (o.State == registry.Active || o.Leaving()) && w.leases.present(o.Name)
	})
}

// directive is the order that a reply carries; nil: none. A node that is done is still told of its order, until that is taken back.
func directive(n registry.Node, now time.Time) *api.Directive {
	o := n.Wish()
	if o == nil {
		return nil
	}
	wish := &api.Directive{Decommission: n.Decommission.ID, Reason: o.Reason}
	if at := o.Deadline(); !at.IsZero() {
		wish.Remaining = durationpb.New(at.Sub(now))
	}
	return wish
}

// directive is the order that n is told, with the apps that it waits for.
func (w *leavers) directive(n registry.Node, now time.Time) *api.Directive {
	wish := directive(n, now)
	if wish == nil {
		return nil
	}
	for i, e := range w.elsewhere(n, now) {
		if i == appsNamed {
			break
		}
		wish.Apps = append(wish.Apps, e.app)
	}
	return wish
}
