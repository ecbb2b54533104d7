package coordinator

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// Soft events of causes that take work from a node, or give it back, without an event of the log that names the node.
const (
	evUnschedulable = "NodeUnschedulable"
	evSchedulable   = "NodeSchedulable"
)

// mostFirst bounds the nodes under a notice of which a new leader tells when it first hears them: more would push other events out of
// the hub.
const mostFirst = hubKept / 4

// bars are the causes that keep work from nodes that stay, as this leader last saw them, so that each change is told once. One cause is a
// notice for which the node does not leave, which heartbeats carry. The other is maintenance to come, by the schedule or the host
// files. All other causes (states, deactivated, excluded, suspects) have events of their own.
type bars struct {
	log       *slog.Logger
	ledger    *ledger
	leases    *leases
	publisher *publisher

	mu    sync.Mutex // guards all below; taken before a replica's
	of    map[string]bar
	first int // nodes of which an event told when they were first heard
}

type bar struct {
	noticed, maintained bool
	unheard             bool // not heard since this leader took over
}

func (b bar) bars() bool { return b.noticed || b.maintained }

// serves reports whether no cause with events of its own keeps work from n.
func (b *bars) serves(n registry.Node) bool {
	return n.State == registry.Active && !n.Excluded && !n.Deactivated && b.leases.read(n.Name).suspected.IsZero()
}

// begin takes the fleet as it is, without events: the leader before has told what there was to tell.
func (b *bars) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of, b.first = map[string]bar{}, 0
	now := time.Now()
	b.ledger.view(func(m *registry.Registry) {
		for name, n := range m.Nodes {
			b.of[name] = bar{maintained: m.Maintains(n, now), unheard: true}
		}
	})
}

// heedNotice tells when a notice in a node's status takes work from it, or its end gives work back.
func (b *bars) heedNotice(n registry.Node, st *api.Status) {
	if st == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.of[n.Name]
	is := bar{noticed: watched(st), maintained: was.maintained}
	if is == was {
		return
	}
	b.of[n.Name] = is
	if is.bars() == was.bars() || !b.serves(n) {
		return
	}
	if was.unheard {
		if b.first++; b.first > mostFirst {
			return
		}
	}
	data := map[string]string(nil)
	if is.noticed {
		data = registry.Saying("reason", "notice", "kind", st.Notice.Kind, "source", st.Notice.Source, "stance", st.Notice.Stance)
	}
	b.log.Info("a node's notice changes whether it is given work", "node", n.Name, "schedulable", !is.bars())
	b.publisher.tellAll([]registry.Event{flip(n, is, data)})
}

// heedMaintenance tells when maintenance takes work from nodes or gives it back, because the schedule or the host files have changed or time
// has gone on. It looks at the named nodes, or at all. Of the nodes in silent it tells nothing: another event has just told that their
// work changes.
func (b *bars) heedMaintenance(names []string, all bool, silent map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	var changed []registry.Node
	look := func(m *registry.Registry, name string, n registry.Node) {
		if is := m.Maintains(n, now); is != b.of[name].maintained {
			changed = append(changed, n)
		}
	}
	b.ledger.view(func(m *registry.Registry) {
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
	slices.SortFunc(changed, func(a, b registry.Node) int { return strings.Compare(a.Name, b.Name) })
	var told []registry.Event
	for _, n := range changed {
		was := b.of[n.Name]
		is := was
		is.maintained = !was.maintained
		b.of[n.Name] = is
		if is.bars() != was.bars() && !silent[n.Name] && b.serves(n) {
			told = append(told, flip(n, is, registry.Saying("reason", "maintenance")))
		}
	}
	b.publisher.tellAll(told)
}

func flip(n registry.Node, is bar, why map[string]string) registry.Event {
	if is.bars() {
		return registry.Event{Type: evUnschedulable, Node: n.Name, Data: why}
	}
	return registry.Event{Type: evSchedulable, Node: n.Name}
}

// heed looks at the nodes that a decision's events concern. Followers look at a node themselves when an event says that it has come, or
// come back.
func (b *bars) heed(events []registry.Event) {
	var names []string
	var all bool
	silent := map[string]bool{}
	for _, e := range events {
		switch e.Type {
		case registry.EventMaintenance, registry.EventMachineDown, registry.EventMachineUp, registry.EventHosts:
			all = true
		case registry.EventChanged:
			names = append(names, e.Node)
		case registry.EventRegistered:
			names, silent[e.Node] = append(names, e.Node), true
		case registry.EventReturned, registry.EventRecommissioned, registry.EventReactivated, registry.EventReadmitted:
			silent[e.Node] = true
		case registry.EventReplaced, registry.EventForgotten:
			b.mu.Lock()
			delete(b.of, e.Node)
			b.mu.Unlock()
		}
	}
	if all || len(names) > 0 {
		b.heedMaintenance(names, all, silent)
	}
}
