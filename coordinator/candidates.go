package coordinator

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// maxCandidates bounds whom one answer sends a reader to ask. Where there are more, they are named part by part.
const maxCandidates = 128

// nameCandidates says who could have a block, from where the question says, and who may look into a fallback. Some are said to have it.
func (f *fleet) nameCandidates(reply *api.LocateReply, r *api.LocateRequest, from string, said ...string) {
	reply.Candidates, reply.Next = f.candidates(r.GetId(), from, r.GetAfter())
	reply.Fallbacks = f.fallbacks()
	if r.GetAfter() == "" {
		reply.Unheard = f.unheard(r.GetId(), from, said)
	}
}

// maxUnheard is how many a reader asks at once (migration.AskMany): those that are dead cost one's patience.
const maxUnheard = 16

// unheard are LOST nodes that may have a block: those that are said to, then those whose stores could, and of these whoever was heard of last.
func (f *fleet) unheard(id, from string, said []string) (named []*api.Holder) {
	type silent struct {
		*api.Holder
		seen time.Time
	}
	store, _, _ := strings.Cut(id, "/")
	var others []silent
	f.ledger.view(func(m *registry.Registry) {
		for name, n := range m.Nodes {
			if n.State != registry.Lost {
				continue
			}
			h := &api.Holder{Node: name, Address: n.PeerAddress}
			if name == from || slices.Contains(said, name) {
				named = append(named, h)
			} else if p := f.leases.read(name); f.couldHave(n, p, store) {
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

// couldHave says whether a node has a store of that name, or has yet to say what landed there.
func (f *fleet) couldHave(n registry.Node, p pulse, store string) bool {
	told, _ := f.blocks.Reported(n.Name, n.ID)
	return !told || slices.ContainsFunc(p.status.GetStores(), func(s *api.StoreInfo) bool { return s.GetName() == store })
}

// candidates are the nodes that have a store of the block's name, and those that have yet to say what landed there: after
// a restart nobody has told us anything, and what is not known is not "no". So is one that announced a restart: it will be back. The node that the block is known to have come from is
// the first. Where there are too many, different blocks get different ones, and next is the one behind which there are more. They are in an order that no node
// upsets which comes or goes, so that whoever asks for all of them passes none by.
func (f *fleet) candidates(id, from, after string) (named []*api.Holder, next string) {
	if after != "" {
		from = "" // it was named with the first, or has its turn
	}
	store, _, _ := strings.Cut(id, "/")
	early := time.Since(*f.tookOver.Load()) <= f.cfg.Lease // one that is done may be there still, and has yet to say so
	all := circle{id: id, last: seat{at: hashOf(id, after), node: after}}
	f.ledger.view(func(m *registry.Registry) { // thousands, each time: none is copied
		for name, n := range m.Nodes {
			p := f.leases.read(name)
			has := f.couldHave(n, p, store)
			there := n.State == registry.Active || n.Leaving() || n.State == registry.Shutdown && !n.ShutOut() || n.State == registry.Decommissioned && (f.present(n) || !p.heard && early)
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

// circle finds the first of some nodes in an order of a block's own, or those that come behind one of them.
type circle struct {
	id    string
	last  seat // whom they come behind; of no node: all
	bound seat // who comes behind it is not one of them; of no node: anybody may be
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

// cut leaves one more than are named, if there are.
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
