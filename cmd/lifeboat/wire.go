package main

import (
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
)

// The shapes of -o json. Keys are stable: they may be joined by others, never renamed. Spans are seconds, instants
// RFC 3339 in UTC, sizes bytes; null is "not known" or "there is none", which is not the same as 0.

type nodeJSON struct {
	Name          string        `json:"name"`
	ID            string        `json:"id"`
	State         string        `json:"state"`
	SubState      string        `json:"sub_state"`
	Schedulable   bool          `json:"schedulable"`
	Deactivated   bool          `json:"deactivated"`
	Maintenance   string        `json:"maintenance"`
	Excluded      bool          `json:"excluded"`
	Notice        *noticeJSON   `json:"notice"`
	Deadline      *time.Time    `json:"deadline"`
	Remaining     *float64      `json:"remaining_seconds"`
	PeerAddress   string        `json:"peer_address"`
	Incarnation   string        `json:"incarnation"`
	Disks         []diskJSON    `json:"disks"`
	LastHeartbeat *float64      `json:"last_heartbeat_seconds"`
	Zone          string        `json:"zone"`
	Pool          string        `json:"pool"`
	Version       string        `json:"version"`
	Decommission  string        `json:"decommission"`
	Reason        string        `json:"reason"`
	Drain         *drainJSON    `json:"drain"`
	RoomBytes     int64         `json:"room_bytes"`
	HeldBlocks    int64         `json:"held_blocks"`
	HeldBytes     int64         `json:"held_bytes"`
	Manifest      *manifestJSON `json:"manifest"`
}

type noticeJSON struct {
	Kind     string     `json:"kind"`
	Deadline *time.Time `json:"deadline"`
	Source   string     `json:"source"`
	Stance   string     `json:"stance"`
	Reason   string     `json:"reason"`
	Incident string     `json:"incident"`
}

type diskJSON struct {
	Path   string `json:"path"`
	Health string `json:"health"`
	Total  int64  `json:"total_bytes"`
	Usable int64  `json:"usable_bytes"`
	// Nobody measures these yet.
	Slots               *int64 `json:"slots"`
	FlushBytesPerSecond *int64 `json:"flush_bytes_per_second"`
	FetchBytesPerSecond *int64 `json:"fetch_bytes_per_second"`
}

type drainJSON struct {
	Phase          string     `json:"phase"`
	Blocks         countsJSON `json:"blocks"`
	BytesTotal     int64      `json:"bytes_total"`
	BytesMoved     int64      `json:"bytes_moved"`
	BytesPerSecond int64      `json:"bytes_per_second"`
	Peers          []sentJSON `json:"peers"`
}

type sentJSON struct {
	Node    string `json:"node"`
	Blocks  int64  `json:"blocks"`
	Bytes   int64  `json:"bytes"`
	Trouble string `json:"trouble"`
}

type countsJSON struct {
	Total   int64 `json:"total"`
	Moved   int64 `json:"moved"`
	Lost    int64 `json:"lost"`
	Skipped int64 `json:"skipped"`
}

type incidentJSON struct {
	ID        string     `json:"id"`
	Kind      string     `json:"kind"`
	Source    string     `json:"source"`
	NoticedAt *time.Time `json:"noticed_at"`
	Deadline  *time.Time `json:"deadline"`
}

// manifestJSON is a manifest without its entries, which are printed as they come.
type manifestJSON struct {
	Node       string       `json:"node"`
	Incident   incidentJSON `json:"incident"`
	StartedAt  *time.Time   `json:"started_at"`
	FinishedAt *time.Time   `json:"finished_at"`
	Blocks     countsJSON   `json:"blocks"`
	Bytes      countsJSON   `json:"bytes"`
}

type entryJSON struct {
	ID      string `json:"id"`
	Bytes   int64  `json:"bytes"`
	Outcome string `json:"outcome"`
	Peer    string `json:"peer"`
	Reason  string `json:"reason"`
}

type blockJSON struct {
	ID      string   `json:"id"`
	Bytes   int64    `json:"bytes"`
	State   string   `json:"state"`
	Holders []string `json:"holders"`
	From    string   `json:"from"`
}

type holderJSON struct {
	Node    string `json:"node"`
	Address string `json:"address"`
}

type locationJSON struct {
	ID      string       `json:"id"`
	Holders []holderJSON `json:"holders"`
	State   string       `json:"state"`
}

type eventJSON struct {
	Index uint64            `json:"index"`
	Time  *time.Time        `json:"time"`
	Type  string            `json:"type"`
	Node  string            `json:"node"`
	Data  map[string]string `json:"data"`
}

func nodesToJSON(nodes []*api.Node, now time.Time) []nodeJSON {
	out := make([]nodeJSON, 0, len(nodes)) // an empty fleet is [], not null
	for _, n := range nodes {
		out = append(out, nodeToJSON(n, now))
	}
	return out
}

func nodeToJSON(n *api.Node, now time.Time) nodeJSON {
	st := n.GetStatus()
	return nodeJSON{
		Name: n.GetName(), ID: n.GetId(), State: n.GetState(), SubState: n.GetSubState(),
		Schedulable: n.GetSchedulable(), Deactivated: n.GetDeactivated(), Maintenance: n.GetMaintenance(), Excluded: n.GetExcluded(),
		Notice: noticeToJSON(st.GetNotice(), now), Deadline: instant(n.GetDeadline()), Remaining: seconds(n.GetRemaining()),
		PeerAddress: n.GetPeerAddress(), Incarnation: n.GetIncarnation(), Disks: disksToJSON(st.GetDisks()),
		LastHeartbeat: seconds(n.GetLastHeartbeat()), Zone: n.GetZone(), Pool: n.GetPool(), Version: n.GetVersion(),
		Decommission: n.GetDecommission(), Reason: n.GetReason(), Drain: drainToJSON(st.GetDrain()),
		RoomBytes: st.GetRoomBytes(), HeldBlocks: st.GetHeldBlocks(), HeldBytes: st.GetHeldBytes(),
		Manifest: manifestToJSON(n.GetManifest()),
	}
}

func noticeToJSON(n *api.Notice, now time.Time) *noticeJSON {
	if n == nil {
		return nil
	}
	out := &noticeJSON{Kind: n.GetKind(), Source: n.GetSource(), Stance: n.GetStance(), Reason: n.GetReason(), Incident: n.GetIncident()}
	if n.GetRemaining() != nil {
		out.Deadline = new(now.Add(n.GetRemaining().AsDuration()).UTC().Truncate(time.Millisecond))
	}
	return out
}

func disksToJSON(disks []*api.Disk) []diskJSON {
	out := make([]diskJSON, 0, len(disks))
	for _, d := range disks {
		out = append(out, diskJSON{Path: d.GetPath(), Health: d.GetHealth(), Total: d.GetTotalBytes(), Usable: d.GetUsableBytes()})
	}
	return out
}

func drainToJSON(d *api.DrainProgress) *drainJSON {
	if d == nil {
		return nil
	}
	j := &drainJSON{
		Phase:      d.GetPhase(),
		Blocks:     countsJSON{d.GetBlocksTotal(), d.GetBlocksMoved(), d.GetBlocksLost(), d.GetBlocksSkipped()},
		BytesTotal: d.GetBytesTotal(), BytesMoved: d.GetBytesMoved(), BytesPerSecond: d.GetBytesPerSecond(),
		Peers: []sentJSON{},
	}
	for _, p := range d.GetPeers() {
		j.Peers = append(j.Peers, sentJSON{p.GetNode(), p.GetBlocks(), p.GetBytes(), p.GetTrouble()})
	}
	return j
}

func manifestToJSON(m *api.ManifestSummary) *manifestJSON {
	if m == nil {
		return nil
	}
	return &manifestJSON{
		Node: m.GetNode(),
		Incident: incidentJSON{m.GetIncident(), m.GetKind(), m.GetSource(),
			instant(m.GetNoticedAt()), instant(m.GetDeadline())},
		StartedAt: instant(m.GetStartedAt()), FinishedAt: instant(m.GetFinishedAt()),
		Blocks: countsJSON{m.GetTotal().GetBlocks(), m.GetMoved().GetBlocks(), m.GetLost().GetBlocks(), m.GetSkipped().GetBlocks()},
		Bytes:  countsJSON{m.GetTotal().GetBytes(), m.GetMoved().GetBytes(), m.GetLost().GetBytes(), m.GetSkipped().GetBytes()},
	}
}

func blockToJSON(b *api.BlockInfo) blockJSON {
	return blockJSON{b.GetId(), b.GetBytes(), b.GetState(), append([]string{}, b.GetHolders()...), b.GetFrom()}
}

func eventToJSON(e *api.Event) eventJSON {
	data := e.GetData()
	if data == nil {
		data = map[string]string{}
	}
	return eventJSON{e.GetIndex(), instant(e.GetTime()), e.GetType(), e.GetNode(), data}
}

func instant(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	return new(t.AsTime())
}

// seconds keeps milliseconds: finer than that, clocks of two machines only make noise.
func seconds(d *durationpb.Duration) *float64 {
	if d == nil {
		return nil
	}
	return new(math.Round(d.AsDuration().Seconds()*1000) / 1000)
}
