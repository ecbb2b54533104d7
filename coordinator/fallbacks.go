package coordinator

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

const (
	// eachFallback is how many nodes are named for each fallback: one of them may have died a moment ago.
	eachFallback = 2
	// maxFallbacks bounds the nodes that are named. A fleet has one fallback, or one in each region.
	maxFallbacks = 16
	// spilledPatience bounds the search through the manifests for a block that is in a fallback. An entry takes 0.25 us to read
	// (docs/design/measured.md), so it sees some millions.
	spilledPatience = 2 * time.Second
)

// fallbacks are nodes that reach a fallback, a few for each. A block that no node holds may be in a fallback, and only the records there
// tell. Nodes that stay come before leaving ones.
func (l *locations) fallbacks() (doors []*api.Holder) {
	var reach []registry.Node
	l.ledger.view(func(m *registry.Registry) {
		for name, n := range m.Nodes {
			if l.leases.read(name).status.GetFallback() != "" && l.leases.present(n.Name) {
				reach = append(reach, n)
			}
		}
	})
	slices.SortFunc(reach, func(a, b registry.Node) int { return strings.Compare(a.Name, b.Name) })
	named := map[string]int{}
	for _, staying := range []bool{true, false} {
		for _, n := range reach {
			name := l.leases.read(n.Name).status.GetFallback()
			if (n.State == registry.Active) != staying || named[name] == eachFallback || len(doors) == maxFallbacks {
				continue
			}
			named[name]++
			doors = append(doors, &api.Holder{Node: n.Name, Address: n.PeerAddress})
		}
	}
	return doors
}

// nameSpilled adds to a reply without holders the fallback into which a node put the block, unless it was named as lost since, or a node that
// reads that fallback is named: then the record there decides. An account proves less, but the block is not to be called lost while the bucket has it, only because no
// agent that reads it is left. It reads files, so it is for operators and not for thousands of readers, and it stops after spilledPatience:
// whoever asks for a block that never was is not kept waiting for it.
func (l *locations) nameSpilled(ctx context.Context, reply *api.LocateReply, id string) {
	ctx, cancel := context.WithTimeout(ctx, spilledPatience)
	defer cancel()
	whole := string(inventory.BlockID(id).Block())
	for _, ref := range l.accounts.moved() {
		for e, err := range l.accounts.files.entries(ref) {
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				break // the others may name it
			}
			name, spilled := strings.CutPrefix(e.Peer, lastresort.PeerPrefix)
			if !spilled || e.Outcome != manifest.Moved || e.ID != id && e.ID != whole {
				continue
			}
			if !l.accounts.lostAfter(e.ID, ref.At) && !slices.ContainsFunc(reply.Fallbacks, func(h *api.Holder) bool { return l.leases.read(h.Node).status.GetFallback() == name }) {
				reply.State, reply.Spilled, reply.SpilledBy = "unknown", name, ref.Node
			}
			return
		}
	}
}
