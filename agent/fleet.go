package agent

import (
	"context"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/heartbeat"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/receiver"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// fleet is the other nodes, as the coordinator tells of them: its answers in the words of the packages that need them.
type fleet struct {
	*heartbeat.Client
	node, incarnation string // of this one
}

// checkHeld asks the coordinator who has blocks that this node carried to peers at least age ago.
func (f *fleet) checkHeld(ctx context.Context, age time.Duration, blocks []inventory.Block) (heartbeat.Held, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	carried := make([]*api.HeldBlock, len(blocks))
	for i, b := range blocks {
		carried[i] = &api.HeldBlock{Id: string(b.ID), Bytes: b.Bytes()}
	}
	return f.CheckHeld(ctx, age, carried)
}

// whoElse asks the coordinator which other nodes have blocks that this node has, and at which addresses they are read. sure:
// the coordinator could tell of all of them.
func (f *fleet) whoElse(ctx context.Context, blocks []inventory.BlockID) (holders []reading.Holder, sure bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	asked := make([]*api.HeldBlock, len(blocks))
	for i, id := range blocks {
		asked[i] = &api.HeldBlock{Id: string(id)}
	}
	h, err := f.WhoElse(ctx, absentFor, asked)
	if err != nil {
		return nil, false, err
	}
	there, err := f.CheckPeers(ctx, 0, h.Holders)
	for _, node := range h.Holders {
		if address := there.Addresses[node]; address != "" {
			holders = append(holders, reading.Holder{Node: node, Address: address})
		}
	}
	return holders, h.Unsure == 0, err
}

// whoHas asks for each of some files which node has it, and where that node is read.
func (f *fleet) whoHas(ctx context.Context, ids []inventory.BlockID) (at []reading.Holder, err error) {
	ctx, cancel := f.locating(ctx)
	defer cancel()
	asked := make([]*api.HeldBlock, len(ids))
	for i, id := range ids {
		asked[i] = &api.HeldBlock{Id: string(id.Block())} // a file landed as part of its block
	}
	h, err := f.WhoElse(ctx, 0, asked)
	if err != nil {
		return nil, err
	}
	there, err := f.CheckPeers(ctx, 0, h.Holders)
	for _, node := range h.At {
		at = append(at, reading.Holder{Node: node, Address: there.Addresses[node]})
	}
	return at, err
}

// homeOf asks the coordinator what became of a node that blocks were born on. If that node is still there and may go any
// moment, it also asks the node which of them it no longer has.
func (a *Agent) homeOf(ctx context.Context, node string, about []reading.Version) (receiver.Home, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	is, err := a.fleet.CheckPeers(ctx, 0, []string{node})
	if err != nil {
		return receiver.Home{}, err
	}
	age, goes := is.GoneFor[node]
	h, address := receiver.Home{Stays: !goes, GoneFor: age, KnownFor: is.KnownFor[node]}, is.Addresses[node]
	if !goes || age > 0 || address == "" || len(about) == 0 {
		return h, nil
	}
	has, err := a.reader.Fetch.AtHome(ctx, reading.Holder{Node: node, Address: address}, about)
	if !has.Leaves { // else they may be gone because it leaves, and not because they are of no use
		h.Lacks = slices.Concat(has.Changed, has.Gone)
	}
	return h, err
}

// lapsed returns the blocks that nobody has any more, by their places in blocks, and why the first is missing.
func (f *fleet) lapsed(ctx context.Context, age time.Duration, blocks []inventory.Block) (missing []int, why string, err error) {
	h, err := f.checkHeld(ctx, age, blocks)
	return h.Missing, h.Why, err
}

// peers are the nodes that may take blocks, as the coordinator last said.
func (f *fleet) peers() []migration.Peer {
	var all []migration.Peer
	for _, p := range f.Peers() {
		all = append(all, migration.Peer{
			Node: p.Node, Address: p.Address, Zone: p.Zone, Pool: p.Pool, RoomBytes: p.RoomBytes, VaultBytes: p.VaultRoomBytes, Places: p.Places, Advised: p.Advised,
			LargestBytes: p.LargestRoomBytes, LargestVaultBytes: p.LargestVaultRoomBytes,
		})
	}
	return all
}

// readable are the same nodes, where their blocks are read.
func (f *fleet) readable() (at []reading.Holder) {
	for _, p := range f.Peers() {
		at = append(at, reading.Holder{Node: p.Node, Address: p.Address})
	}
	return at
}

// allAdvised reports whether all peers are advised to go, as all machines of a pool are at once: of 30 such machines 9 went,
// hours later.
func (f *fleet) allAdvised() bool {
	all := f.peers()
	return len(all) > 0 && !slices.ContainsFunc(all, func(p migration.Peer) bool { return !p.Advised })
}

// comesBack is how long a missed peer may take to come back: it restarts, and the coordinator tells all nodes.
const comesBack = time.Minute

// missesPeers reports whether the list of peers may be incomplete: a peer that left it may be back soon, or no coordinator
// has answered yet.
func (f *fleet) missesPeers() bool {
	_, answered, _ := f.Health()
	return answered.IsZero() || time.Since(f.Missed()) < comesBack
}

const (
	// locateTimeout bounds a reader's wait for the coordinator: an election takes 4 s at most (electionPatience in heartbeat/calls.go).
	locateTimeout = 5 * time.Second
	// awayTimeout is as long once no beat has been answered for awayAfter: the nodes last heard of can be asked instead.
	awayTimeout = time.Second
	awayAfter   = 2 * locateTimeout
)

// locating bounds a question that the nodes last heard of answer if the coordinator does not.
func (f *fleet) locating(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, answered, trouble := f.Health(); trouble != "" && time.Since(answered) > awayAfter {
		return context.WithTimeout(ctx, awayTimeout)
	}
	return context.WithTimeout(ctx, locateTimeout)
}

func (f *fleet) locate(ctx context.Context, id inventory.BlockID, past bool) (reading.Location, error) {
	ctx, cancel := f.locating(ctx)
	defer cancel()
	r, err := f.Locate(ctx, string(id), past, "")
	if err != nil {
		return reading.Location{}, err
	}
	return reading.Location{
		Holders: f.others(r.Holders), Candidates: f.others(r.Candidates), Next: r.Next, Unheard: f.others(r.Unheard),
		Lost: r.State == "lost", Why: r.Why,
	}, nil
}

// locateMore names more nodes that could have a block, after those that were asked, and the nodes that are known to hold it
// by now.
func (f *fleet) locateMore(ctx context.Context, id inventory.BlockID, after string) (some []reading.Holder, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, locateTimeout)
	defer cancel()
	r, err := f.Locate(ctx, string(id), true, after)
	return f.others(slices.Concat(r.GetHolders(), r.GetCandidates())), r.GetNext(), err
}

// whereIs is the address at which a node is read; empty: it is gone.
func (f *fleet) whereIs(ctx context.Context, node string) (address string, err error) {
	ctx, cancel := context.WithTimeout(ctx, locateTimeout)
	defer cancel()
	is, err := f.CheckPeers(ctx, 0, []string{node})
	return is.Addresses[node], err
}

// others leaves this node out of the holders: it was asked already.
func (f *fleet) others(holders []*api.Holder) (rest []reading.Holder) {
	for _, h := range holders {
		if h.Node != f.node {
			rest = append(rest, reading.Holder{Node: h.Node, Address: h.Address})
		}
	}
	return rest
}

// alone reports whether the coordinator does not answer, or has not answered yet, so that no other node knows of a drain of
// this one.
func (f *fleet) alone() bool {
	_, answered, trouble := f.Health()
	return trouble != "" || answered.IsZero()
}

// broke tells the coordinator of a block that was removed because it was broken: the node that it came from may still be
// there to carry it again.
func (f *fleet) broke(h vault.Held) {
	word := apiHeld(h)
	if h.Origin != h.From {
		word.Origin = h.Origin
	}
	f.Broken(word)
}

func (f *fleet) landed(blocks []vault.Held) {
	said := new(api.HeldBlock)
	for _, h := range blocks {
		said.Id, said.Bytes, said.From = string(h.ID), h.Bytes, h.From
		f.Landed(said)
	}
}
