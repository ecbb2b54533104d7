package coordinator

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/api"
)

// maxCandidates bounds whom one answer sends a reader to ask. Where there are more, they are named part by part.
const maxCandidates = 128

// nameCandidates says who could have a block, from where the question says, and who may look into a fallback.
func (f *fleet) nameCandidates(reply *api.LocateReply, r *api.LocateRequest, from string) {
	reply.Candidates, reply.Next = f.candidates(r.GetId(), from, r.GetAfter())
	reply.Fallbacks = f.doors()
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
	var source, all []*api.Holder
	early := time.Since(*f.tookOver.Load()) <= f.cfg.Lease // one that is done may be there still, and has yet to say so
	for _, n := range f.nodes() {
		p := f.leases.read(n.Name)
		told, _ := f.blocks.reported(n.Name, n.ID)
		has := !told || slices.ContainsFunc(p.status.GetStores(), func(s *api.StoreInfo) bool { return s.GetName() == store })
		there := n.State == Active || n.leaving() || n.State == Shutdown && !n.shutOut() || n.State == Decommissioned && (f.present(n) || !p.heard && early)
		if has && there {
			h := &api.Holder{Node: n.Name, Address: n.PeerAddress}
			if n.Name == from {
				source = append(source, h)
			} else {
				all = append(all, h)
			}
		}
	}
	if len(all) <= maxCandidates && after == "" {
		return append(source, all...), ""
	}
	return inParts(source, all, id, after)
}

// inParts are the first of some nodes in an order of the block's own, or those that come behind one of them.
func inParts(first, all []*api.Holder, id, after string) (named []*api.Holder, next string) {
	type seat struct {
		at uint64
		*api.Holder
	}
	seats := make([]seat, 0, len(all))
	last := seat{hashOf(id, after), &api.Holder{Node: after}}
	byTurn := func(a, b seat) int { return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.Node, b.Node)) }
	for _, h := range all {
		if s := (seat{hashOf(id, h.GetNode()), h}); after == "" || byTurn(s, last) > 0 {
			seats = append(seats, s)
		}
	}
	slices.SortFunc(seats, byTurn)
	if len(seats) > maxCandidates {
		seats = seats[:maxCandidates]
		next = seats[maxCandidates-1].Node
	}
	for _, s := range seats {
		first = append(first, s.Holder)
	}
	return first, next
}
