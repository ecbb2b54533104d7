package agent

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
)

// status is what the heartbeat carries and what the socket shows. It never waits.
func (a *Agent) status() *api.Status {
	s := &api.Status{Notice: a.incidents.notice()}
	if p, ahead, ok := a.course.drains.progress(); ok {
		s.Drain = apiProgress(p)
		if ahead {
			s.Drain.Phase = string(preemption.StancePreCopy)
		}
	} else if p, open := a.incidents.Open(); open && p.Work.Drained != nil { // drained before a restart
		s.Drain = apiSummary(p.Work.Drained)
	} else if moved := a.course.drains.resumed(); open && moved.Blocks > 0 { // a drain is about to resume
		s.Drain = apiProgress(migration.Progress{Phase: migration.PhaseScanning, Found: moved, Moved: moved})
	}
	if p, _ := a.incidents.Open(); p.Work.Told {
		s.Accounted = p.Incident.ID
	}
	for _, st := range a.cfg.Stores {
		s.Stores = append(s.Stores, &api.StoreInfo{Name: st.Name, Kind: st.Kind, Layout: st.Layout, Land: st.Land})
	}
	s.Disks = a.disks.wire()
	s.Workloads = a.workloads.wire()
	if !a.incidents.leaving() { // a leaving node takes no blocks
		all, vault := a.receiver.Room()
		s.RoomBytes, s.VaultRoomBytes = all.Bytes, &vault.Bytes
		s.LargestRoomBytes, s.LargestVaultRoomBytes = all.LargestBytes, vault.LargestBytes
	}
	if a.fallback.lastResort != nil {
		s.Fallback, s.FallbackRoomBytes = a.fallback.lastResort.Name, a.fallback.told()
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
	return apiProgress(migration.Progress{Phase: migration.PhaseDrained, Found: sum.Moved.Plus(sum.Lost), Moved: sum.Moved, Lost: sum.Lost, Skipped: sum.Skipped})
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

// told is a figure as a heartbeat tells it: a coordinator refuses a beat with a negative one, and would take the node for dead
// because of a wrong figure.
func told(c inventory.Count) inventory.Count { return c.Less(inventory.Count{}) }

func apiProgress(p migration.Progress) *api.DrainProgress {
	if p.Phase == migration.PhaseDrained {
		p.BytesPerSecond = 0 // nothing moves any more
	}
	p.Found, p.Moved, p.Lost, p.Skipped = told(p.Found), told(p.Moved), told(p.Lost), told(p.Skipped)
	d := &api.DrainProgress{
		Phase: string(p.Phase), BlocksTotal: p.Found.Blocks, BlocksMoved: p.Moved.Blocks, BlocksLost: p.Lost.Blocks, BlocksSkipped: p.Skipped.Blocks,
		BytesTotal: p.Found.Bytes, BytesMoved: p.Moved.Bytes, BytesPerSecond: max(0, p.BytesPerSecond),
	}
	for _, dir := range p.Awaits[:min(len(p.Awaits), mostDisksSaid)] {
		d.Awaits = append(d.Awaits, short(dir, longestTrouble))
	}
	// Peers that took the most come first: the drain may have met as many others as the fleet had meanwhile.
	slices.SortStableFunc(p.Peers, func(a, b migration.PeerProgress) int { return cmp.Compare(b.Moved.Blocks, a.Moved.Blocks) })
	p.Peers = p.Peers[:min(len(p.Peers), mostPeersSaid)]
	slices.SortFunc(p.Peers, func(a, b migration.PeerProgress) int { return cmp.Compare(a.Node, b.Node) })
	for _, e := range p.Peers {
		e.Moved = told(e.Moved)
		d.Peers = append(d.Peers, &api.PeerProgress{Node: e.Node, Blocks: e.Moved.Blocks, Bytes: e.Moved.Bytes, Trouble: short(e.Trouble, longestTrouble)})
	}
	return d
}

// summary is an incident's manifest without its entries. All of its instants are by the wall clock as it was when the drain
// ended, for people subtract them from each other.
func (c *course) summary(p page) *api.ManifestSummary {
	sum := p.Work.Drained
	s := &api.ManifestSummary{
		Node: c.fleet.node, Incarnation: c.fleet.incarnation, Incident: p.Incident.ID, Kind: string(p.Incident.Kind()), Source: p.Incident.Source(),
		NoticedAt: timestamppb.New(byClockAt(sum.Finished, p.Incident.NoticedAt())), StartedAt: timestamppb.New(sum.Started), FinishedAt: timestamppb.New(sum.Finished),
		Total: apiCount(sum.Total()), Moved: apiCount(sum.Moved), Lost: apiCount(sum.Lost), Skipped: apiCount(sum.Skipped),
		Unfinished: p.Work.Unfinished,
	}
	if d := p.Incident.Deadline(); !d.IsZero() {
		s.Deadline = timestamppb.New(byClockAt(sum.Finished, d))
	}
	return s
}

// byClockAt returns an instant as the wall clock that now shows would have shown it. If the clock was set in between, the
// difference of what it showed then and now is not the time that passed: a drain would have taken minus an hour.
func byClockAt(now, instant time.Time) time.Time { return now.Add(instant.Sub(now)) }

func apiCount(c inventory.Count) *api.Count {
	c = told(c)
	return &api.Count{Blocks: c.Blocks, Bytes: c.Bytes}
}

func apiEntry(e manifest.Entry) *api.ManifestEntry {
	return &api.ManifestEntry{Id: e.ID, Bytes: e.Bytes, Outcome: string(e.Outcome), Peer: e.Peer, Reason: short(e.Reason, longestReason)}
}

func apiHeld(h vault.Held) *api.HeldBlock {
	return &api.HeldBlock{Id: string(h.ID), Bytes: h.Bytes, From: h.From}
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
