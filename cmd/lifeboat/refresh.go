package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func refreshNodesCommand() *cobra.Command {
	var r refresh
	cmd := &cobra.Command{
		Use:   "refresh-nodes [--graceful[=SECS]] [--client | --server]",
		Short: "Have the coordinator read its host files again, and do what they say",
		Long: `Has the coordinator read its include and exclude files again (hosts.include, hosts.exclude) and do what they say, for all
nodes in one decision. A file with a fault is refused whole, with its line and the reason: the lists in force stay.

Without --graceful, excluded nodes are decommissioned at once, and what they hold is not carried away. With it they drain:
for as long as the file gives the host (XML only), else SECS, else the coordinator's decommission_timeout. SECS is in seconds;
0 is at once, -1 (or any negative number) without limit. Another time for a node that is leaving moves its deadline and
starts no new clock.

With --client the verb stays, shows what each node waits for, and ends those that are not done some seconds after SECS.
Interrupted, it leaves them to the coordinator's clock. With --server, or neither, it returns at once.`,
		Example: `  lifeboat refresh-nodes --graceful
  lifeboat refresh-nodes --graceful=600 --client
  lifeboat refresh-nodes --graceful=-1 --server`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 && r.graceful.given {
				return usagef("refresh-nodes: it takes no %q: the seconds follow a sign of equality, as in --graceful=%s", args[0], args[0])
			}
			if len(args) > 0 {
				return usagef("refresh-nodes: it takes no %q: which nodes is said by the coordinator's host files", args[0])
			}
			if r.client && r.server {
				return usagef("refresh-nodes: --client waits and --server does not: say one")
			}
			if r.client && !r.graceful.given {
				return usagef("refresh-nodes: --client waits for nodes that drain: say --graceful")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.cmd = cmd
			return r.run(cmd.Context())
		},
	}
	r.to.coordinatorFlags(cmd)
	r.out.Flag(cmd)
	f := cmd.Flags()
	f.Var(&r.graceful, "graceful", "let excluded nodes drain, for `SECS` where the file says nothing else; -1: without limit")
	f.Lookup("graceful").NoOptDefVal = gracefulDefault
	reasonFlag(cmd, &r.reason)
	f.BoolVar(&r.client, "client", false, "stay until the nodes are decommissioned; exit 4 when something was lost or timed out")
	f.BoolVar(&r.server, "server", false, "return at once, and leave the clock to the coordinator (the default)")
	return cmd
}

type refresh struct {
	cmd            *cobra.Command
	to             reach
	out            show.Format
	graceful       graceful
	reason         string
	client, server bool
}

func (r *refresh) run(ctx context.Context) error {
	operator, l, err := r.to.operator()
	if err != nil {
		return err
	}
	defer l.Close()
	ask, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reply, err := operator.RefreshNodes(ask, &api.RefreshNodesRequest{Graceful: r.graceful.given, Timeout: r.graceful.timeout, Reason: r.reason})
	if err != nil {
		return l.rpcError("refresh nodes", err)
	}
	var ended []leaving
	if r.client {
		if ended, err = r.wait(ctx, operator, l, reply); err != nil {
			return err
		}
	}
	if err := printRefreshed(r.cmd.OutOrStdout(), r.out, reply); err != nil {
		return err
	}
	return verdict("refresh-nodes", ended)
}

// clientGrace is how long after the timeout the client ends the nodes that are left. YARN's RMAdminCLI waits as long, so that it does not
// race the server, whose clock runs out at the timeout.
const clientGrace = 5 * time.Second

// wait returns when every node that leaves has left, and puts their last states into reply.
func (r *refresh) wait(ctx context.Context, operator api.OperatorClient, l *link, reply *api.RefreshNodesReply) ([]leaving, error) {
	fleet := &leavingNodes{operator: operator, link: l}
	for _, n := range reply.GetNodes() {
		if n.GetNode().GetState() == "DECOMMISSIONING" || n.GetAction() == "force" { // a forced node has left already; the exit code tells its losses
			fleet.names = append(fleet.names, n.GetNode().GetName())
		}
	}
	if len(fleet.names) == 0 {
		return nil, nil
	}
	c := &clientClock{leavingNodes: fleet}
	if after := reply.GetTimeout().AsDuration(); after >= 0 {
		c.at = time.Now().Add(after + clientGrace)
	}
	names := strings.Join(fleet.names, ", ")
	ended, err := newWaiter(r.cmd.ErrOrStderr(), "", "").run(ctx, c.look)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("detached: the decommission of %s goes on by the coordinator's clock; `lifeboat refresh-nodes %s --client%s` shows it again; to take it back, take them out of %s and run lifeboat refresh-nodes%[3]s",
			names, r.graceful.flag(), r.to.againFleet(), cmp.Or(reply.GetHosts().GetExcludeFile(), reply.GetHosts().GetIncludeFile()))
	}
	if err != nil {
		return nil, err
	}
	for _, now := range fleet.last {
		for _, n := range reply.Nodes {
			if n.GetNode().GetName() == now.GetName() {
				n.Node = now
			}
		}
	}
	return ended, nil
}

// clientClock observes leaving nodes and at a set time forces those that are left: only nodes that it waits for, and only while they are
// still leaving.
type clientClock struct {
	*leavingNodes
	at time.Time // zero: never, or done
}

func (c *clientClock) look(ctx context.Context) ([]leaving, error) {
	seen, err := c.leavingNodes.look(ctx)
	if err != nil || c.at.IsZero() || time.Now().Before(c.at) {
		return seen, err
	}
	var late []string
	for _, n := range seen {
		if !n.ended {
			late = append(late, n.node)
		}
	}
	if len(late) == 0 {
		return seen, nil
	}
	_, err = c.operator.Decommission(ctx, &api.DecommissionRequest{Nodes: late, Timeout: durationpb.New(0), LeavingOnly: true})
	if err != nil {
		return nil, c.link.away("end what is left", err)
	}
	c.at = time.Time{}
	return seen, nil
}

type refreshJSON struct {
	Hosts *hostsJSON      `json:"hosts"`
	Nodes []refreshedJSON `json:"nodes"`
}

type refreshedJSON struct {
	Node     string     `json:"node"`
	Action   string     `json:"action"` // "": the node was leaving already
	State    string     `json:"state"`
	SubState string     `json:"sub_state"`
	WaitsFor []string   `json:"waits_for"`
	Deadline *time.Time `json:"deadline"`
	Seconds  *float64   `json:"remaining_seconds"`
}

type hostsJSON struct {
	IncludeFile string     `json:"include_file"`
	ExcludeFile string     `json:"exclude_file"`
	Included    int64      `json:"included"`
	Excluded    int64      `json:"excluded"`
	Maintenance int64      `json:"maintenance"`
	Since       *time.Time `json:"since"`
	Trouble     string     `json:"trouble"`
}

func hostsToJSON(h *api.HostLists) *hostsJSON {
	if h == nil {
		return nil
	}
	return &hostsJSON{h.GetIncludeFile(), h.GetExcludeFile(), h.GetIncluded(), h.GetExcluded(), h.GetMaintenance(), api.Instant(h.GetSince()), h.GetTrouble()}
}

func refreshedToJSON(r *api.RefreshedNode) refreshedJSON {
	n := r.GetNode()
	return refreshedJSON{
		Node: n.GetName(), Action: r.GetAction(), State: n.GetState(), SubState: n.GetSubState(),
		WaitsFor: append([]string{}, n.GetWaitsFor()...), Deadline: api.Instant(n.GetDeadline()), Seconds: api.Seconds(n.GetRemaining()),
	}
}

func printRefreshed(w io.Writer, out show.Format, reply *api.RefreshNodesReply) error {
	if out == show.JSON {
		return show.WriteJSON(w, refreshJSON{hostsToJSON(reply.GetHosts()), api.ListToJSON(reply.GetNodes(), refreshedToJSON)})
	}
	if len(reply.GetNodes()) > 0 {
		t := show.Table{Narrow: true}
		t.Row("NAME", "ACTION", "STATE", "DEADLINE")
		for _, r := range reply.GetNodes() {
			t.Row(r.GetNode().GetName(), show.Dash(r.GetAction()), nodeState(r.GetNode()), show.Left(r.GetNode().GetRemaining()))
		}
		if err := t.Print(w); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, show.Plain(hostsLine(reply.GetHosts())))
	return err
}

// hostRows adds the rows about the host lists to the coordinator's status.
func hostRows(t *show.Table, h *api.HostLists) {
	if h == nil {
		return
	}
	t.Row("hosts", hostsLine(h)+", since "+show.Instant(h.GetSince()))
	if h.GetTrouble() != "" {
		t.Row("host files", h.GetTrouble())
	}
}

// hostsLine says which lists are in force.
func hostsLine(h *api.HostLists) string {
	var parts []string
	if h.GetIncludeFile() != "" {
		parts = append(parts, fmt.Sprintf("%d included by %s", h.GetIncluded(), h.GetIncludeFile()))
	}
	parts = append(parts, fmt.Sprintf("%d excluded", h.GetExcluded()))
	if h.GetExcludeFile() != "" {
		parts[len(parts)-1] += " by " + h.GetExcludeFile()
	}
	if h.GetMaintenance() > 0 {
		parts = append(parts, fmt.Sprintf("%d under maintenance", h.GetMaintenance()))
	}
	return strings.Join(parts, ", ")
}

// graceful is --graceful: not given, given alone, or with seconds.
type graceful struct {
	given   bool
	timeout *durationpb.Duration // nil: the coordinator's
}

const gracefulDefault = "default"

// mostSeconds is thirty days, the limit of the coordinator's own timeout.
const mostSeconds = 30 * 24 * 60 * 60

func (g *graceful) Type() string { return "SECS" }

func (g *graceful) String() string {
	switch {
	case !g.given:
		return ""
	case g.timeout == nil:
		return gracefulDefault
	}
	return strconv.FormatInt(g.timeout.GetSeconds(), 10)
}

// flag returns the flag as it was given, to be repeated in another command.
func (g *graceful) flag() string {
	if g.timeout == nil {
		return "--graceful"
	}
	return "--graceful=" + g.String()
}

func (g *graceful) Set(s string) error {
	if s == gracefulDefault {
		*g = graceful{given: true}
		return nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > mostSeconds {
		return fmt.Errorf("want whole seconds from 0 to %d, or -1 for no limit", mostSeconds)
	}
	*g = graceful{given: true, timeout: durationpb.New(time.Duration(max(n, -1)) * time.Second)} // to YARN every negative number is the same
	return nil
}
