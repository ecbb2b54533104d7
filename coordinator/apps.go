package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/lifeboat/lifeboat/api"
)

const (
	// mostApps is how many apps a node is remembered to have run. The one that was named longest ago makes room.
	mostApps = 1024

	// appsNamed bounds the apps, or the nodes of an app, that one answer names.
	appsNamed = 64
)

// apps knows which apps run on which nodes, and which have run on a node since this leader first heard it. It is soft: nodes
// repeat what they run. A node that leaves by an order waits for apps that ran on it, because they may want their blocks for as long as
// they run anywhere.
type apps struct {
	mu     sync.Mutex
	hosts  map[string]*hostApps
	runsOn map[string][]string // app: the nodes that run it, sorted
}

// hostApps are the apps of one node.
type hostApps struct {
	runs []string          // now, sorted
	ran  map[string]uint64 // every app that it has named, and the value of said when it last did
	said uint64            // how often runs has changed
}

func newApps() *apps {
	a := &apps{}
	a.clear()
	return a
}

// clear forgets all, for a new term as the leader.
func (a *apps) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hosts, a.runsOn = map[string]*hostApps{}, map[string][]string{}
}

// hear notes the apps that a node runs. A status that repeats the last one costs next to nothing.
func (a *apps) hear(node string, s *api.Status) {
	if s == nil {
		return
	}
	runs := appsIn(s)
	a.mu.Lock()
	defer a.mu.Unlock()
	h, ok := a.hosts[node]
	if !ok {
		if len(runs) == 0 {
			return
		}
		h = &hostApps{ran: map[string]uint64{}}
		a.hosts[node] = h
	}
	if slices.Equal(h.runs, runs) {
		return
	}
	h.said++
	for _, app := range h.runs {
		a.strike(app, node)
	}
	for _, app := range runs {
		h.remember(app)
		nodes := a.runsOn[app]
		if at, found := slices.BinarySearch(nodes, node); !found {
			a.runsOn[app] = slices.Insert(nodes, at, node)
		}
	}
	h.runs = runs
}

// appsIn are the apps of a status's workloads that have not ended, sorted, each once.
func appsIn(s *api.Status) (runs []string) {
	for _, w := range s.GetWorkloads() {
		if !ended(w) {
			runs = append(runs, w.GetApps()...)
		}
	}
	slices.Sort(runs)
	runs = slices.Compact(runs)
	return runs[:min(len(runs), mostApps)]
}

// ended reports whether a workload is gone. A workload whose state is not known counts as running.
func ended(w *api.Workload) bool { return w.GetState() == "DONE" || w.GetState() == "KILLED" }

// remember notes an app, if need be in the place of the one that was named longest ago.
func (h *hostApps) remember(app string) {
	if _, known := h.ran[app]; !known && len(h.ran) >= mostApps {
		oldest, at := "", h.said+1
		for name, said := range h.ran {
			if said < at || said == at && name < oldest {
				oldest, at = name, said
			}
		}
		delete(h.ran, oldest)
	}
	h.ran[app] = h.said
}

// strike notes that a node does not run an app any more.
func (a *apps) strike(app, node string) {
	nodes := a.runsOn[app]
	at, found := slices.BinarySearch(nodes, node)
	switch {
	case found && len(nodes) == 1:
		delete(a.runsOn, app)
	case found:
		a.runsOn[app] = slices.Delete(nodes, at, at+1)
	}
}

// quit notes that a node runs nothing because it is gone or LOST. The apps that it ran before are kept, for it may come back.
func (a *apps) quit(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h, ok := a.hosts[node]; ok {
		for _, app := range h.runs {
			a.strike(app, node)
		}
		h.runs = nil
	}
}

func (a *apps) forget(node string) {
	a.quit(node)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.hosts, node)
}

// appElsewhere is an app that ran on a node and runs on others.
type appElsewhere struct {
	app  string
	on   string // one of those nodes; empty: not known, because not every node was heard yet
	more int    // how many nodes beside that one
}

func (e appElsewhere) String() string {
	switch {
	case e.on == "":
		return "app " + e.app + " (not every node was heard yet)"
	case e.more > 0:
		return fmt.Sprintf("app %s (runs on %s and %d more)", e.app, e.on, e.more)
	}
	return fmt.Sprintf("app %s (runs on %s)", e.app, e.on)
}

// elsewhere are the apps that ran on a node and run on other nodes that live. While some nodes have not been heard (heardAll), any of the
// apps may run there, so all are included.
func (a *apps) elsewhere(node string, heardAll bool, live func(node string) bool) (all []appElsewhere) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h, ok := a.hosts[node]
	if !ok {
		return nil
	}
	for app := range h.ran {
		e := appElsewhere{app: app}
		for i, other := range a.runsOn[app] {
			if other != node && live(other) {
				e.on = other
				e.more = len(a.runsOn[app]) - i - 1
				if _, found := slices.BinarySearch(a.runsOn[app][i+1:], node); found {
					e.more--
				}
				break
			}
		}
		if e.on != "" || !heardAll {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b appElsewhere) int { return strings.Compare(a.app, b.app) })
	return all
}
