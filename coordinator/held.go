package coordinator

import (
	"cmp"
	"context"
	"slices"
	"time"
	"unique"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/blockmap"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// reportSlack is how long a report of what landed is under way at most, beyond the beats that it waits for.
const reportSlack = 3 * time.Second

// mostPeersAsked is how many nodes one question is about.
const mostPeersAsked = 1024

// CheckHeld tells a node what it carried to others and nobody has any more.
func (s *membership) CheckHeld(ctx context.Context, r *api.CheckHeldRequest) (*api.CheckHeldReply, error) {
	if _, err := speaker(ctx, r.GetNode()); err != nil {
		return nil, err
	}
	if r.GetAge() != nil && r.Age.CheckValid() != nil {
		return nil, fault("age: %v", r.Age.CheckValid())
	}
	if err := checkCount("peers", len(r.GetPeers()), mostPeersAsked); err != nil {
		return nil, err
	}
	count := 0
	for _, run := range r.GetBlocks() {
		count += len(run.GetLengths())
	}
	if err := checkCount("blocks", count, maxBlocks); err != nil {
		return nil, err
	}
	for _, run := range r.GetBlocks() {
		if err := checkRun(run, checkID); err != nil {
			return nil, err
		}
	}
	reply := s.held(r)
	reply.Renewed, reply.Addresses = map[string]string{}, map[string]string{}
	reply.GoneFor, reply.KnownFor = map[string]*durationpb.Duration{}, map[string]*durationpb.Duration{}
	s.ledger.view(func(m *registry.Registry) { reply.Index, reply.Log = m.LastEvent, m.Log() })
	for _, peer := range r.GetPeers() { // what can be no node is none
		if is := s.reachable([]string{peer}); len(is) > 0 {
			reply.Addresses[peer] = is[0].Address
		}
		if age, gone := s.goneFor(peer); gone {
			reply.GoneFor[peer] = durationpb.New(age)
		}
		n, known := s.node(peer)
		if known {
			reply.KnownFor[peer] = durationpb.New(time.Since(n.Began))
		}
		if !s.vouches(peer) {
			reply.Gone = append(reply.Gone, peer)
		} else if r.GetSince() > 0 && n.RegisteredAt() > r.GetSince() {
			reply.Renewed[peer] = n.ID
		}
	}
	return reply, nil
}

// lookingFor is one question about blocks, and what was found out for it: thousands of blocks are at a few nodes.
type lookingFor struct {
	*fleet
	asked           *api.CheckHeldRequest
	reply           *api.CheckHeldReply
	told            bool // who is not known to hold a block does not
	vouched, leaves func(node string) bool
}

func (f *fleet) held(r *api.CheckHeldRequest) *api.CheckHeldReply {
	l := &lookingFor{fleet: f, asked: r, reply: &api.CheckHeldReply{}, told: f.toldAll(r.GetAge().AsDuration())}
	l.vouched = once(func(node string) bool {
		is := f.vouches(node)
		// Who is done and there still, as after a rehearsal, may stay with what it has: it can be asked what that is.
		if (is || r.GetElsewhere() && f.hasYet(node)) && len(l.reply.Holders) < mostPeersAsked {
			l.reply.Holders = append(l.reply.Holders, node)
		}
		return is
	})
	l.leaves = once(func(node string) bool {
		n, _ := f.node(node)
		return n.Leaving() || n.State == registry.Decommissioned
	})
	if r.GetElsewhere() {
		l.elsewhere()
	} else {
		l.missing()
	}
	return l.reply
}

// once asks about each node once.
func once(ask func(node string) bool) func(node string) bool {
	answers := map[string]bool{}
	return func(node string) bool {
		is, asked := answers[node]
		if !asked {
			is = ask(node)
			answers[node] = is
		}
		return is
	}
}

// elsewhere says of each block where it is beside the node that asks.
func (l *lookingFor) elsewhere() {
	scope := unique.Make("")
	for _, run := range l.asked.GetBlocks() {
		for id := range run.IDs() {
			others, _ := l.blocks.Holders(blockmap.KeyNear(id, &scope))
			others = slices.DeleteFunc(others, func(node string) bool { return node == l.asked.GetNode() || !l.vouched(node) })
			if len(others) == 0 && !l.told {
				l.reply.Unsure++
			}
			stays := slices.IndexFunc(others, func(node string) bool { return !l.leaves(node) })
			at := 0
			if len(others) > 0 {
				at = slices.Index(l.reply.Holders, others[max(stays, 0)]) + 1
			}
			l.reply.At = append(l.reply.At, uint32(at))
		}
	}
}

// missing names the blocks that nobody has any more, and why the first of them is so.
func (l *lookingFor) missing() {
	var holders []string
	place, scope := uint32(0), unique.Make("")
	for _, run := range l.asked.GetBlocks() {
		for id, bytes := range run.IDs() {
			k, at := blockmap.KeyNear(id, &scope), place
			place++
			holders = l.blocks.AppendHolders(holders[:0], k, bytes)
			kept, was := false, ""
			for _, node := range holders {
				// Whoever asks goes. What it took in once it carries like its own, and has it still. Of what it had from one that goes, too, that
				// one may say that this one has it.
				if node != l.asked.GetNode() {
					kept, was = l.vouched(node) && !(l.leaves(node) && l.blocks.CameFrom(k, l.asked.GetNode()) == node), node
					if kept {
						break
					}
				}
			}
			if kept {
				continue
			}
			_, why := l.blocks.EndOf(k)
			switch {
			case was != "" && len(l.reachable([]string{was})) > 0:
				why = was + ", which has it, goes"
			case was != "":
				why = was + ", which had it, is gone"
			case !l.told: // a peer that said why it has the block no more may have had an older version, and the taker of this one has yet to report it
				l.reply.Unsure++
				continue
			}
			l.reply.Missing = append(l.reply.Missing, at)
			l.reply.Why = cmp.Or(l.reply.Why, why)
		}
	}
}

// vouches says whether what a node was said to hold is held by it, or will be by another. Whoever is done has handed on what it could,
// which those who took it have told of: what it has besides nobody will have in a moment.
func (f *fleet) vouches(name string) bool {
	n, _ := f.node(name)
	return f.hasYet(name) && (n.State != registry.Decommissioned || time.Since(n.Since) <= 2*f.pace().interval+reportSlack)
}

// hasYet says whether a node can be reached that has what it was said to hold.
func (f *fleet) hasYet(name string) bool {
	n, _ := f.node(name)
	_, another := f.blocks.Reported(name, n.ID)
	return !another && len(f.reachable([]string{name})) > 0
}

// goneFor is for how long a node has been gone, unless it stays: 0 for one that may go any moment, and for one that may say so yet to a
// coordinator that began anew. One that was done may have stayed for days, and when that ended is known to who led then. One of which
// nothing is known may have gone when the log began, which is another where disks were lost.
func (f *fleet) goneFor(name string) (age time.Duration, gone bool) {
	n, known := f.node(name)
	p, led := f.leases.read(name), *f.tookOver.Load()
	went := n.Since
	switch {
	case !known:
		f.ledger.view(func(m *registry.Registry) {
			if went = m.Began; m.Forgotten[name] != (time.Time{}) {
				went = m.Forgotten[name]
			}
		})
		if went.IsZero() {
			return 0, true
		}
	case !p.heard && time.Since(led) <= 2*f.cfg.Lease: // silent, it is LOST after one
		return 0, true
	case n.State == registry.Active:
		return 0, watched(p.status)
	case n.Leaving(), n.State == registry.Decommissioned && f.present(n):
		return 0, true
	case n.State == registry.Decommissioned && p.heard:
		went = p.seen
	case n.State == registry.Decommissioned:
		went = led
	}
	return time.Since(went), true
}

// toldAll says whether everybody has told this leader of what was carried that long ago, who ever will: after a take-over all
// tell within a lease, or two where some are busy or slow, and what lands is told with the beat that follows. One lease has to pass
// also where all have told that the log knows: it may have begun anew.
func (f *fleet) toldAll(age time.Duration) bool {
	led := time.Since(*f.tookOver.Load())
	return age > 2*f.pace().interval+reportSlack && (led > 2*f.cfg.Lease || led > f.cfg.Lease && f.allTold())
}

// allTold says whether all have told what landed there who are not gone, or done and about to go.
func (f *fleet) allTold() (all bool) {
	all = true
	f.ledger.view(func(m *registry.Registry) {
		for _, n := range m.Nodes {
			gone := n.State == registry.Lost || n.State == registry.Gone || n.State == registry.Decommissioned
			told, _ := f.blocks.Reported(n.Name, n.ID)
			all = all && (gone || told)
		}
	})
	return all
}
