package coordinator

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/blockmap"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// locations says where blocks are: which nodes hold them or may, and which are lost. The holders report that to each leader anew.
type locations struct {
	cfg       Config
	log       *slog.Logger
	ledger    *ledger
	leases    *leases
	accounts  *accounts
	publisher *publisher

	blocks *blockmap.Map
	broken *broken
	asides asides
	moves  *moves
}

func newLocations(cfg Config, l *ledger, heard *leases, a *accounts, p *publisher, log *slog.Logger) *locations {
	return &locations{cfg: cfg, log: log, ledger: l, leases: heard, accounts: a, publisher: p, blocks: blockmap.New(), broken: newBroken(), moves: newMoves(p)}
}

// clear forgets all, for a new term as the leader.
func (l *locations) clear() {
	l.blocks.Clear()
	l.broken.clear()
}

// forget drops what a node reported that was forgotten, or whose name another machine has now, and asks it for nothing any more.
func (l *locations) forget(node string) {
	l.blocks.Forget(node)
	l.broken.leaves(node)
}

// located is how many landed blocks have a holder; 0 if this coordinator does not lead: what it knew as the leader gets old.
func (l *locations) located() int {
	if !l.ledger.leads() {
		return 0
	}
	return l.blocks.Located()
}

// locate says which nodes hold a block, or which may.
func (l *locations) locate(r *api.LocateRequest) (*api.LocateReply, error) {
	id := r.GetId()
	if err := checkID(id); err != nil {
		return nil, err
	}
	asked, whole := id, string(inventory.BlockID(id).Block())
	if !l.toldOf(id) && l.toldOf(whole) {
		asked = whole // the id is of one file of a block, and reports and manifests name the block
	}
	said, what := l.blocks.Holders(blockmap.KeyOf(asked))
	reply := &api.LocateReply{State: "unknown", Holders: l.reachable(said)}
	if len(reply.Holders) > 0 {
		reply.State = "held"
		if r.GetPastHolders() || !slices.ContainsFunc(reply.Holders, l.answers) { // silent holders may come back in a moment, or not
			l.nameCandidates(reply, r, what.From.Value(), said...)
		}
		return reply, nil
	}
	from, why := l.blocks.EndOf(blockmap.KeyOf(id))
	if why == "" {
		from, why = l.blocks.EndOf(blockmap.KeyOf(whole))
	}
	if why == "" {
		why = l.appOver(id)
	}
	switch left := l.accounts.lost(asked); {
	case len(said) > 0:
		reply.State, from, why = "lost", what.From.Value(), said[0]+", which had it, is gone"
	case left != nil:
		reply.State, why = "lost", left.Node+" left without it: see its manifest"
	case l.brokenForGood(asked):
		reply.State = "lost"
	}
	reply.Why = why
	l.nameCandidates(reply, r, from, said...)
	return reply, nil
}

// appOver says that a block's app is over, and why; empty: it is not. Unlike the end of a block, each leader knows that.
func (l *locations) appOver(id string) (why string) {
	l.ledger.view(func(m *registry.Registry) {
		if over := m.Lives[inventory.BlockID(id).App()].Over; over != "" {
			why = "its app is over: " + over
		}
	})
	return why
}

// locateFor is locate for a node. The asking node is left out of the holders, whatever it reported: it asks because it does not have the block,
// or cannot read it.
func (l *locations) locateFor(asker string, r *api.LocateRequest) (*api.LocateReply, error) {
	reply, err := l.locate(r)
	if err != nil {
		return nil, err
	}
	isAsker := func(h *api.Holder) bool { return h.Node == asker }
	if !slices.ContainsFunc(reply.Holders, isAsker) {
		return reply, nil
	}
	if reply.Holders = slices.DeleteFunc(reply.Holders, isAsker); len(reply.Holders) == 0 {
		reply.State, reply.Why = "unknown", asker+" has it no more"
		whole := string(inventory.BlockID(r.GetId()).Block())
		from := cmp.Or(l.blocks.CameFrom(blockmap.KeyOf(r.GetId()), asker), l.blocks.CameFrom(blockmap.KeyOf(whole), asker))
		l.nameCandidates(reply, r, from)
	}
	return reply, nil
}

// toldOf reports whether a holder or a manifest has named this very id.
func (l *locations) toldOf(id string) bool {
	said, _ := l.blocks.Holders(blockmap.KeyOf(id))
	return len(said) > 0 || l.accounts.lost(id) != nil || l.brokenForGood(id)
}

// reachable turns names into holders: nodes that stay first, then leaving ones; nodes that are gone are left out. A node that announced a
// restart counts as leaving, for it is on its way back.
func (l *locations) reachable(names []string) []*api.Holder {
	var stay, leave []*api.Holder
	for _, name := range names {
		n, _ := l.ledger.node(name)
		h := &api.Holder{Node: n.Name, Address: n.PeerAddress}
		switch n.State {
		case registry.Active:
			stay = append(stay, h)
		case registry.Decommissioning, registry.Shutdown:
			leave = append(leave, h)
		case registry.Decommissioned:
			if l.leases.present(n.Name) {
				leave = append(leave, h)
			}
		}
	}
	return append(stay, leave...)
}

// answers reports whether a holder was heard within suspect_after, and has not announced a restart.
func (l *locations) answers(h *api.Holder) bool {
	n, _ := l.ledger.node(h.Node)
	p := l.leases.read(h.Node)
	return n.State != registry.Shutdown && p.heard && time.Since(p.seen) <= l.cfg.suspectAfter()
}
