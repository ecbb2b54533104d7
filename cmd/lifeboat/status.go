package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/api"
)

func statusCommand() *cobra.Command {
	var to reach
	var out format
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the agent of this machine is, or else the coordinator",
		Long: `Shows how the agent of this machine is when there is one, or --socket names one; otherwise how the coordinator is.
--coordinator asks the coordinator in any case.`,
		Example: `  lifeboat status
  lifeboat status --watch
  lifeboat status --coordinator 10.0.0.1 -o json`,
		Args: cobra.NoArgs,
	}
	to.coordinatorFlags(cmd)
	to.socketFlags(cmd)
	out.flag(cmd)
	watchFlag(cmd, &watch)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		local, err := to.nearest()
		if err != nil {
			return err
		}
		draw := to.drawCoordinator
		if local {
			draw = to.drawAgent
		}
		ask, l, err := draw(out)
		if err != nil {
			return err
		}
		defer l.Close()
		return show(cmd.Context(), watch, cmd.OutOrStdout(), cmd.ErrOrStderr(), func(ctx context.Context, w io.Writer) error {
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			return ask(ctx, w)
		})
	}
	return cmd
}

type drawing func(ctx context.Context, w io.Writer) error

func (r *reach) drawAgent(out format) (drawing, *link, error) {
	agent, l, err := r.agent()
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, w io.Writer) error {
		s, err := agent.GetStatus(ctx, &api.GetAgentStatusRequest{})
		if err != nil {
			return l.rpcError("status", err)
		}
		if out == formatJSON {
			return writeJSON(w, agentToJSON(s, time.Now()))
		}
		return printAgent(w, s)
	}, l, nil
}

func (r *reach) drawCoordinator(out format) (drawing, *link, error) {
	operator, l, err := r.operator()
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, w io.Writer) error {
		s, err := operator.GetStatus(ctx, &api.GetStatusRequest{})
		if err != nil {
			return l.rpcError("status", err)
		}
		if out == formatJSON {
			return writeJSON(w, coordinatorToJSON(s))
		}
		return printCoordinator(w, s)
	}, l, nil
}

func printAgent(w io.Writer, s *api.AgentStatus) error {
	t := table{folded: true}
	t.row("node", s.GetNode())
	t.row("version", dash(s.GetVersion()))
	t.row("since", since(api.Instant(s.GetStartedAt())))
	if !s.GetSidecar() {
		coordinator := cmp.Or(s.GetCoordinator(), "none") + ", answered "
		if s.GetLastHeartbeat() == nil {
			coordinator += "never"
		} else {
			coordinator += age(s.GetLastHeartbeat()) + " ago"
		}
		if s.GetCoordinatorTrouble() != "" {
			coordinator += ": " + coordinatorTrouble(s)
		}
		t.row("coordinator", coordinator)
	}
	if f := s.GetFallback(); f != nil {
		t.row("fallback", fallbackWords(f))
	}
	t.row("cloud", cmp.Or(s.GetProvider(), "none"))
	if ends := s.GetCertificateEnds(); ends != nil && overdue(s, time.Now()) {
		t.row("certificate", "ends "+ends.AsTime().UTC().Format(time.RFC3339)+": lifeboat doctor says what to do")
	}
	statusRows(&t, s.GetStatus(), s.GetManifest(), s.GetSidecar())
	if u := s.GetUnpacking(); u != nil {
		what := fmt.Sprintf("%s, %s, to become files", count(u.GetBlocks(), "block"), size(u.GetBytes()))
		if n := u.GetOccupiedBlocks(); n > 0 {
			what += fmt.Sprintf("; other files have the names of %d", n)
		}
		t.row("unpacking", what)
	}
	if x := s.GetIndex(); x != nil {
		t.row("indexed", fmt.Sprintf("%s, %s, of plain files, as of %s ago", count(x.GetBlocks(), "block"), size(x.GetBytes()), age(x.GetAge())))
	}
	for i, what := range s.GetWaitsFor() {
		t.row(map[bool]string{true: "waits for"}[i == 0], what)
	}
	if s.GetChanges() != nil {
		t.row("next", "goes further "+left(s.GetChanges()))
	}
	if err := t.print(w); err != nil {
		return err
	}
	if err := printNotices(w, s); err != nil {
		return err
	}
	if err := printParts(w, s.GetStatus()); err != nil {
		return err
	}
	if err := printSection(w, evacuationTable(s.GetEvacuations())); err != nil {
		return err
	}
	peers := table{narrow: true}
	peers.row("PEER", "ADDRESS", "ZONE", "POOL", "ROOM")
	for _, p := range s.GetPeers() {
		room := roomWords(p.GetRoomBytes(), p.VaultRoomBytes)
		if p.GetAdvised() {
			room += " (advised to go)"
		}
		peers.row(p.GetNode(), dash(p.GetAddress()), dash(p.GetZone()), dash(p.GetPool()), room)
	}
	return printSection(w, &peers)
}

// coordinatorTrouble is what keeps an agent from its coordinator, without its address.
func coordinatorTrouble(s *api.AgentStatus) string {
	return strings.TrimPrefix(s.GetCoordinatorTrouble(), "coordinator "+s.GetCoordinator()+": ")
}

// appsWidth keeps a list in a table short on a terminal.
const appsWidth = 30

// printNotices prints what the sources of notices say, how well they know it, and what was done about it.
func printNotices(w io.Writer, s *api.AgentStatus) error {
	sources, notices, actions := table{wordy: true}, table{wordy: true}, table{wordy: true}
	sources.row("SOURCE", "PATH", "LAST GOOD", "TROUBLE")
	for _, h := range s.GetSources() {
		good := "never"
		if h.GetLastGood() != nil {
			good = age(h.GetLastGood()) + " ago"
		}
		sources.row(h.GetSource(), dash(h.GetPath()), good, dash(h.GetTrouble()))
	}
	notices.row("NOTICE", "SOURCE", "SEEN", "DEADLINE", "GOES", "REASON")
	for _, n := range s.GetNotices() {
		notices.row(n.GetKind(), n.GetSource(), age(n.GetAge())+" ago", left(n.GetRemaining()), n.GetStance(), dash(n.GetReason()))
	}
	actions.row("ACTION", "TOLD", "STATE", "TOOK", "TROUBLE")
	for _, a := range s.GetActions() {
		actions.row(a.GetName(), dash(a.GetPhase()), a.GetState(), age(a.GetTook()), dash(a.GetTrouble()))
	}
	for _, t := range []*table{&notices, &actions, &sources} {
		if err := printSection(w, t); err != nil {
			return err
		}
	}
	return nil
}

// statusRows says what an agent says of itself: it reads the same through the coordinator and on the spot.
func statusRows(t *table, s *api.Status, m *api.ManifestSummary, sidecar bool) {
	if s == nil {
		t.row("status", "not heard since the coordinator started")
		return
	}
	notice := "none"
	if n := s.GetNotice(); n != nil {
		notice = fmt.Sprintf("%s from %s, %s", n.GetKind(), n.GetSource(), cmp.Or(n.GetStance(), "watch"))
		if n.GetRemaining() != nil {
			notice += ", deadline " + left(n.GetRemaining())
		}
		if n.GetReason() != "" {
			notice += ": " + n.GetReason()
		}
	}
	t.row("notice", notice)
	if d := s.GetDrain(); d != nil {
		t.row("drain", fmt.Sprintf("%s: %d of %s moved (%s of %s, %s/s), %d lost, %d skipped",
			d.GetPhase(), d.GetBlocksMoved(), count(d.GetBlocksTotal(), "block"),
			size(d.GetBytesMoved()), size(d.GetBytesTotal()), size(d.GetBytesPerSecond()), d.GetBlocksLost(), d.GetBlocksSkipped()))
	}
	if m != nil {
		t.row("last drain", summary(m))
	}
	if sidecar {
		return // it holds nothing
	}
	t.row("held", fmt.Sprintf("%s, %s, for others", count(s.GetHeldBlocks(), "block"), size(s.GetHeldBytes())))
	if n := s.GetBrokenBlocks(); n > 0 {
		t.row("broken", fmt.Sprintf("%s for others, found and removed since the start", count(n, "block")))
	}
	t.row("room", roomWords(s.GetRoomBytes(), s.VaultRoomBytes))
}

// printParts prints a table for each kind of part that a node has.
func printParts(w io.Writer, s *api.Status) error {
	working, trouble, disks, stores, peers := table{narrow: true}, table{folded: true}, table{narrow: true}, table{}, table{narrow: true, wordy: true}
	working.row("WORKLOAD", "TYPE", "STATE", "SINCE", "PROCESSES", "AWAITED", "APPS")
	trouble.row("WORKLOAD", "TROUBLE")
	for _, a := range s.GetWorkloads() {
		apps := strings.Join(a.GetApps(), ", ")
		working.row(a.GetName(), a.GetType(), a.GetState(), age(a.GetSince())+" ago", fmt.Sprint(a.GetProcesses()), yesNo(a.GetAwaited()),
			cut(dash(apps), roomFor(w, appsWidth)))
		if a.GetTrouble() != "" {
			trouble.row(a.GetName(), a.GetTrouble())
		}
	}
	disks.row("DISK", "HEALTH", "TOTAL", "USABLE")
	for _, d := range s.GetDisks() {
		disks.row(d.GetPath(), dash(d.GetHealth()), size(d.GetTotalBytes()), size(d.GetUsableBytes()))
	}
	stores.row("STORE", "KIND", "LAYOUT", "LAND")
	for _, st := range s.GetStores() {
		stores.row(st.GetName(), dash(st.GetKind()), dash(st.GetLayout()), dash(st.GetLand()))
	}
	peers.row("SENT TO", "BLOCKS", "BYTES", "TROUBLE")
	for _, p := range s.GetDrain().GetPeers() {
		peers.row(p.GetNode(), fmt.Sprint(p.GetBlocks()), size(p.GetBytes()), dash(p.GetTrouble()))
	}
	for _, t := range []*table{&working, &trouble, &disks, &stores, &peers} {
		if err := printSection(w, t); err != nil {
			return err
		}
	}
	return nil
}

// printSection prints a table after a blank line, and nothing when it has only a heading.
func printSection(w io.Writer, t *table) error {
	if len(t.rows) < 2 {
		return nil
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return err
	}
	return t.print(w)
}

func printCoordinator(w io.Writer, s *api.CoordinatorStatus) error {
	t := table{folded: true}
	t.row("coordinator", s.GetName())
	t.row("version", dash(s.GetVersion()))
	leader := yesNo(s.GetLeader())
	if len(s.GetMembers()) > 0 && !s.GetLeader() {
		leader = cmp.Or(s.GetLeaderName(), "none known")
	}
	t.row("leader", leader)
	if len(s.GetMembers()) > 0 {
		t.row("term", fmt.Sprint(s.GetTerm()))
	}
	t.row("since", since(api.Instant(s.GetStartedAt())))
	var nodes []string
	for _, state := range slices.Sorted(maps.Keys(s.GetNodes())) {
		nodes = append(nodes, fmt.Sprintf("%d %s", s.GetNodes()[state], state))
	}
	t.row("nodes", cmp.Or(strings.Join(nodes, ", "), "none"))
	if n := s.GetSuspects(); n > 0 {
		t.row("suspects", fmt.Sprintf("%s silent: nothing is sent there", count(n, "node")))
	}
	for _, b := range s.GetBrakes() {
		t.row("BRAKE "+brakeName(b), brakeWords(b))
	}
	if n := s.GetClocksApart(); n > 0 {
		t.row("clocks", fmt.Sprintf("%s more than a second off: lifeboat node NAME says which way", count(n, "node")))
	}
	if s.GetLeader() {
		t.row("blocks", fmt.Sprintf("%d located, %d lost", s.GetBlocksLocated(), s.GetBlocksLost()))
	} else { // where blocks rest the nodes tell the leader alone
		t.row("blocks", fmt.Sprintf("- located, %d lost", s.GetBlocksLost()))
	}
	t.row("last event", fmt.Sprint(s.GetLastIndex()))
	hostRows(&t, s.GetHosts())
	if err := t.print(w); err != nil || len(s.GetMembers()) == 0 {
		return err
	}
	members := memberTable(s.GetMembers())
	return printSection(w, &members)
}

func since(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(time.RFC3339)
}

type agentJSON struct {
	Role        string            `json:"role"` // tells the two kinds of status apart
	Node        string            `json:"node"`
	Version     string            `json:"version"`
	Incarnation string            `json:"incarnation"`
	StartedAt   *time.Time        `json:"started_at"`
	Notice      *api.NoticeJSON   `json:"notice"`
	Drain       *api.DrainJSON    `json:"drain"`
	Manifest    *api.ManifestJSON `json:"manifest"`
	Disks       []api.DiskJSON    `json:"disks"`
	RoomBytes   int64             `json:"room_bytes"`
	VaultRoom   *int64            `json:"vault_room_bytes"` // of these; null: there is none
	HeldBlocks  int64             `json:"held_blocks"`
	Broken      int64             `json:"broken_blocks"`
	HeldBytes   int64             `json:"held_bytes"`
	Unpacking   unpackingJSON     `json:"unpacking"`
	Index       indexJSON         `json:"index"`
	Coordinator coordinatorLink   `json:"coordinator"`
	Fallback    *fallbackJSON     `json:"fallback"` // null: there is none
	Peers       []peerJSON        `json:"peers"`
	Provider    string            `json:"provider"`
	Changes     *float64          `json:"changes_seconds"`
	Notices     []noticeJSON      `json:"notices"`
	Sources     []sourceJSON      `json:"sources"`
	Actions     []actionJSON      `json:"actions"`
	Evacuations []evacuationJSON  `json:"evacuations"`

	Workloads       []api.WorkloadJSON `json:"workloads"`
	Stores          []api.StoreJSON    `json:"stores"`
	WaitsFor        []string           `json:"waits_for"` // what keeps a node that leaves from its last words
	CertificateEnds *time.Time         `json:"certificate_ends"`
}

// unpackingJSON is what landed from others in segments and is to become files.
type unpackingJSON struct {
	Blocks         int64 `json:"blocks"`
	Bytes          int64 `json:"bytes"`
	OccupiedBlocks int64 `json:"occupied_blocks"`
}

// indexJSON is what a drain would not have to look for. Without an index it holds nothing and has no age.
type indexJSON struct {
	Blocks int64    `json:"blocks"`
	Bytes  int64    `json:"bytes"`
	Age    *float64 `json:"age_seconds"`
}

// noticeJSON is one source's word that was not withdrawn.
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

// actionJSON is what became of one thing that a sidecar was to do.
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
	VaultRoom *int64   `json:"vault_room_bytes,omitempty"` // of these, for blocks of other stores than places; absent: not told
	Places    []string `json:"places,omitempty"`
	Advised   bool     `json:"advised,omitempty"`
}

func agentToJSON(s *api.AgentStatus, now time.Time) agentJSON {
	st := s.GetStatus()
	peers := make([]peerJSON, 0, len(s.GetPeers()))
	for _, p := range s.GetPeers() {
		peers = append(peers, peerJSON{p.GetNode(), p.GetAddress(), p.GetZone(), p.GetPool(), p.GetRoomBytes(), p.VaultRoomBytes, p.GetPlaces(), p.GetAdvised()})
	}
	role := "agent"
	if s.GetSidecar() {
		role = "sidecar"
	}
	notices := make([]noticeJSON, 0, len(s.GetNotices()))
	for _, n := range s.GetNotices() {
		notices = append(notices, noticeJSON{n.GetSource(), n.GetId(), n.GetKind(), n.GetStance(), api.Seconds(n.GetAge()), api.Seconds(n.GetRemaining()), n.GetAppointed(), n.GetReason()})
	}
	sources := make([]sourceJSON, 0, len(s.GetSources()))
	for _, h := range s.GetSources() {
		sources = append(sources, sourceJSON{h.GetSource(), h.GetPath(), api.Seconds(h.GetLastGood()), h.GetTrouble()})
	}
	actions := make([]actionJSON, 0, len(s.GetActions()))
	for _, a := range s.GetActions() {
		actions = append(actions, actionJSON{a.GetName(), a.GetPhase(), a.GetState(), api.Seconds(a.GetTook()), a.GetTrouble()})
	}
	return agentJSON{
		Role: role, Node: s.GetNode(), Version: s.GetVersion(), Incarnation: s.GetIncarnation(), StartedAt: api.Instant(s.GetStartedAt()),
		Notice: api.NoticeToJSON(st.GetNotice(), now), Drain: api.DrainToJSON(st.GetDrain()), Manifest: api.ManifestToJSON(s.GetManifest()),
		Disks: api.DisksToJSON(st.GetDisks()), RoomBytes: st.GetRoomBytes(), VaultRoom: api.VaultRoom(st), HeldBlocks: st.GetHeldBlocks(), Broken: st.GetBrokenBlocks(), HeldBytes: st.GetHeldBytes(),
		Unpacking:   unpackingJSON{s.GetUnpacking().GetBlocks(), s.GetUnpacking().GetBytes(), s.GetUnpacking().GetOccupiedBlocks()},
		Index:       indexJSON{s.GetIndex().GetBlocks(), s.GetIndex().GetBytes(), api.Seconds(s.GetIndex().GetAge())},
		Coordinator: coordinatorLink{s.GetCoordinator(), api.Seconds(s.GetLastHeartbeat()), s.GetCoordinatorTrouble()}, Fallback: fallbackToJSON(s.GetFallback()),
		Peers: peers, Provider: s.GetProvider(), Changes: api.Seconds(s.GetChanges()), Notices: notices, Sources: sources, Actions: actions,
		Evacuations: evacuationsToJSON(s.GetEvacuations()), Workloads: api.WorkloadsToJSON(st.GetWorkloads()), Stores: api.StoresToJSON(st.GetStores()),
		WaitsFor: append([]string{}, s.GetWaitsFor()...), CertificateEnds: api.Instant(s.GetCertificateEnds()),
	}
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
	return coordinatorJSON{"coordinator", s.GetName(), s.GetVersion(), s.GetLeader(), api.Instant(s.GetStartedAt()), nodes,
		located, s.GetBlocksLost(), s.GetLastIndex(), hostsToJSON(s.GetHosts()),
		s.GetLeaderName(), s.GetLeaderAddress(), s.GetTerm(), membersToJSON(s.GetMembers()),
		s.GetSuspects(), brakesToJSON(s.GetBrakes()), s.GetClocksApart(), s.GetSubscribers()}
}
