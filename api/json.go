// Package api has the messages between Lifeboat's parts and its users: the control plane's services (generated from
// lifeboat.proto, which documents them) and the JSON that programs read. It converts between the two and does nothing else; the
// bytes of blocks never pass through it.
package api

import (
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// The shapes of -o json and of the coordinator's HTTP side. Keys are stable: keys may be added, none is renamed. Spans are
// seconds, instants RFC 3339 in UTC, sizes bytes; null is "not known" or "there is none", which is not the same as 0.

// NodeJSON is a node as the coordinator sees it.
type NodeJSON struct {
	Name          string        `json:"name"`
	ID            string        `json:"id"`
	State         string        `json:"state"`
	SubState      string        `json:"sub_state"`
	Schedulable   bool          `json:"schedulable"`
	Deactivated   bool          `json:"deactivated"`
	Maintenance   string        `json:"maintenance"`
	Excluded      bool          `json:"excluded"`
	Notice        *NoticeJSON   `json:"notice"`
	Deadline      *time.Time    `json:"deadline"`
	Remaining     *float64      `json:"remaining_seconds"`
	PeerAddress   string        `json:"peer_address"`
	Incarnation   string        `json:"incarnation"`
	Disks         []DiskJSON    `json:"disks"`
	LastHeartbeat *float64      `json:"last_heartbeat_seconds"`
	Zone          string        `json:"zone"`
	Pool          string        `json:"pool"`
	Version       string        `json:"version"`
	Decommission  string        `json:"decommission"`
	Reason        string        `json:"reason"`
	WaitsFor      []string      `json:"waits_for"`
	Suspect       *float64      `json:"suspect_seconds"`
	ClockAhead    *float64      `json:"clock_ahead_seconds"`
	Drain         *DrainJSON    `json:"drain"`
	RoomBytes     int64         `json:"room_bytes"`
	VaultRoom     *int64        `json:"vault_room_bytes"`   // part of room_bytes; null: not told
	Largest       int64         `json:"largest_room_bytes"` // the largest block that fits; 0: not told
	LargestVault  int64         `json:"largest_vault_room_bytes"`
	HeldBlocks    int64         `json:"held_blocks"`
	BrokenBlocks  int64         `json:"broken_blocks"`
	HeldBytes     int64         `json:"held_bytes"`
	Manifest      *ManifestJSON `json:"manifest"`

	Workloads []WorkloadJSON `json:"workloads"`
	Stores    []StoreJSON    `json:"stores"`

	// The window in which the node's machine is to be worked on.
	MaintenanceStart    *time.Time `json:"maintenance_start"`
	MaintenanceDuration *float64   `json:"maintenance_duration_seconds"` // null: the schedule does not say how long
}

// WorkloadJSON is a workload of a node: something that runs there, and that a leaving node tells, waits for and stops.
type WorkloadJSON struct {
	Name      string         `json:"name"`
	Type      string         `json:"type"`
	State     string         `json:"state"`
	Since     *float64       `json:"since_seconds"`
	Awaited   bool           `json:"awaited"`
	Processes int64          `json:"processes"`
	Executors []ExecutorJSON `json:"executors"`
	Apps      []string       `json:"apps"`
	Trouble   string         `json:"trouble"`
}

// ExecutorJSON names a part of a workload as its app does.
type ExecutorJSON struct {
	App string `json:"app"`
	ID  string `json:"id"`
}

// StoreJSON is a store as the agent's file configures it.
type StoreJSON struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Layout string `json:"layout"`
	Land   string `json:"land"`
}

// NoticeJSON is the notice that a node is under.
type NoticeJSON struct {
	Kind     string     `json:"kind"`
	Deadline *time.Time `json:"deadline"`
	Source   string     `json:"source"`
	Stance   string     `json:"stance"`
	Reason   string     `json:"reason"`
	Incident string     `json:"incident"`
}

// DiskJSON is the disk behind a directory in which a node has a store or landed blocks.
type DiskJSON struct {
	Path                string   `json:"path"`
	Health              string   `json:"health"`
	Why                 string   `json:"why"`
	Since               *float64 `json:"since_seconds"`
	Total               int64    `json:"total_bytes"`
	Usable              int64    `json:"usable_bytes"`
	Free                int64    `json:"free_bytes"`
	Reserved            int64    `json:"reserved_bytes"`
	Slots               *int64   `json:"slots"`
	FreeSlots           *int64   `json:"free_slots"`
	Inodes              *int64   `json:"inodes"`
	InodesFree          *int64   `json:"inodes_free"`
	FlushBytesPerSecond *int64   `json:"flush_bytes_per_second"`
	FetchBytesPerSecond *int64   `json:"fetch_bytes_per_second"`
	Errors              int64    `json:"errors"`
	Mount               string   `json:"mount"`
	Device              string   `json:"device"`
	FileSystem          string   `json:"filesystem"`
	Kind                string   `json:"kind"`
	Unwell              bool     `json:"unwell"`
	Closed              bool     `json:"closed"`
}

// DrainJSON is how far a drain is.
type DrainJSON struct {
	Phase          string     `json:"phase"`
	Blocks         CountsJSON `json:"blocks"`
	BytesTotal     int64      `json:"bytes_total"`
	BytesMoved     int64      `json:"bytes_moved"`
	BytesPerSecond int64      `json:"bytes_per_second"`
	Peers          []SentJSON `json:"peers"`
}

// SentJSON is one peer's part of a drain. An empty trouble means that the peer is well.
type SentJSON struct {
	Node    string `json:"node"`
	Blocks  int64  `json:"blocks"`
	Bytes   int64  `json:"bytes"`
	Trouble string `json:"trouble"`
}

// CountsJSON counts blocks, or their bytes, by what became of them.
type CountsJSON struct {
	Total   int64 `json:"total"`
	Moved   int64 `json:"moved"`
	Lost    int64 `json:"lost"`
	Skipped int64 `json:"skipped"`
}

// IncidentJSON is the incident that a node drained for.
type IncidentJSON struct {
	ID        string     `json:"id"`
	Kind      string     `json:"kind"`
	Source    string     `json:"source"`
	NoticedAt *time.Time `json:"noticed_at"`
	Deadline  *time.Time `json:"deadline"`
}

// ManifestJSON is a manifest without its entries, which are printed as they come.
type ManifestJSON struct {
	Node       string       `json:"node"`
	Incident   IncidentJSON `json:"incident"`
	StartedAt  *time.Time   `json:"started_at"`
	FinishedAt *time.Time   `json:"finished_at"`
	Blocks     CountsJSON   `json:"blocks"`
	Bytes      CountsJSON   `json:"bytes"`
	Unfinished []string     `json:"unfinished"` // never null
}

// EntryJSON is one line of a manifest.
type EntryJSON struct {
	ID      string `json:"id"`
	Bytes   int64  `json:"bytes"`
	Outcome string `json:"outcome"`
	Peer    string `json:"peer"`
	Reason  string `json:"reason"`
}

// BlockJSON is a block and the nodes that have it.
type BlockJSON struct {
	ID      string   `json:"id"`
	Bytes   int64    `json:"bytes"`
	State   string   `json:"state"`
	Holders []string `json:"holders"`
	From    string   `json:"from"`
	Value   *float64 `json:"value_seconds"`
}

// HolderJSON is a node that has a block, and the address at which it serves the block.
type HolderJSON struct {
	Node    string `json:"node"`
	Address string `json:"address"`
}

// LocationJSON is where a block may be read.
type LocationJSON struct {
	ID      string       `json:"id"`
	Holders []HolderJSON `json:"holders"`
	State   string       `json:"state"`
	Why     string       `json:"why,omitempty"` // why the block is lost, as far as that is known
}

// EventJSON is one event of the fleet. Index, term and soft are its place.
type EventJSON struct {
	Index uint64            `json:"index"`
	Term  uint64            `json:"term"`
	Soft  uint64            `json:"soft,omitempty"`
	Time  *time.Time        `json:"time"`
	Type  string            `json:"type"`
	Node  string            `json:"node"`
	Data  map[string]string `json:"data"`
}

// ListToJSON converts each of all. A list of none is [], not null.
func ListToJSON[P, J any](all []P, toJSON func(P) J) []J {
	list := make([]J, len(all))
	for i, one := range all {
		list[i] = toJSON(one)
	}
	return list
}

// NodeToJSON converts a node. A notice has a time that remains, which becomes an instant by the coordinator's clock: the node's
// other instants are by that clock too.
func NodeToJSON(n *Node) NodeJSON {
	st, now := n.GetStatus(), n.Clock()
	return NodeJSON{
		Name: n.GetName(), ID: n.GetId(), State: n.GetState(), SubState: n.GetSubState(),
		Schedulable: n.GetSchedulable(), Deactivated: n.GetDeactivated(), Excluded: n.GetExcluded(),
		Maintenance: n.GetMaintenance(), MaintenanceStart: Instant(n.GetMaintenanceStart()), MaintenanceDuration: Seconds(n.GetMaintenanceDuration()),
		Notice: NoticeToJSON(st.GetNotice(), now), Deadline: Instant(n.GetDeadline()), Remaining: Seconds(n.GetRemaining()),
		PeerAddress: n.GetPeerAddress(), Incarnation: n.GetIncarnation(), Disks: ListToJSON(st.GetDisks(), DiskToJSON),
		LastHeartbeat: Seconds(n.GetLastHeartbeat()), Zone: n.GetZone(), Pool: n.GetPool(), Version: n.GetVersion(),
		Decommission: n.GetDecommission(), Reason: n.GetReason(), WaitsFor: append([]string{}, n.GetWaitsFor()...),
		Suspect: Seconds(n.GetSuspect()), ClockAhead: Seconds(st.GetClockAhead()),
		Drain: DrainToJSON(st.GetDrain()), Workloads: ListToJSON(st.GetWorkloads(), WorkloadToJSON), Stores: ListToJSON(st.GetStores(), StoreToJSON),
		RoomBytes: st.GetRoomBytes(), VaultRoom: VaultRoom(st), Largest: st.GetLargestRoomBytes(), LargestVault: st.GetLargestVaultRoomBytes(),
		HeldBlocks: st.GetHeldBlocks(), BrokenBlocks: st.GetBrokenBlocks(), HeldBytes: st.GetHeldBytes(),
		Manifest: ManifestToJSON(n.GetManifest()),
	}
}

// Clock is what the clock of the replying coordinator showed: this machine's own clock may be wrong.
func (n *Node) Clock() time.Time {
	return n.GetNow().AsTime()
}

// VaultRoom is the room in the vault as JSON has it: nil if it was not told.
func VaultRoom(st *Status) *int64 {
	if st == nil {
		return nil
	}
	return st.VaultRoomBytes
}

// NoticeToJSON is null for no notice.
func NoticeToJSON(n *Notice, now time.Time) *NoticeJSON {
	if n == nil {
		return nil
	}
	out := &NoticeJSON{Kind: n.GetKind(), Source: n.GetSource(), Stance: n.GetStance(), Reason: n.GetReason(), Incident: n.GetIncident()}
	if n.GetRemaining() != nil {
		out.Deadline = new(now.Add(n.GetRemaining().AsDuration()).UTC().Truncate(time.Millisecond))
	}
	return out
}

// DiskToJSON converts a disk.
func DiskToJSON(d *Disk) DiskJSON {
	return DiskJSON{
		Path: d.GetPath(), Health: d.GetHealth(), Why: d.GetWhy(), Since: Seconds(d.GetSince()),
		Total: d.GetTotalBytes(), Usable: d.GetUsableBytes(), Free: d.GetFreeBytes(), Reserved: d.GetReservedBytes(),
		Slots: d.Slots, FreeSlots: d.FreeSlots, Inodes: d.Inodes, InodesFree: d.InodesFree,
		FlushBytesPerSecond: d.FlushBytesPerSecond, FetchBytesPerSecond: d.FetchBytesPerSecond, Errors: d.GetErrors(),
		Mount: d.GetMount(), Device: d.GetDevice(), FileSystem: d.GetFilesystem(), Kind: d.GetKind(), Unwell: d.GetUnwell(), Closed: d.GetClosed(),
	}
}

// WorkloadToJSON converts a workload.
func WorkloadToJSON(w *Workload) WorkloadJSON {
	return WorkloadJSON{
		Name: w.GetName(), Type: w.GetType(), State: w.GetState(), Since: Seconds(w.GetSince()), Awaited: w.GetAwaited(),
		Processes: w.GetProcesses(), Apps: append([]string{}, w.GetApps()...), Trouble: w.GetTrouble(),
		Executors: ListToJSON(w.GetExecutors(), func(e *Executor) ExecutorJSON { return ExecutorJSON{e.GetApp(), e.GetId()} }),
	}
}

// StoreToJSON converts a store.
func StoreToJSON(s *StoreInfo) StoreJSON {
	return StoreJSON{s.GetName(), s.GetKind(), s.GetLayout(), s.GetLand()}
}

// DrainToJSON is null when there was no drain.
func DrainToJSON(d *DrainProgress) *DrainJSON {
	if d == nil {
		return nil
	}
	j := &DrainJSON{
		Phase:      d.GetPhase(),
		Blocks:     CountsJSON{d.GetBlocksTotal(), d.GetBlocksMoved(), d.GetBlocksLost(), d.GetBlocksSkipped()},
		BytesTotal: d.GetBytesTotal(), BytesMoved: d.GetBytesMoved(), BytesPerSecond: d.GetBytesPerSecond(),
		Peers: []SentJSON{},
	}
	for _, p := range d.GetPeers() {
		j.Peers = append(j.Peers, SentJSON{p.GetNode(), p.GetBlocks(), p.GetBytes(), p.GetTrouble()})
	}
	return j
}

// ManifestToJSON is null when no drain has ended.
func ManifestToJSON(m *ManifestSummary) *ManifestJSON {
	if m == nil {
		return nil
	}
	return &ManifestJSON{
		Node: m.GetNode(),
		Incident: IncidentJSON{m.GetIncident(), m.GetKind(), m.GetSource(),
			Instant(m.GetNoticedAt()), Instant(m.GetDeadline())},
		StartedAt: Instant(m.GetStartedAt()), FinishedAt: Instant(m.GetFinishedAt()),
		Blocks:     CountsJSON{m.GetTotal().GetBlocks(), m.GetMoved().GetBlocks(), m.GetLost().GetBlocks(), m.GetSkipped().GetBlocks()},
		Bytes:      CountsJSON{m.GetTotal().GetBytes(), m.GetMoved().GetBytes(), m.GetLost().GetBytes(), m.GetSkipped().GetBytes()},
		Unfinished: append([]string{}, m.GetUnfinished()...),
	}
}

// BlockToJSON makes a block whose holders are never null.
func BlockToJSON(b *BlockInfo) BlockJSON {
	return BlockJSON{b.GetId(), b.GetBytes(), b.GetState(), append([]string{}, b.GetHolders()...), b.GetFrom(), Seconds(b.GetValue())}
}

// EventToJSON makes an event whose data is never null.
func EventToJSON(e *Event) EventJSON {
	data := e.GetData()
	if data == nil {
		data = map[string]string{}
	}
	return EventJSON{e.GetIndex(), e.GetTerm(), e.GetSoft(), Instant(e.GetTime()), e.GetType(), e.GetNode(), data}
}

// Instant is null for an absent timestamp.
func Instant(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	return new(t.AsTime())
}

// Seconds keeps milliseconds: finer digits would only show how the clocks of two machines differ.
func Seconds(d *durationpb.Duration) *float64 {
	if d == nil {
		return nil
	}
	return new(math.Round(d.AsDuration().Seconds()*1000)/1000 + 0) // the sum turns -0, from a little less than none, into 0
}

// EntryToJSON makes one line of a manifest.
func EntryToJSON(e *ManifestEntry) EntryJSON {
	return EntryJSON{e.GetId(), e.GetBytes(), e.GetOutcome(), e.GetPeer(), e.GetReason()}
}
