package coordinator

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// maxCandidates bounds the nodes that one answer sends a reader to. If there are more, the reader asks for the next part.
const maxCandidates = 128

// nameCandidates adds to a reply the nodes that could have a block, from the question's place in the list on, and nodes that reach a
// fallback. from is the block's source, said are its reported holders.
func (l *locations) nameCandidates(reply *api.LocateReply, r *api.LocateRequest, from string, said ...string) {
	reply.Candidates, reply.Next = l.candidates(r.GetId(), from, r.GetAfter())
	reply.Fallbacks = l.fallbacks()
	if r.GetAfter() == "" {
		reply.Unheard = l.unheard(r.GetId(), from, said)
	}
}

// maxUnheard is how many nodes a reader asks at once (migration.AskMany): if all of them are dead, they cost it one timeout.
const maxUnheard = 16

// unheard are LOST nodes that may have a block: first its source and its reported holders, then nodes with a store of that name, the one
// heard last first.
func (l *locations) unheard(id, from string, said []string) (named []*api.Holder) {
	type silent struct {
		*api.Holder
		seen time.Time
	}
	store, _, _ := strings.Cut(id, "/")
	var others []silent
	l.ledger.view(func(m *registry.Registry) {
		for name, n := range m.Nodes {
			if n.State != registry.Lost {
				continue
			}
			h := &api.Holder{Node: name, Address: n.PeerAddress}
			if name == from || slices.Contains(said, name) {
				named = append(named, h)
			} else if p := l.leases.read(name); l.couldHave(n, p, store) {
				others = append(others, silent{h, p.seen})
			}
		}
	})
	slices.SortFunc(others, func(a, b silent) int {
		return cmp.Or(b.seen.Compare(a.seen), strings.Compare(a.Node, b.Node))
	})
	for _, s := range others {
		named = append(named, s.Holder)
	}
	return named[:min(len(named), maxUnheard)]
}

// couldHave reports whether a node has a store of that name, or has not yet reported its landed blocks.
func (l *locations) couldHave(n registry.Node, p pulse, store string) bool {
	told, _ := l.blocks.Reported(n.Name, n.ID)
	return !told || slices.ContainsFunc(p.status.GetStores(), func(s *api.StoreInfo) bool { return s.GetName() == store })
}

// candidates are the nodes that could have a block: those with its store, and those that have not yet reported their landed blocks (after
// a restart of the coordinator that is all, and not known is not "no"). A node that announced a restart counts, for it will be back.
//
// The block's known source comes first. If there are more than maxCandidates, each block has an order of its own, so that different blocks
// send readers to different nodes; next is the last node that is named, to ask on from. Nodes that come or go do not change the
// order of the others, so a reader that asks for part after part misses none.
func (l *locations) candidates(id, from, after string) (named []*api.Holder, next string) {
	if after != "" {
		from = "" // the first part has named it, or it has its turn
	}
	store, _, _ := strings.Cut(id, "/")
	early := time.Since(l.leases.tookOver()) <= l.cfg.Lease // a DECOMMISSIONED node may be there and not heard yet
	all := circle{id: id, last: seat{at: hashOf(id, after), node: after}}
	l.ledger.view(func(m *registry.Registry) { // thousands of nodes for each question: they are not copied
		for name, n := range m.Nodes {
			p := l.leases.read(name)
			has := l.couldHave(n, p, store)
			there := n.State == registry.Active || n.Leaving() || n.State == registry.Shutdown && !n.ShutOut() || n.State == registry.Decommissioned && (l.leases.present(n.Name) || !p.heard && early)
			switch {
			case !has || !there:
			case name == from:
				named = append(named, &api.Holder{Node: name, Address: n.PeerAddress})
			default:
				all.add(name, n.PeerAddress)
			}
		}
	})
	seats, more := all.first()
	if more {
		next = seats[len(seats)-1].node
	} else if after == "" {
		slices.SortFunc(seats, func(a, b seat) int { return strings.Compare(a.node, b.node) })
	}
	for _, s := range seats {
		named = append(named, &api.Holder{Node: s.node, Address: s.address})
	}
	return named, next
}

// circle finds the first maxCandidates nodes in a block's own order, from the start or behind a node.
type circle struct {
	id    string
	last  seat // only nodes behind it count; without a node: all do
	bound seat // nodes behind it are not among the first; without a node: none is ruled out yet
	seats []seat
}

type seat struct {
	at            uint64
	node, address string
}

func byTurn(a, b seat) int {
	if a.at != b.at {
		return cmp.Compare(a.at, b.at)
	}
	return strings.Compare(a.node, b.node)
}

func (c *circle) add(node, address string) {
	s := seat{hashOf(c.id, node), node, address}
	if c.last.node != "" && byTurn(s, c.last) <= 0 || c.bound.node != "" && byTurn(s, c.bound) > 0 {
		return
	}
	if c.seats = append(c.seats, s); len(c.seats) == 4*maxCandidates {
		c.cut()
	}
}

// cut keeps the first maxCandidates and one more, which tells that there are more.
func (c *circle) cut() {
	slices.SortFunc(c.seats, byTurn)
	if len(c.seats) > maxCandidates {
		c.seats, c.bound = c.seats[:maxCandidates+1], c.seats[maxCandidates]
	}
}

func (c *circle) first() (seats []seat, more bool) {
	c.cut()
	return c.seats[:min(len(c.seats), maxCandidates)], len(c.seats) > maxCandidates
}
