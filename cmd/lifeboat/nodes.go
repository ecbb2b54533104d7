package main

import (
	"cmp"
	"context"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/preemption"
)

func nodesCommand() *cobra.Command {
	var to reach
	var out show.Format
	var watch, room bool
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes: state, notice, deadline, blocks moved, bytes held for others, room",
		Long: `Lists the nodes: state, notice, deadline, blocks moved of all, bytes held for others, room. Those that leave come first, the
earliest deadline before all, then those that are silent or have lost blocks, then whatever else is not as usual. JSON has them by name.
Blocks read 3/4+ while a node still looks for what it has: there may be more than 4.

With --room it lists zones and their pools in place of nodes: should all nodes of one go at once, as when a cloud wants a pool
back, what they have, and what the others have room for. What Spark's stores have is not counted before a drain, so they have that much at
least. It exits with 4 when something would find no room, and not each of them has a fallback.`,
		Example: `  lifeboat nodes
  lifeboat nodes --room
  lifeboat nodes --watch
  lifeboat nodes -o json | jq -r '.[] | select(.state == "LOST") | .name'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("nodes lists all: one is shown by lifeboat node %s", args[0])
			}
			return nil
		},
	}
	to.coordinatorFlags(cmd)
	out.Flag(cmd)
	show.WatchFlag(cmd, &watch)
	cmd.Flags().BoolVar(&room, "room", false, "list zones and pools: what they have, and what the others have room for")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var last []together
		err := look(cmd, to.operator, watch, "list nodes", func(ctx context.Context, operator api.OperatorClient, w io.Writer) error {
			reply, err := operator.ListNodes(ctx, &api.ListNodesRequest{})
			if err != nil {
				return err
			}
			if room {
				last = roomTogether(reply.GetNodes())
				return printRoom(w, out, last)
			}
			if out == show.Tables {
				slices.SortStableFunc(reply.GetNodes(), moreUrgent)
			}
			return printNodes(w, out, reply.GetNodes())
		})
		return cmp.Or(err, lostTogether(last))
	}
	return cmd
}

func nodeCommand() *cobra.Command {
	var to reach
	var out show.Format
	var watch bool
	cmd := &cobra.Command{
		Use:   "node NAME",
		Short: "Show all that the coordinator knows of one node",
		Example: `  lifeboat node host-a
  lifeboat node host-a --watch
  lifeboat node host-a -o json | jq .drain`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: to.completeNode,
	}
	to.coordinatorFlags(cmd)
	out.Flag(cmd)
	show.WatchFlag(cmd, &watch)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return look(cmd, to.operator, watch, "show node "+args[0], func(ctx context.Context, operator api.OperatorClient, w io.Writer) error {
			n, err := operator.GetNode(ctx, &api.GetNodeRequest{Node: args[0]})
			if err != nil {
				return err
			}
			if out == show.JSON {
				return show.WriteJSON(w, api.NodeToJSON(n))
			}
			return printNode(w, n)
		})
	}
	return cmd
}

// keyPatience is how long a completion may take: a person waits with a finger on the key.
const keyPatience = 2 * time.Second

// complete offers to the shell what the coordinator lists and args do not name yet. Errors offer nothing: completion is a convenience.
func (r *reach) complete(cmd *cobra.Command, args []string, list func(ctx context.Context, operator api.OperatorClient, offer func(name, about string))) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	operator, l, err := r.operator()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), keyPatience)
	defer cancel()
	list(ctx, operator, func(name, about string) {
		if !slices.Contains(args, name) {
			names = append(names, cobra.CompletionWithDesc(name, about))
		}
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeNodes offers the names of nodes to the shell.
func (r *reach) completeNodes(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return r.complete(cmd, args, func(ctx context.Context, operator api.OperatorClient, offer func(name, about string)) {
		reply, _ := operator.ListNodes(ctx, &api.ListNodesRequest{})
		for _, n := range reply.GetNodes() {
			offer(n.GetName(), nodeState(n))
		}
	})
}

func (r *reach) completeNode(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return r.completeNodes(cmd, args, prefix)
}

// nodeState returns a node's state with what qualifies it: the sub-state of a leaving node, or why an active node takes no blocks.
func nodeState(n *api.Node) string {
	facts := []string{n.GetState()}
	if sub := n.GetSubState(); sub != "" && sub != "NONE" && sub != n.GetState() {
		facts[0] += "/" + sub
	}
	if n.GetDeactivated() {
		facts = append(facts, "deactivated")
	}
	if n.GetExcluded() {
		facts = append(facts, "excluded")
	}
	if m := n.GetMaintenance(); m != "" && m != "UP" {
		facts = append(facts, strings.ToLower(m))
	}
	return strings.Join(facts, ",")
}

// departed reports whether the node has left and not come back since. A node that came back and fell silent is LOST or SHUTDOWN.
func departed(n *api.Node) bool {
	return n.GetState() == "DECOMMISSIONED" || n.GetState() == "GONE"
}

// drainOf returns how far a node's drain is: from its last heartbeat, or from its manifest if that came later, since a short drain ends
// before the next heartbeat. The manifest of a node that came back is history, and not used.
func drainOf(n *api.Node) *api.DrainProgress {
	d, m := n.GetStatus().GetDrain(), n.GetManifest()
	if m == nil || !departed(n) || d.GetPhase() == string(migration.PhaseDrained) || carriesMore(n) {
		return d
	}
	return &api.DrainProgress{
		Phase:       string(migration.PhaseDrained),
		BlocksTotal: m.GetMoved().GetBlocks() + m.GetLost().GetBlocks(),
		BlocksMoved: m.GetMoved().GetBlocks(), BlocksLost: m.GetLost().GetBlocks(), // as of a drain: see summary
		BytesTotal: m.GetMoved().GetBytes() + m.GetLost().GetBytes(), BytesMoved: m.GetMoved().GetBytes(),
	}
}

// carriesMore reports whether a node that has left carries what it lost or was written since, as it is still there: it says that more has
// moved than its manifest does.
func carriesMore(n *api.Node) bool {
	d := n.GetStatus().GetDrain()
	return departed(n) && d.GetPhase() != string(migration.PhaseDrained) && d.GetBlocksMoved() > n.GetManifest().GetMoved().GetBlocks()
}

// moreUrgent compares nodes for a stable sort, the more urgent first: a terminal has room for the first lines of a fleet only.
func moreUrgent(a, b *api.Node) int {
	rank := func(n *api.Node) int {
		switch {
		case n.GetState() == "DECOMMISSIONING":
			return 0
		case n.GetState() == "LOST", n.GetSuspect() != nil, departed(n) && drainOf(n).GetBlocksLost() > 0, carriesMore(n):
			return 1
		case departed(n):
			return 4
		case nodeState(n) == "ACTIVE" && n.GetStatus().GetNotice() == nil:
			return 3
		}
		return 2
	}
	left := func(n *api.Node) time.Duration {
		if r := remaining(n); r != nil {
			return r.AsDuration()
		}
		return math.MaxInt64
	}
	if by := cmp.Compare(rank(a), rank(b)); by != 0 || rank(a) > 0 {
		return by
	}
	return cmp.Compare(left(a), left(b))
}

// remaining returns the time to a node's deadline, or to the appointment of its machine that will be one; nil: none is known, or nothing is
// to happen any more, as the node has left and the deadline passed, or it is gone.
func remaining(n *api.Node) *durationpb.Duration {
	r := cmp.Or(n.GetRemaining(), n.GetStatus().GetNotice().GetRemaining())
	if start := n.GetMaintenanceStart(); r == nil && start != nil && n.GetMaintenance() == "DRAINING" && n.GetState() == "ACTIVE" {
		r = durationpb.New(start.AsTime().Sub(n.Clock()))
	}
	if n.GetState() == "GONE" || departed(n) && r.AsDuration() <= 0 {
		return nil
	}
	return r
}

func printNodes(w io.Writer, out show.Format, nodes []*api.Node) error {
	if out == show.JSON {
		return show.WriteJSON(w, api.ListToJSON(nodes, api.NodeToJSON))
	}
	t := show.Table{Narrow: true}
	t.Row("NAME", "STATE", "NOTICE", "DEADLINE", "BLOCKS", "HELD", "ROOM", "BEAT")
	for _, n := range nodes {
		st := n.GetStatus()
		blocks, held, room := "-", "-", "-"
		if d := drainOf(n); d != nil {
			blocks = movedOf(d)
		}
		if st != nil {
			held, room = show.Size(st.GetHeldBytes()), roomWords(st.GetRoomBytes(), st.VaultRoomBytes)
		}
		notice := show.Dash(st.GetNotice().GetKind())
		if st.GetNotice().GetSource() == preemption.SourceRehearsal {
			notice = "rehearsal" // the column has no room for the kind as well, which lifeboat node shows
		}
		state := nodeState(n)
		if show.WidthOf(w) < show.Width { // with both words, the line of a leaving node would lose how many blocks have gone
			state = strings.TrimPrefix(state, "DECOMMISSIONING/")
		}
		t.Row(n.GetName(), state, notice, show.Left(remaining(n)), blocks, held, room, show.Age(n.GetLastHeartbeat()))
		if waits := waitsFor(n); len(waits) > 0 {
			t.Below("waits for " + show.Some(waits, show.WidthOf(w)-len("  waits for ")))
		}
		if m := n.GetManifest(); departed(n) && m.GetLost().GetBlocks() > 0 && m.GetSource() != preemption.SourceRehearsal {
			lost := lostOf(m)
			if carriesMore(n) {
				lost += ", some of it is carried now"
			}
			t.Below(lost + ": lifeboat manifest " + n.GetName())
		}
	}
	return t.Print(w)
}

// waitsFor is what a node that leaves waits for: if for nothing else, for a peer, while none takes its blocks.
func waitsFor(n *api.Node) []string {
	if n.GetState() != "DECOMMISSIONING" {
		return n.GetWaitsFor()
	}
	return orPeer(n.GetWaitsFor(), n.GetStatus().GetDrain())
}

func orPeer(waits []string, d *api.DrainProgress) []string {
	if peer := missedPeer(d); peer != "" && len(waits) == 0 {
		return []string{peer}
	}
	return waits
}

func printNode(w io.Writer, n *api.Node) error {
	st := n.GetStatus()
	t := show.Table{Folded: true}
	t.Row("name", n.GetName())
	t.Row("id", show.Dash(n.GetId()))
	t.Row("state", nodeState(n))
	t.Row("schedulable", yesNo(n.GetSchedulable()))
	if n.GetDecommission() != "" {
		what := n.GetDecommission()
		if n.GetRemaining() != nil {
			what += ", deadline " + show.Left(n.GetRemaining())
		}
		if n.GetReason() != "" {
			what += ": " + n.GetReason()
		}
		t.Row("decommission", what)
	}
	if start := n.GetMaintenanceStart(); start != nil {
		what := n.GetMaintenance() + ", begins " + whenever(start.AsTime(), n.Clock())
		if long := n.GetMaintenanceDuration(); long != nil {
			what += ", for " + show.Span(long.AsDuration())
		}
		t.Row("maintenance", what)
	}
	t.List("waits for", waitsFor(n)...)
	t.Row("address", show.Dash(n.GetPeerAddress()))
	t.Row("incarnation", show.Dash(n.GetIncarnation()))
	t.Row("zone", show.Dash(n.GetZone()))
	t.Row("pool", show.Dash(n.GetPool()))
	t.Row("version", show.Dash(n.GetVersion()))
	beat := show.Age(n.GetLastHeartbeat()) + " ago"
	if n.GetLastHeartbeat() == nil {
		beat = "none since the coordinator began to lead"
	}
	if n.GetSuspect() != nil {
		beat += ": suspect for " + show.Span(n.GetSuspect().AsDuration())
	}
	t.Row("last beat", beat)
	if ahead := st.GetClockAhead(); ahead != nil && ahead.AsDuration().Abs() >= time.Second {
		off := " ahead of the coordinator's"
		if ahead.AsDuration() < 0 {
			off = " behind the coordinator's"
		}
		t.Row("clock", show.Span(ahead.AsDuration().Abs())+off)
	}
	statusRows(&t, st, n.GetManifest(), false)
	if err := t.Print(w); err != nil {
		return err
	}
	return printParts(w, st)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
