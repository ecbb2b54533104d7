package coordinator

import (
	"log/slog"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/blockmap"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// chart says where blocks are: which nodes hold them or may, and which are lost. The holders report that to each leader anew.
type chart struct {
	cfg      Config
	log      *slog.Logger
	ledger   *ledger
	leases   *leases
	accounts *accounts
	herald   *herald

	blocks *blockmap.Map
	broken *broken
	asides asides
	moves  *moves
}

func newChart(cfg Config, l *ledger, heard *leases, a *accounts, h *herald, log *slog.Logger) *chart {
	return &chart{cfg: cfg, log: log, ledger: l, leases: heard, accounts: a, herald: h, blocks: blockmap.New(), broken: newBroken(), moves: newMoves(h)}
}

// clear forgets all, for a new term as the leader.
func (c *chart) clear() {
	c.blocks.Clear()
	c.broken.clear()
}

// forget drops what a node reported that was forgotten, or whose name another machine has now, and asks it for nothing any more.
func (c *chart) forget(node string) {
	c.blocks.Forget(node)
	c.broken.leaves(node)
}

// locate says which nodes hold a block, or which may.
func (c *chart) locate(r *api.LocateRequest) (*api.LocateReply, error) {
	id := r.GetId()
	if err := checkID(id); err != nil {
		return nil, fault("%v", err)
	}
	asked, whole := id, string(inventory.BlockID(id).Block())
	if !c.toldOf(id) && c.toldOf(whole) {
		asked = whole // the id is of one file of a block, and reports and manifests name the block
	}
	said, what := c.blocks.Holders(blockmap.KeyOf(asked))
	reply := &api.LocateReply{State: "unknown", Holders: c.reachable(said)}
	if len(reply.Holders) > 0 {
		reply.State = "held"
		if r.GetPastHolders() || !slices.ContainsFunc(reply.Holders, c.answers) { // silent holders may come back in a moment, or not
			c.nameCandidates(reply, r, what.From.Value(), said...)
		}
		return reply, nil
	}
	from, why := c.blocks.EndOf(blockmap.KeyOf(id))
	if why == "" {
		from, why = c.blocks.EndOf(blockmap.KeyOf(whole))
	}
	switch left := c.accounts.lost(asked); {
	case len(said) > 0:
		reply.State, from, why = "lost", what.From.Value(), said[0]+", which had it, is gone"
	case left != nil:
		reply.State, why = "lost", left.Node+" left without it: see its manifest"
	case c.brokenForGood(asked):
		reply.State = "lost"
	}
	reply.Why = why
	c.nameCandidates(reply, r, from, said...)
	return reply, nil
}

// locateFor is locate for a node. The asking node is left out of the holders, whatever it reported: it asks because it does not have the block,
// or cannot read it.
func (c *chart) locateFor(asker string, r *api.LocateRequest) (*api.LocateReply, error) {
	reply, err := c.locate(r)
	if err != nil {
		return nil, err
	}
	isAsker := func(h *api.Holder) bool { return h.Node == asker }
	if !slices.ContainsFunc(reply.Holders, isAsker) {
		return reply, nil
	}
	if reply.Holders = slices.DeleteFunc(reply.Holders, isAsker); len(reply.Holders) == 0 {
		reply.State, reply.Why = "unknown", asker+" has it no more"
		c.nameCandidates(reply, r, "")
	}
	return reply, nil
}

// toldOf reports whether a holder or a manifest has named this very id.
func (c *chart) toldOf(id string) bool {
	said, _ := c.blocks.Holders(blockmap.KeyOf(id))
	return len(said) > 0 || c.accounts.lost(id) != nil || c.brokenForGood(id)
}

// reachable turns names into holders: nodes that stay first, then leaving ones; nodes that are gone are left out. A node that announced a
// restart counts as leaving, for it is on its way back.
func (c *chart) reachable(names []string) []*api.Holder {
	var stay, leave []*api.Holder
	for _, name := range names {
		n, _ := c.ledger.node(name)
		h := &api.Holder{Node: n.Name, Address: n.PeerAddress}
		switch n.State {
		case registry.Active:
			stay = append(stay, h)
		case registry.Decommissioning, registry.Shutdown:
			leave = append(leave, h)
		case registry.Decommissioned:
			if c.leases.present(n.Name) {
				leave = append(leave, h)
			}
		}
	}
	return append(stay, leave...)
}

// answers reports whether a holder was heard within suspect_after, and has not announced a restart.
func (c *chart) answers(h *api.Holder) bool {
	n, _ := c.ledger.node(h.Node)
	p := c.leases.read(h.Node)
	return n.State != registry.Shutdown && p.heard && time.Since(p.seen) <= c.cfg.suspectAfter()
}
