package coordinator

import "github.com/lifeboat/lifeboat/api"

const (
	// doorsEach is how many nodes are named for a fallback: one may have died a moment ago.
	doorsEach = 2
	// maxDoors bounds them all. A fleet has one fallback, or one in each region.
	maxDoors = 16
)

// doors are nodes that reach a fallback, a few for each: what no node holds may lie there, and only its records know.
// Those that stay come first.
func (f *fleet) doors() []*api.Holder {
	var doors []*api.Holder
	all, named := f.nodes(), map[string]int{}
	for _, staying := range []bool{true, false} {
		for _, n := range all {
			name := f.leases.read(n.Name).status.GetFallback()
			if name == "" || (n.State == Active) != staying || !f.present(n) || named[name] == doorsEach || len(doors) == maxDoors {
				continue
			}
			named[name]++
			doors = append(doors, &api.Holder{Node: n.Name, Address: n.PeerAddress})
		}
	}
	return doors
}
