package coordinator

import (
	"slices"
	"strings"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

const (
	// eachFallback is how many nodes are named for each fallback: one of them may have died a moment ago.
	eachFallback = 2
	// maxFallbacks bounds the nodes that are named. A fleet has one fallback, or one in each region.
	maxFallbacks = 16
)

// fallbacks are nodes that reach a fallback, a few for each. A block that no node holds may be in a fallback, and only the records there
// tell. Nodes that stay come before leaving ones.
func (f *fleet) fallbacks() (doors []*api.Holder) {
	var reach []registry.Node
	f.ledger.view(func(m *registry.Registry) {
		for name, n := range m.Nodes {
			if f.leases.read(name).status.GetFallback() != "" && f.present(n) {
				reach = append(reach, n)
			}
		}
	})
	slices.SortFunc(reach, func(a, b registry.Node) int { return strings.Compare(a.Name, b.Name) })
	named := map[string]int{}
	for _, staying := range []bool{true, false} {
		for _, n := range reach {
			name := f.leases.read(n.Name).status.GetFallback()
			if (n.State == registry.Active) != staying || named[name] == eachFallback || len(doors) == maxFallbacks {
				continue
			}
			named[name]++
			doors = append(doors, &api.Holder{Node: n.Name, Address: n.PeerAddress})
		}
	}
	return doors
}
