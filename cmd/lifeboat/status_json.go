package main

import (
	"time"

	"github.com/lifeboat/lifeboat/api"
)

type agentJSON struct {
	Role         string            `json:"role"` // tells the two kinds of status apart
	Node         string            `json:"node"`
	Version      string            `json:"version"`
	Incarnation  string            `json:"incarnation"`
	StartedAt    *time.Time        `json:"started_at"`
	Notice       *api.NoticeJSON   `json:"notice"`
	Drain        *api.DrainJSON    `json:"drain"`
	Manifest     *api.ManifestJSON `json:"manifest"`
	Disks        []api.DiskJSON    `json:"disks"`
	RoomBytes    int64             `json:"room_bytes"`
	VaultRoom    *int64            `json:"vault_room_bytes"`   // of room_bytes, in the vault; null: it takes nothing
	Largest      int64             `json:"largest_room_bytes"` // for one block
	LargestVault int64             `json:"largest_vault_room_bytes"`
	HeldBlocks   int64             `json:"held_blocks"`
	Broken       int64             `json:"broken_blocks"`
	HeldBytes    int64             `json:"held_bytes"`
	HeldTaken    int64             `json:"held_taken_bytes"`
	Unpacking    unpackingJSON     `json:"unpacking"`
	Index        indexJSON         `json:"index"`
	Coordinator  coordinatorLink   `json:"coordinator"`
	Fallback     *fallbackJSON     `json:"fallback"` // null: there is none
	Peers        []peerJSON        `json:"peers"`
	Provider     string            `json:"provider"`
	Changes      *float64          `json:"changes_seconds"`
	Notices      []noticeJSON      `json:"notices"`
	Sources      []sourceJSON      `json:"sources"`
	Actions      []actionJSON      `json:"actions"`
	Evacuations  []evacuationJSON  `json:"evacuations"`

	Workloads       []api.WorkloadJSON `json:"workloads"`
	Stores          []api.StoreJSON    `json:"stores"`
	WaitsFor        []string           `json:"waits_for"`        // what keeps a leaving node from its goodbye
	DataDirTrouble  string             `json:"data_dir_trouble"` // why data_dir takes no writes, so that they wait in memory; empty: it does
	CertificateEnds *time.Time         `json:"certificate_ends"`
}

// unpackingJSON counts the blocks that landed in segments and are still to become files.
type unpackingJSON struct {
	Blocks         int64 `json:"blocks"`
	Bytes          int64 `json:"bytes"`
	OccupiedBlocks int64 `json:"occupied_blocks"`
}

// indexJSON is the index of plain files, which spares a drain its scan. Without an index it counts nothing and has no age.
type indexJSON struct {
	Blocks int64    `json:"blocks"`
	Bytes  int64    `json:"bytes"`
	Age    *float64 `json:"age_seconds"`
}

// noticeJSON is a notice that its source has not withdrawn.
type noticeJSON struct {
	Source    string   `json:"source"`
	ID        string   `json:"id"`
	Kind      string   `json:"kind"`
	Goes      string   `json:"goes"`
	Age       *float64 `json:"age_seconds"`
	Remaining *float64 `json:"remaining_seconds"`
	Appointed bool     `json:"appointed"`
	Reason    string   `json:"reason"`
}

type sourceJSON struct {
	Source   string   `json:"source"`
	Path     string   `json:"path"`
	LastGood *float64 `json:"last_good_seconds"`
	Trouble  string   `json:"trouble"`
}

// actionJSON is how far an action of a sidecar is.
type actionJSON struct {
	Name    string   `json:"name"`
	Phase   string   `json:"phase"`
	State   string   `json:"state"`
	Took    *float64 `json:"took_seconds"`
	Trouble string   `json:"trouble"`
}

type coordinatorLink struct {
	Address       string   `json:"address"`
	LastHeartbeat *float64 `json:"last_heartbeat_seconds"`
	Trouble       string   `json:"trouble"`
}

type peerJSON struct {
	Node      string   `json:"node"`
	Address   string   `json:"address"`
	Zone      string   `json:"zone"`
	Pool      string   `json:"pool"`
	RoomBytes int64    `json:"room_bytes"`
	VaultRoom *int64   `json:"vault_room_bytes,omitempty"` // of room_bytes, for blocks of stores that are not in places; absent: not told
	Places    []string `json:"places,omitempty"`
	Advised   bool     `json:"advised,omitempty"`

	Largest      int64 `json:"largest_room_bytes,omitempty"` // for one block; absent: not told
	LargestVault int64 `json:"largest_vault_room_bytes,omitempty"`
}

func agentToJSON(s *api.AgentStatus, now time.Time) agentJSON {
	st := s.GetStatus()
	role := "agent"
	if s.GetSidecar() {
		role = "sidecar"
	}
	return agentJSON{
		Role: role, Node: s.GetNode(), Version: s.GetVersion(), Incarnation: s.GetIncarnation(), StartedAt: api.Instant(s.GetStartedAt()),
		Notice: api.NoticeToJSON(st.GetNotice(), now), Drain: api.DrainToJSON(st.GetDrain()), Manifest: api.ManifestToJSON(s.GetManifest()),
		Disks: api.ListToJSON(st.GetDisks(), api.DiskToJSON), DataDirTrouble: s.GetDataDirTrouble(),
		RoomBytes: st.GetRoomBytes(), VaultRoom: api.VaultRoom(st), Largest: st.GetLargestRoomBytes(), LargestVault: st.GetLargestVaultRoomBytes(),
		HeldBlocks: st.GetHeldBlocks(), Broken: st.GetBrokenBlocks(), HeldBytes: st.GetHeldBytes(), HeldTaken: st.GetHeldTakenBytes(),
		Unpacking:   unpackingJSON{s.GetUnpacking().GetBlocks(), s.GetUnpacking().GetBytes(), s.GetUnpacking().GetOccupiedBlocks()},
		Index:       indexJSON{s.GetIndex().GetBlocks(), s.GetIndex().GetBytes(), api.Seconds(s.GetIndex().GetAge())},
		Coordinator: coordinatorLink{s.GetCoordinator(), api.Seconds(s.GetLastHeartbeat()), s.GetCoordinatorTrouble()},
		Fallback:    fallbackToJSON(s.GetFallback()),
		Provider:    s.GetProvider(), Changes: api.Seconds(s.GetChanges()),
		Peers: api.ListToJSON(s.GetPeers(), peerToJSON), Notices: api.ListToJSON(s.GetNotices(), noticeToJSON),
		Sources: api.ListToJSON(s.GetSources(), sourceToJSON), Actions: api.ListToJSON(s.GetActions(), actionToJSON),
		Evacuations: api.ListToJSON(s.GetEvacuations(), evacuationToJSON),
		Workloads:   api.ListToJSON(st.GetWorkloads(), api.WorkloadToJSON), Stores: api.ListToJSON(st.GetStores(), api.StoreToJSON),
		WaitsFor: append([]string{}, s.GetWaitsFor()...), CertificateEnds: api.Instant(s.GetCertificateEnds()),
	}
}

func peerToJSON(p *api.Peer) peerJSON {
	return peerJSON{
		Node: p.GetNode(), Address: p.GetAddress(), Zone: p.GetZone(), Pool: p.GetPool(), Places: p.GetPlaces(), Advised: p.GetAdvised(),
		RoomBytes: p.GetRoomBytes(), VaultRoom: p.VaultRoomBytes, Largest: p.GetLargestRoomBytes(), LargestVault: p.GetLargestVaultRoomBytes(),
	}
}

func noticeToJSON(n *api.NoticeInForce) noticeJSON {
	return noticeJSON{
		Source: n.GetSource(), ID: n.GetId(), Kind: n.GetKind(), Reason: n.GetReason(), Goes: n.GetStance(),
		Age: api.Seconds(n.GetAge()), Remaining: api.Seconds(n.GetRemaining()), Appointed: n.GetAppointed(),
	}
}

func sourceToJSON(h *api.SourceHealth) sourceJSON {
	return sourceJSON{h.GetSource(), h.GetPath(), api.Seconds(h.GetLastGood()), h.GetTrouble()}
}

func actionToJSON(a *api.ActionState) actionJSON {
	return actionJSON{a.GetName(), a.GetPhase(), a.GetState(), api.Seconds(a.GetTook()), a.GetTrouble()}
}

type coordinatorJSON struct {
	Role          string           `json:"role"`
	Name          string           `json:"name"`
	Version       string           `json:"version"`
	Leader        bool             `json:"leader"`
	StartedAt     *time.Time       `json:"started_at"`
	Nodes         map[string]int64 `json:"nodes"`
	BlocksLocated *int64           `json:"blocks_located"` // null: only the leader knows
	BlocksLost    int64            `json:"blocks_lost"`
	LastIndex     uint64           `json:"last_index"`
	Hosts         *hostsJSON       `json:"hosts"` // null: no host files
	LeaderName    string           `json:"leader_name"`
	LeaderAddress string           `json:"leader_address"`
	Term          uint64           `json:"term"`
	Members       []memberJSON     `json:"members"` // empty: one coordinator only
	Suspects      int64            `json:"suspects"`
	Brakes        []brakeJSON      `json:"brakes"` // that hold now
	ClocksApart   int64            `json:"clocks_apart"`
	Subscribers   int64            `json:"subscribers"`
	DiskTrouble   string           `json:"disk_trouble"` // empty: none
}

func coordinatorToJSON(s *api.CoordinatorStatus) coordinatorJSON {
	nodes := s.GetNodes()
	if nodes == nil {
		nodes = map[string]int64{}
	}
	var located *int64
	if s.GetLeader() {
		located = &s.BlocksLocated
	}
	return coordinatorJSON{
		Role: "coordinator", Name: s.GetName(), Version: s.GetVersion(), StartedAt: api.Instant(s.GetStartedAt()),
		Leader: s.GetLeader(), LeaderName: s.GetLeaderName(), LeaderAddress: s.GetLeaderAddress(), Term: s.GetTerm(),
		Nodes: nodes, Suspects: s.GetSuspects(), ClocksApart: s.GetClocksApart(), BlocksLocated: located, BlocksLost: s.GetBlocksLost(),
		LastIndex: s.GetLastIndex(), Subscribers: s.GetSubscribers(), DiskTrouble: s.GetDiskTrouble(),
		Hosts: hostsToJSON(s.GetHosts()), Members: api.ListToJSON(s.GetMembers(), memberToJSON), Brakes: api.ListToJSON(s.GetBrakes(), brakeToJSON),
	}
}
