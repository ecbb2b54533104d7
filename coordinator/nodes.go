package coordinator

import (
	"slices"
	"strings"

	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// node reads the durable record of one node.
func (l *ledger) node(name string) (n registry.Node, known bool) {
	l.view(func(m *registry.Registry) { n, known = m.Nodes[name] })
	return n, known
}

// nodes reads the durable records of all nodes, by name.
func (l *ledger) nodes() []registry.Node {
	var all []registry.Node
	l.view(func(m *registry.Registry) {
		all = make([]registry.Node, 0, len(m.Nodes))
		for _, n := range m.Nodes {
			all = append(all, n)
		}
	})
	slices.SortFunc(all, func(a, b registry.Node) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// size is how many nodes the log has.
func (l *ledger) size() (nodes int) {
	l.view(func(m *registry.Registry) { nodes = len(m.Nodes) })
	return nodes
}

// counts is the fleet in numbers.
type counts struct {
	nodes     map[registry.State]int64
	lost      int64
	lastEvent uint64
}

func (l *ledger) count() counts {
	c := counts{nodes: map[registry.State]int64{}}
	for _, s := range registry.States {
		c.nodes[s] = 0
	}
	l.view(func(m *registry.Registry) {
		c.lastEvent = m.LastEvent
		for _, n := range m.Nodes {
			c.nodes[n.Shown()]++
		}
		for _, ref := range m.Manifests {
			if ref.Lost > 0 && m.InForce(ref) {
				c.lost += ref.Lost
			}
		}
	})
	return c
}
