package coordinator

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/api"
)

// Of what takes a node's work away, or gives it back, and has no event of the log that names the node.
const (
	evUnschedulable = "NodeUnschedulable"
	evSchedulable   = "NodeSchedulable"
)

// mostFirst bounds the nodes under a notice of which a leader tells that has just taken over: more would push what else
// happens out of the hub.
const mostFirst = hubKept / 4

// bars is what keeps work from nodes that stay: a notice which they do not leave for, and maintenance to come. Heartbeats say
// the one, the schedule and the host files the other. Here is what this leader last saw of both, so that each change is
// told once. All else that counts (states, deactivated, excluded, suspects) has events of its own.
type bars struct {
	mu    sync.Mutex // guards all below; taken before a replica's
	of    map[string]bar
	first int // nodes told of by being heard for the first time
}

type bar struct {
	noticed, maintained bool
	unheard             bool // since this leader took over
}

func (b bar) bars() bool { return b.noticed || b.maintained }

// serves says whether work is kept from n at most by what has no event of its own.
func (f *fleet) serves(n node) bool {
	return n.State == Active && !n.Excluded && !n.Deactivated && f.leases.read(n.Name).suspected.IsZero()
}

// beginBars takes the fleet as it is: what was told of it, the leader before has told.
func (f *fleet) beginBars() {
	f.bars.mu.Lock()
	defer f.bars.mu.Unlock()
	f.bars.of, f.bars.first = map[string]bar{}, 0
	now := time.Now()
	f.ledger.view(func(m *machine) {
		for name, n := range m.Nodes {
			f.bars.of[name] = bar{maintained: m.maintains(n, now), unheard: true}
		}
	})
}

// maintains says whether a node's machine has an appointment that is not over, is worked on, or is under maintenance by the host files.
func (m *machine) maintains(n node, now time.Time) bool {
	a := m.Schedule.of(n.Name, n.PeerAddress, now)
	return a.mode() != modeUp && !a.past(now) || m.Hosts.Lists.Maintained(n.Name, n.PeerAddress, now)
}

// heedNotice tells when a node's own word takes its work away, or gives it back.
func (f *fleet) heedNotice(n node, st *api.Status) {
	if st == nil {
		return
	}
	f.bars.mu.Lock()
	defer f.bars.mu.Unlock()
	was := f.bars.of[n.Name]
	is := bar{noticed: watched(st), maintained: was.maintained}
	if is == was {
		return
	}
	f.bars.of[n.Name] = is
	if is.bars() == was.bars() || !f.serves(n) {
		return
	}
	if was.unheard {
		if f.bars.first++; f.bars.first > mostFirst {
			return
		}
	}
	data := map[string]string(nil)
	if is.noticed {
		data = saying("reason", "notice", "kind", st.Notice.Kind, "source", st.Notice.Source, "stance", st.Notice.Stance)
	}
	f.log.Info("a node's notice changes whether it is given work", "node", n.Name, "schedulable", !is.bars())
	f.tellSoftly([]event{flip(n, is, data)})
}

// heedMaintenance tells when another schedule, or other host files, or their time, take nodes' work away or give it back: of those
// named, or of all. Of those that are silent another event has just said that their work is another's business.
func (f *fleet) heedMaintenance(names []string, all bool, silent map[string]bool) {
	f.bars.mu.Lock()
	defer f.bars.mu.Unlock()
	now := time.Now()
	var changed []node
	look := func(m *machine, name string, n node) {
		if is := m.maintains(n, now); is != f.bars.of[name].maintained {
			changed = append(changed, n)
		}
	}
	f.ledger.view(func(m *machine) {
		if all {
			for name, n := range m.Nodes {
				look(m, name, n)
			}
			return
		}
		for _, name := range names {
			if n, known := m.Nodes[name]; known {
				look(m, name, n)
			}
		}
	})
	slices.SortFunc(changed, func(a, b node) int { return strings.Compare(a.Name, b.Name) })
	var told []event
	for _, n := range changed {
		was := f.bars.of[n.Name]
		is := was
		is.maintained = !was.maintained
		f.bars.of[n.Name] = is
		if is.bars() != was.bars() && !silent[n.Name] && f.serves(n) {
			told = append(told, flip(n, is, saying("reason", "maintenance")))
		}
	}
	f.tellSoftly(told)
}

func flip(n node, is bar, why map[string]string) event {
	if is.bars() {
		return event{Type: evUnschedulable, Node: n.Name, Data: why}
	}
	return event{Type: evSchedulable, Node: n.Name}
}

// heedBars follows what was decided. A node that comes, or comes back, is looked at by whoever hears of it.
func (f *fleet) heedBars(events []event) {
	var names []string
	var all bool
	silent := map[string]bool{}
	for _, e := range events {
		switch e.Type {
		case evMaintenance, evMachineDown, evMachineUp, evHosts:
			all = true
		case evChanged:
			names = append(names, e.Node)
		case evRegistered:
			names, silent[e.Node] = append(names, e.Node), true
		case evReturned, evRecommissioned, evReactivated, evReadmitted:
			silent[e.Node] = true
		case evReplaced, evForgotten:
			f.bars.mu.Lock()
			delete(f.bars.of, e.Node)
			f.bars.mu.Unlock()
		}
	}
	if all || len(names) > 0 {
		f.heedMaintenance(names, all, silent)
	}
}
