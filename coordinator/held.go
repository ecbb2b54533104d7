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

// reportSlack is how long a report of landed blocks takes at most, beyond the beats that it waits for.
const reportSlack = 3 * time.Second

// mostPeersAsked bounds the peers that one request asks about, and the holders that its reply names.
const mostPeersAsked = 1024

// CheckHeld tells a node which of the blocks that it sent to peers no node holds any more, or which peers hold them.
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
	if err := checkEach(r.GetBlocks(), func(run *api.BlockRun) error { return checkRun(run, checkID) }); err != nil {
		return nil, err
	}
	reply := s.locations.held(r)
	reply.Renewed, reply.Addresses = map[string]string{}, map[string]string{}
	reply.GoneFor, reply.KnownFor = map[string]*durationpb.Duration{}, map[string]*durationpb.Duration{}
	s.ledger.view(func(m *registry.Registry) { reply.Index, reply.Log = m.LastEvent, m.Log() })
	for _, peer := range r.GetPeers() { // not checked: a name that no node can have is of no known node
		if is := s.locations.reachable([]string{peer}); len(is) > 0 {
			reply.Addresses[peer] = is[0].Address
		}
		if age, gone := s.locations.goneFor(peer); gone {
			reply.GoneFor[peer] = durationpb.New(age)
		}
		n, known := s.ledger.node(peer)
		if known {
			reply.KnownFor[peer] = durationpb.New(time.Since(n.Began))
		}
		if !s.locations.vouches(peer) {
			reply.Gone = append(reply.Gone, peer)
		} else if r.GetSince() > 0 && n.RegisteredAt() > r.GetSince() {
			reply.Renewed[peer] = n.ID
		}
	}
	return reply, nil
}

// lookingFor is one CheckHeld request on its way to the reply. It judges each holder once: thousands of blocks are at a few nodes.
type lookingFor struct {
	*locations
	asked           *api.CheckHeldRequest
	reply           *api.CheckHeldReply
	told            bool // all nodes have reported: a block without a known holder has none
	vouched, leaves func(node string) bool
}

func (l *locations) held(r *api.CheckHeldRequest) *api.CheckHeldReply {
	of := &lookingFor{locations: l, asked: r, reply: &api.CheckHeldReply{}, told: l.toldAll(r.GetAge().AsDuration())}
	of.vouched = once(func(node string) bool {
		is := l.vouches(node)
		// A DECOMMISSIONED node that is still there, as after a rehearsal, may stay and keep its blocks: the asking node can ask it.
		if (is || r.GetElsewhere() && l.hasYet(node)) && len(of.reply.Holders) < mostPeersAsked {
			of.reply.Holders = append(of.reply.Holders, node)
		}
		return is
	})
	of.leaves = once(func(node string) bool {
		n, _ := l.ledger.node(node)
		return n.Leaving() || n.State == registry.Decommissioned
	})
	if r.GetElsewhere() {
		of.elsewhere()
	} else {
		of.missing()
	}
	return of.reply
}

// once is ask with its answers remembered, so that it is called once for each node.
func once[A any](ask func(node string) A) func(node string) A {
	answers := map[string]A{}
	return func(node string) A {
		is, asked := answers[node]
		if !asked {
			is = ask(node)
			answers[node] = is
		}
		return is
	}
}

// elsewhere answers for each block with another node that holds it, if there is one: a node that stays rather than one that leaves.
func (l *lookingFor) elsewhere() {
	scope := unique.Make("")
	for _, run := range l.asked.GetBlocks() {
		for id := range run.IDs() {
			others, _ := l.locations.blocks.Holders(blockmap.KeyNear(id, &scope))
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

// missing names the blocks that no node holds any more, and why that is so for the first of them.
func (l *lookingFor) missing() {
	var holders []string
	place, scope := uint32(0), unique.Make("")
	for _, run := range l.asked.GetBlocks() {
		for id, bytes := range run.IDs() {
			k, at := blockmap.KeyNear(id, &scope), place
			place++
			holders = l.locations.blocks.AppendHolders(holders[:0], k, bytes)
			kept, was := false, ""
			for _, node := range holders {
				// The asking node leaves: its copy of a block that it took in, and sent on, goes with it. Nor does a holder count that leaves
				// too and had sent the block to the asking node: each of the two would count on the other.
				if node != l.asked.GetNode() {
					kept, was = l.vouched(node) && !(l.leaves(node) && l.locations.blocks.CameFrom(k, l.asked.GetNode()) == node), node
					if kept {
						break
					}
				}
			}
			if kept {
				continue
			}
			_, why := l.locations.blocks.EndOf(k)
			switch {
			case was != "" && len(l.locations.reachable([]string{was})) > 0:
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

// vouches reports whether a node's entries in the block map can be counted on: the node has the blocks, or its peers will. A DECOMMISSIONED
// node has handed on what it could, and after two beats the peers that took those blocks have reported them; whatever else it still has
// is lost when its machine goes.
func (l *locations) vouches(name string) bool {
	n, _ := l.ledger.node(name)
	return l.hasYet(name) && (n.State != registry.Decommissioned || time.Since(n.Since) <= 2*l.cfg.pace(l.ledger.size()).interval+reportSlack)
}

// hasYet reports whether a node can be reached and is the machine that reported its blocks.
func (l *locations) hasYet(name string) bool {
	n, _ := l.ledger.node(name)
	_, another := l.blocks.Reported(name, n.ID)
	return !another && len(l.reachable([]string{name})) > 0
}

// goneFor is for how long a node has been gone; gone is false if it stays. It is 0 for a node that may go at any moment, and for a silent
// one that a new leader may yet hear.
//
// A DECOMMISSIONED node may have stayed for days after it was done: it is gone since it was last heard, or, if only a former leader heard
// it, since this leader took over. A node that is not known may have gone when the log began: after a loss of the coordinators' disks
// that is a new log.
func (l *locations) goneFor(name string) (age time.Duration, gone bool) {
	n, known := l.ledger.node(name)
	p, led := l.leases.read(name), l.leases.tookOver()
	went := n.Since
	switch {
	case !known:
		l.ledger.view(func(m *registry.Registry) {
			if went = m.Began; m.Forgotten[name] != (time.Time{}) {
				went = m.Forgotten[name]
			}
		})
		if went.IsZero() {
			return 0, true
		}
	case !p.heard && time.Since(led) <= 2*l.cfg.Lease: // if it stays silent it is LOST after one lease
		return 0, true
	case n.State == registry.Active:
		return 0, watched(p.status)
	case n.Leaving(), n.State == registry.Decommissioned && l.leases.present(n.Name):
		return 0, true
	case n.State == registry.Decommissioned && p.heard:
		went = p.seen
	case n.State == registry.Decommissioned:
		went = led
	}
	return time.Since(went), true
}

// toldAll reports whether this leader has heard all that it will ever hear of blocks that were sent at least age ago. A block that lands is
// reported with the next beat. After a take-over all nodes report within a lease, or within two if some are busy or slow. One lease must
// pass even if all nodes of the log have reported: the log may have begun anew, and not have all nodes yet.
func (l *locations) toldAll(age time.Duration) bool {
	led := time.Since(l.leases.tookOver())
	return age > 2*l.cfg.pace(l.ledger.size()).interval+reportSlack && (led > 2*l.cfg.Lease || led > l.cfg.Lease && l.allTold())
}

// allTold reports whether all nodes have reported their landed blocks, apart from those that are LOST or DECOMMISSIONED.
func (l *locations) allTold() (all bool) {
	all = true
	l.ledger.view(func(m *registry.Registry) {
		for _, n := range m.Nodes {
			told, _ := l.blocks.Reported(n.Name, n.ID)
			all = all && (told || n.State == registry.Lost || n.State == registry.Decommissioned)
		}
	})
	return all
}
