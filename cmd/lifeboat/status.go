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
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func statusCommand() *cobra.Command {
	var to reach
	var out show.Format
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
	out.Flag(cmd)
	show.WatchFlag(cmd, &watch)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		local, err := to.nearest()
		if err != nil {
			return err
		}
		if local {
			return look(cmd, to.agent, watch, "status", func(ctx context.Context, agent api.LocalClient, w io.Writer) error {
				s, err := agent.GetStatus(ctx, &api.GetAgentStatusRequest{})
				if err != nil {
					return err
				}
				if out == show.JSON {
					return show.WriteJSON(w, agentToJSON(s, time.Now()))
				}
				return printAgent(w, s)
			})
		}
		return look(cmd, to.operator, watch, "status", func(ctx context.Context, operator api.OperatorClient, w io.Writer) error {
			s, err := operator.GetStatus(ctx, &api.GetStatusRequest{})
			if err != nil {
				return err
			}
			if out == show.JSON {
				return show.WriteJSON(w, coordinatorToJSON(s))
			}
			return printCoordinator(w, s)
		})
	}
	return cmd
}

func printAgent(w io.Writer, s *api.AgentStatus) error {
	t := show.Table{Folded: true}
	t.Row("node", s.GetNode())
	t.Row("version", show.Dash(s.GetVersion()))
	t.Row("since", show.Instant(s.GetStartedAt()))
	if !s.GetSidecar() {
		coordinator := cmp.Or(s.GetCoordinator(), "none")
		if s.GetLastHeartbeat() == nil {
			coordinator += ", has not answered yet"
		} else {
			coordinator += ", answered " + show.Age(s.GetLastHeartbeat()) + " ago"
		}
		if s.GetCoordinatorTrouble() != "" {
			coordinator += ": " + coordinatorTrouble(s)
		}
		t.Row("coordinator", coordinator)
	}
	if f := s.GetFallback(); f != nil {
		t.Row("fallback", fallbackWords(f))
	}
	if trouble := s.GetDataDirTrouble(); trouble != "" {
		t.Row("data_dir", trouble)
	}
	t.Row("cloud", cmp.Or(s.GetProvider(), "none"))
	if ends := s.GetCertificateEnds(); ends != nil && overdue(s, time.Now()) {
		verb := "ends "
		if ends.AsTime().Before(time.Now()) {
			verb = "ended "
		}
		t.Row("certificate", verb+show.Instant(ends)+": lifeboat doctor says what to do")
	}
	statusRows(&t, s.GetStatus(), s.GetManifest(), s.GetSidecar())
	if u := s.GetUnpacking(); u != nil {
		what := fmt.Sprintf("%s, %s, to become files", show.Count(u.GetBlocks(), "block"), show.Size(u.GetBytes()))
		if n := u.GetOccupiedBlocks(); n > 0 {
			what += fmt.Sprintf("; other files have the names of %d", n)
		}
		t.Row("unpacking", what)
	}
	if x := s.GetIndex(); x != nil {
		t.Row("indexed", fmt.Sprintf("%s, %s, of plain files, as of %s ago", show.Count(x.GetBlocks(), "block"), show.Size(x.GetBytes()), show.Age(x.GetAge())))
	}
	t.List("waits for", orPeer(s.GetWaitsFor(), s.GetStatus().GetDrain())...)
	if s.GetChanges() != nil {
		t.Row("next", "goes further "+show.Left(s.GetChanges()))
	}
	if err := t.Print(w); err != nil {
		return err
	}
	if err := printNotices(w, s); err != nil {
		return err
	}
	if err := printParts(w, s.GetStatus()); err != nil {
		return err
	}
	peers := show.Table{Narrow: true}
	peers.Row("PEER", "ADDRESS", "ZONE", "POOL", "ROOM")
	for _, p := range s.GetPeers() {
		room := roomWords(p.GetRoomBytes(), p.VaultRoomBytes)
		if p.GetAdvised() {
			room += " (advised to go)"
		}
		peers.Row(p.GetNode(), show.Dash(p.GetAddress()), show.Dash(p.GetZone()), show.Dash(p.GetPool()), room)
	}
	return show.Sections(w, evacuationTable(s.GetEvacuations()), &peers)
}

// coordinatorTrouble returns what keeps an agent from its coordinator, without the address, which the line shows already.
func coordinatorTrouble(s *api.AgentStatus) string {
	return strings.TrimPrefix(s.GetCoordinatorTrouble(), "coordinator "+s.GetCoordinator()+": ")
}

// appsWidth keeps a list in a table short on a terminal.
const appsWidth = 30

// printNotices prints the notices, the actions that they led to, and the health of their sources.
func printNotices(w io.Writer, s *api.AgentStatus) error {
	sources, notices, actions := show.Table{Wordy: true}, show.Table{Wordy: true}, show.Table{Wordy: true}
	sources.Row("SOURCE", "PATH", "LAST GOOD", "TROUBLE")
	for _, h := range s.GetSources() {
		good := "never"
		if h.GetLastGood() != nil {
			good = show.Age(h.GetLastGood()) + " ago"
		}
		sources.Row(h.GetSource(), show.Dash(h.GetPath()), good, show.Dash(h.GetTrouble()))
	}
	notices.Row("NOTICE", "SOURCE", "SEEN", "DEADLINE", "GOES", "REASON")
	for _, n := range s.GetNotices() {
		notices.Row(n.GetKind(), n.GetSource(), show.Age(n.GetAge())+" ago", show.Left(n.GetRemaining()), n.GetStance(), show.Dash(n.GetReason()))
	}
	actions.Row("ACTION", "TOLD", "STATE", "TOOK", "TROUBLE")
	for _, a := range s.GetActions() {
		actions.Row(a.GetName(), show.Dash(a.GetPhase()), a.GetState(), show.Age(a.GetTook()), show.Dash(a.GetTrouble()))
	}
	return show.Sections(w, &notices, &actions, &sources)
}

// statusRows adds the rows of what an agent reports: the same from its coordinator and from its own socket.
func statusRows(t *show.Table, s *api.Status, m *api.ManifestSummary, sidecar bool) {
	if s == nil {
		t.Row("status", "not heard since the coordinator started")
		return
	}
	notice := "none"
	if n := s.GetNotice(); n != nil {
		notice = fmt.Sprintf("%s from %s, %s", n.GetKind(), n.GetSource(), cmp.Or(n.GetStance(), "watch"))
		if n.GetRemaining() != nil {
			notice += ", deadline " + show.Left(n.GetRemaining())
		}
		if n.GetReason() != "" {
			notice += ": " + n.GetReason()
		}
	}
	t.Row("notice", notice)
	if d := s.GetDrain(); d != nil {
		line := fmt.Sprintf("%s: %d of %s moved (%s of %s, %s/s), %d lost, %d skipped",
			d.GetPhase(), d.GetBlocksMoved(), show.Count(d.GetBlocksTotal(), "block"),
			show.Size(d.GetBytesMoved()), show.Size(d.GetBytesTotal()), show.Size(d.GetBytesPerSecond()), d.GetBlocksLost(), d.GetBlocksSkipped())
		if scanning(d) {
			line += ", looking for more"
		}
		t.Row("drain", line)
	}
	if m != nil {
		t.Row("last drain", summary(m))
	}
	if sidecar {
		return // it holds nothing
	}
	held := fmt.Sprintf("%s, %s, for others", show.Count(s.GetHeldBlocks(), "block"), show.Size(s.GetHeldBytes()))
	if takes := s.GetHeldTakenBytes(); takes > s.GetHeldBytes()+s.GetHeldBytes()/10 {
		held += fmt.Sprintf("; with names and records they take %s", show.Size(takes))
	}
	t.Row("held", held)
	if n := s.GetBrokenBlocks(); n > 0 {
		t.Row("broken", fmt.Sprintf("%s for others, found and removed since the start", show.Count(n, "block")))
	}
	t.Row("room", roomWords(s.GetRoomBytes(), s.VaultRoomBytes))
}

// printParts prints a table for each kind of part that a node has.
func printParts(w io.Writer, s *api.Status) error {
	working, trouble, disks, stores, peers := show.Table{Narrow: true}, show.Table{Folded: true}, show.Table{Narrow: true}, show.Table{}, show.Table{Narrow: true, Wordy: true}
	working.Row("WORKLOAD", "TYPE", "STATE", "SINCE", "PROCESSES", "AWAITED", "APPS")
	trouble.Row("WORKLOAD", "TROUBLE")
	for _, a := range s.GetWorkloads() {
		apps := strings.Join(a.GetApps(), ", ")
		working.Row(a.GetName(), a.GetType(), a.GetState(), show.Age(a.GetSince())+" ago", fmt.Sprint(a.GetProcesses()), yesNo(a.GetAwaited()),
			show.Cut(show.Dash(apps), show.RoomFor(w, appsWidth)))
		if a.GetTrouble() != "" {
			trouble.Row(a.GetName(), a.GetTrouble())
		}
	}
	disks.Row("DISK", "HEALTH", "TOTAL", "USABLE")
	for _, d := range s.GetDisks() {
		disks.Row(d.GetPath(), show.Dash(d.GetHealth()), show.Size(d.GetTotalBytes()), show.Size(d.GetUsableBytes()))
	}
	stores.Row("STORE", "KIND", "LAYOUT", "LAND")
	for _, st := range s.GetStores() {
		stores.Row(st.GetName(), show.Dash(st.GetKind()), show.Dash(st.GetLayout()), show.Dash(st.GetLand()))
	}
	peers.Row("SENT TO", "BLOCKS", "BYTES", "TROUBLE")
	for _, p := range s.GetDrain().GetPeers() {
		peers.Row(p.GetNode(), fmt.Sprint(p.GetBlocks()), show.Size(p.GetBytes()), show.Dash(p.GetTrouble()))
	}
	return show.Sections(w, &working, &trouble, &disks, &stores, &peers)
}

// brakesShown is how many brakes status has a line for.
const brakesShown = 4

func printCoordinator(w io.Writer, s *api.CoordinatorStatus) error {
	t := show.Table{Folded: true}
	t.Row("coordinator", s.GetName())
	t.Row("version", show.Dash(s.GetVersion()))
	leader := yesNo(s.GetLeader())
	if len(s.GetMembers()) > 0 && !s.GetLeader() {
		leader = cmp.Or(s.GetLeaderName(), "none known")
	}
	t.Row("leader", leader)
	if trouble := s.GetDiskTrouble(); trouble != "" {
		t.Row("DISK", trouble)
	}
	if len(s.GetMembers()) > 0 {
		t.Row("term", fmt.Sprint(s.GetTerm()))
	}
	t.Row("since", show.Instant(s.GetStartedAt()))
	var nodes []string
	for _, state := range slices.Sorted(maps.Keys(s.GetNodes())) {
		nodes = append(nodes, fmt.Sprintf("%d %s", s.GetNodes()[state], state))
	}
	t.Row("nodes", cmp.Or(strings.Join(nodes, ", "), "none"))
	if n := s.GetSuspects(); n > 0 {
		t.Row("suspects", fmt.Sprintf("%s silent: nothing is sent there", show.Count(n, "node")))
	}
	brakes := s.GetBrakes()
	for _, b := range brakes[:min(len(brakes), brakesShown)] { // the fleet's brake comes first; a fleet may have a hundred pools
		t.Row("BRAKE "+brakeName(b), brakeWords(b))
	}
	if more := len(brakes) - brakesShown; more > 0 {
		t.Row("", fmt.Sprintf("and %s: lifeboat brake", show.Count(int64(more), "more brake")))
	}
	if n := s.GetClocksApart(); n > 0 {
		t.Row("clocks", fmt.Sprintf("%s more than a second off: lifeboat node NAME says which way", show.Count(n, "node")))
	}
	if s.GetLeader() {
		t.Row("blocks", fmt.Sprintf("%d located, %d lost in drains", s.GetBlocksLocated(), s.GetBlocksLost()))
	} else { // nodes report which blocks they hold to the leader only
		t.Row("blocks", fmt.Sprintf("- located, %d lost in drains", s.GetBlocksLost()))
	}
	t.Row("last event", fmt.Sprint(s.GetLastIndex()))
	hostRows(&t, s.GetHosts())
	if err := t.Print(w); err != nil || len(s.GetMembers()) == 0 {
		return err
	}
	return show.Sections(w, memberTable(s.GetMembers()))
}
