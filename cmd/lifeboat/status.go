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
	if trouble := s.GetDataDirTrouble(); trouble != "" {
		t.row("data_dir", trouble)
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

// brakesShown is how many brakes status has a line for.
const brakesShown = 4

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
	brakes := s.GetBrakes()
	for _, b := range brakes[:min(len(brakes), brakesShown)] { // the whole fleet's first: a fleet may have a hundred pools
		t.row("BRAKE "+brakeName(b), brakeWords(b))
	}
	if more := len(brakes) - brakesShown; more > 0 {
		t.row("", fmt.Sprintf("and %s: lifeboat brake", count(int64(more), "more brake")))
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
