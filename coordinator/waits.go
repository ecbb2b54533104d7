package coordinator

import (
	"fmt"
	"time"

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

// elsewhere are the apps that n waits for.
func (f *fleet) elsewhere(n registry.Node, now time.Time) []appElsewhere {
	if !n.WaitsForApps() {
		return nil
	}
	return f.apps.elsewhere(n.Name, f.leases.settled(now), func(other string) bool {
		o, _ := f.ledger.node(other)
		return (o.State == registry.Active || o.Leaving()) && f.leases.present(o.Name)
	})
}

// directive is the order that n is told, with the apps that it waits for.
func (f *fleet) directive(n registry.Node, now time.Time) *api.Directive {
	wish := directive(n, now)
	if wish == nil {
		return nil
	}
	for i, e := range f.elsewhere(n, now) {
		if i == appsNamed {
			break
		}
		wish.Apps = append(wish.Apps, e.app)
	}
	return wish
}
