package agent

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
)

// status is what the heartbeat carries and what the socket shows. It never waits.
func (a *Agent) status() *api.Status {
	s := &api.Status{Notice: a.incidents.notice()}
	if p, ahead, ok := a.drains.progress(); ok {
		s.Drain = apiProgress(p)
		if ahead {
			s.Drain.Phase = string(preemption.StancePreCopy)
		}
	} else if p, open := a.incidents.Open(); open && p.Work.Drained != nil { // drained before a restart
		s.Drain = apiSummary(p.Work.Drained)
	} else if moved := a.drains.resumed(); open && moved.Blocks > 0 { // a drain is about to resume
		s.Drain = apiProgress(migration.Progress{Phase: migration.PhaseScanning, Found: moved, Moved: moved})
	}
	if p, _ := a.incidents.Open(); p.Work.Told {
		s.Accounted = p.Incident.ID
	}
	for _, st := range a.cfg.Stores {
		s.Stores = append(s.Stores, &api.StoreInfo{Name: st.Name, Kind: st.Kind, Layout: st.Layout, Land: st.Land})
	}
	s.Disks = a.diskStates()
	s.Workloads = a.apiWorkloads()
	if !a.incidents.leaving() { // a leaving node takes no blocks
		all, vault := a.receiver.Room()
		s.RoomBytes, s.VaultRoomBytes = all.Bytes, &vault.Bytes
		s.LargestRoomBytes, s.LargestVaultRoomBytes = all.LargestBytes, vault.LargestBytes
	}
	if a.fallback != nil {
		s.Fallback, s.FallbackRoomBytes = a.fallback.Name, a.fallbackTold()
	}
	held := a.vault.Count()
	s.HeldBlocks, s.HeldBytes, s.HeldTakenBytes = held.Blocks, held.Bytes, a.vault.Takes()
	_, s.BrokenBlocks = a.receiver.Scrubbed()
	stored := a.index.State().Holds
	s.StoredBlocks, s.StoredBytes = stored.Blocks, stored.Bytes
	return s
}

// apiSummary converts the result of a drain that is over.
func apiSummary(sum *manifest.Summary) *api.DrainProgress {
	return &api.DrainProgress{
		Phase: string(migration.PhaseDrained), BlocksTotal: sum.Moved.Blocks + sum.Lost.Blocks,
		BlocksMoved: sum.Moved.Blocks, BlocksLost: sum.Lost.Blocks, BlocksSkipped: sum.Skipped.Blocks,
		BytesTotal: sum.Moved.Bytes + sum.Lost.Bytes, BytesMoved: sum.Moved.Bytes,
	}
}

// notice is the open incident as peers and coordinator see it; nil: none that asks for anything yet.
func (in *incidents) notice() *api.Notice {
	p, open := in.Open()
	stance, _ := in.Stance()
	if !open || !stance.AtLeast(preemption.StanceWatch) {
		return nil
	}
	return p.Incident.Wire(stance)
}

// mostPeersSaid bounds the peers that a heartbeat names: a coordinator refuses a heartbeat that names more than 1024.
const mostPeersSaid = 256

// mostDisksSaid bounds the directories that a heartbeat names as waited for: more than a machine has disks.
const mostDisksSaid = 64

func apiProgress(p migration.Progress) *api.DrainProgress {
	if p.Phase == migration.PhaseDrained {
		p.BytesPerSecond = 0 // nothing moves any more
	}
	// A wrong figure must not get the beat refused, and the node taken for dead.
	p.Moved = inventory.Count{Blocks: max(0, p.Moved.Blocks), Bytes: max(0, p.Moved.Bytes)}
	d := &api.DrainProgress{
		Phase: string(p.Phase), BlocksTotal: p.Found.Blocks, BlocksMoved: p.Moved.Blocks, BlocksLost: p.Lost.Blocks, BlocksSkipped: p.Skipped.Blocks,
		BytesTotal: p.Found.Bytes, BytesMoved: p.Moved.Bytes, BytesPerSecond: p.BytesPerSecond,
	}
	for _, dir := range p.Awaits[:min(len(p.Awaits), mostDisksSaid)] {
		d.Awaits = append(d.Awaits, short(dir, longestTrouble))
	}
	// Peers that took the most come first: the drain may have met as many others as the fleet had meanwhile.
	slices.SortStableFunc(p.Peers, func(a, b migration.PeerProgress) int { return cmp.Compare(b.Moved.Blocks, a.Moved.Blocks) })
	p.Peers = p.Peers[:min(len(p.Peers), mostPeersSaid)]
	slices.SortFunc(p.Peers, func(a, b migration.PeerProgress) int { return cmp.Compare(a.Node, b.Node) })
	for _, e := range p.Peers {
		d.Peers = append(d.Peers, &api.PeerProgress{Node: e.Node, Blocks: e.Moved.Blocks, Bytes: e.Moved.Bytes, Trouble: short(e.Trouble, longestTrouble)})
	}
	return d
}

// summary is an incident's manifest without its entries.
func (a *Agent) summary(p page) *api.ManifestSummary {
	sum := p.Work.Drained
	s := &api.ManifestSummary{
		Node: a.cfg.Node.Name, Incarnation: a.incarnation, Incident: p.Incident.ID, Kind: string(p.Incident.Kind()), Source: p.Incident.Source(),
		NoticedAt: timestamppb.New(p.Incident.NoticedAt()), StartedAt: timestamppb.New(sum.Started), FinishedAt: timestamppb.New(sum.Finished),
		Total: apiCount(sum.Total()), Moved: apiCount(sum.Moved), Lost: apiCount(sum.Lost), Skipped: apiCount(sum.Skipped),
		Unfinished: p.Work.Unfinished,
	}
	if d := p.Incident.Deadline(); !d.IsZero() {
		s.Deadline = timestamppb.New(d)
	}
	return s
}

func apiCount(c inventory.Count) *api.Count { return &api.Count{Blocks: c.Blocks, Bytes: c.Bytes} }

func apiEntry(e manifest.Entry) *api.ManifestEntry {
	return &api.ManifestEntry{Id: e.ID, Bytes: e.Bytes, Outcome: string(e.Outcome), Peer: e.Peer, Reason: short(e.Reason, longestReason)}
}

func apiHeld(h vault.Held) *api.HeldBlock {
	return &api.HeldBlock{Id: string(h.ID), Bytes: h.Bytes, From: h.From}
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

// locateTimeout bounds a reader's wait for the coordinator.
const locateTimeout = 5 * time.Second

func (f *fleet) locate(ctx context.Context, id inventory.BlockID, past bool) (reading.Location, error) {
	ctx, cancel := context.WithTimeout(ctx, locateTimeout)
	defer cancel()
	r, err := f.Locate(ctx, string(id), past, "")
	if err != nil {
		return reading.Location{}, err
	}
	return reading.Location{Holders: f.others(r.Holders), Candidates: f.others(r.Candidates), Next: r.Next, Unheard: f.others(r.Unheard), Lost: r.State == "lost", Why: r.Why}, nil
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

// ready tells the service manager and Deps.Ready that the agent serves.
func (a *Agent) ready() {
	a.log.Info("agent serves", "node", a.cfg.Node.Name, "peer", a.at.peer.Addr().String(), "http", a.at.http.Addr().String(), "socket", a.cfg.Listen.Socket)
	if err := systemd.Ready(); err != nil {
		a.log.Warn("the service manager was not told", "err", err)
	}
	if a.deps.Ready != nil {
		a.deps.Ready()
	}
}
