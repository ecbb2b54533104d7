package coordinator

import (
	"fmt"
	"time"

	"github.com/lifeboat/lifeboat/api"
)

// What a node that leaves is held up by. YARN's words (DecommissioningNodesWatcher), and MIGRATING, which YARN has no
// need of.
const (
	waitsForNothing  = "NONE" // it does not leave
	waitsForWorkload = "WAIT_WORKLOAD"
	waitsForApp      = "WAIT_APP"
	migrating        = "MIGRATING"
	ready            = "READY"
	timeIsUp         = "TIMEOUT"
)

// waits refines what is under way, from the log and from what the node last said. A node takes its blocks away from the
// beginning: while it waits for a workload or an app too, that is the word.
func waits(n node, p pulse, elsewhere []appElsewhere, now time.Time) (subState string, waitsFor []string) {
	switch {
	case n.State == Decommissioned && n.Decommission != nil && n.Decommission.Outcome == timedOut:
		return timeIsUp, nil
	case n.State == Decommissioned:
		return string(n.shown()), nil
	case !n.leaving():
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
	if !p.heard || !p.suspected.IsZero() {
		waitsFor = append(waitsFor, "a heartbeat") // what it said last may be long over
	}
	for i, e := range elsewhere {
		if i == appsNamed {
			waitsFor = append(waitsFor, fmt.Sprintf("%d apps more", len(elsewhere)-i))
			break
		}
		waitsFor = append(waitsFor, e.String())
	}
	if subState != ready && n.late(now) {
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

// waitsForApps says whether n stays for the sake of apps: it leaves by an order, and not because its machine goes.
func (n node) waitsForApps() bool {
	d := n.Decommission
	return n.leaving() && d.Order != nil && (d.Notice == nil || d.Notice.Kind == echo)
}

// elsewhere are the apps that n waits for.
func (f *fleet) elsewhere(n node, now time.Time) []appElsewhere {
	if !n.waitsForApps() {
		return nil
	}
	return f.apps.elsewhere(n.Name, f.settled(now), func(other string) bool {
		o, _ := f.node(other)
		return (o.State == Active || o.leaving()) && f.present(o)
	})
}

// directive is the standing wish with the apps that it waits for.
func (f *fleet) directive(n node, now time.Time) *api.Directive {
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
