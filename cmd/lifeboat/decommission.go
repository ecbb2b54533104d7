package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func decommissionCommand() *cobra.Command {
	var d decommission
	cmd := &cobra.Command{
		Use:   "decommission [--self | NODE[=TIME]...]",
		Short: "Let nodes leave: carry their blocks to peers, then let the machines go",
		Long: `Lets nodes leave: their workloads are told, their blocks are carried to peers, and what is left at the deadline is named
as lost. All nodes named together leave together: no block is carried to a node that leaves as well.

A node has the TIME given with it, as in host-a=10m, else that of --timeout, else the coordinator's decommission_timeout. With 0
it is decommissioned at once; with none there is no limit. Another time for a node that is leaving moves its deadline and
starts no new clock. A node that is LOST, or away for a restart, is ordered too: it drains, with all of its time, once it is back.

With --wait the verb shows each node's sub-state, what it waits for, how far it is and the time left, until all are done.
Interrupted, it leaves the nodes to it and says how to look again and how to undo.

With --self the agent of this machine hears it on its socket, and needs no coordinator for it.`,
		Example: `  lifeboat decommission host-a host-b --timeout 10m --wait
  lifeboat decommission --self --timeout 90s --reason "kernel update"
  lifeboat decommission host-a=2h host-b host-c=none --timeout 10m
  lifeboat decommission host-a --timeout none`,
		ValidArgsFunction: d.to.completeNodes,
		Args:              nodesOrSelf("decommission", &d.self),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.cmd = cmd
			if d.self {
				return d.leave(cmd.Context())
			}
			return d.send(cmd.Context(), args)
		},
	}
	d.to.coordinatorFlags(cmd)
	d.to.socketFlags(cmd)
	d.out.Flag(cmd)
	f := cmd.Flags()
	f.BoolVar(&d.self, "self", false, "this machine, by its agent's socket")
	f.Var(&d.timeout, "timeout", "`TIME` after which what is left is given up, as 90s or 10m; 0: at once; none: never (default: the coordinator's, or none with --self)")
	f.StringVar(&d.reason, "reason", "", "`TEXT` kept with the decommission and shown to those who ask")
	f.BoolVar(&d.wait, "wait", false, "stay until the nodes are decommissioned; exit 4 when something was lost or timed out")
	return cmd
}

func nodesOrSelf(verb string, self *bool) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case *self && len(args) > 0:
			return usagef("%s: --self means this machine: name no nodes beside it", verb)
		case !*self && len(args) == 0:
			return usagef("%s: name the nodes, or say --self", verb)
		}
		return nil
	}
}

func drainCommand() *cobra.Command {
	d := decommission{drain: true}
	cmd := &cobra.Command{
		Use:   "drain NODE[=TIME]...",
		Short: "Let nodes leave to be worked on, or never to come back",
		Long: `Lets nodes leave as decommission does, and deactivates them: one that comes back, because its machine was booted, is given nothing
until lifeboat reactivate. That also takes a drain back that has not ended.

With --mark-gone a node is GONE once it has left, or its time is up: it is never let in again under its identity, whatever the
name. That cannot be taken back.`,
		Example: `  lifeboat drain host-a --max-grace-period 10m --wait
  lifeboat reactivate host-a
  lifeboat drain host-b --mark-gone --wait`,
		ValidArgsFunction: d.to.completeNodes,
		Args:              someNamed("drain", "nodes"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.cmd = cmd
			return d.send(cmd.Context(), args)
		},
	}
	d.to.coordinatorFlags(cmd)
	d.out.Flag(cmd)
	f := cmd.Flags()
	f.Var(&d.timeout, "max-grace-period", "`TIME` after which what is left is given up, as 90s or 10m; 0: at once; none: never (default: the coordinator's)")
	f.BoolVar(&d.gone, "mark-gone", false, "never let them in again")
	f.BoolVar(&d.wait, "wait", false, "stay until the nodes have left; exit 4 when something was lost or timed out")
	reasonFlag(cmd, &d.reason)
	return cmd
}

type decommission struct {
	cmd     *cobra.Command
	to      reach
	out     show.Format
	self    bool
	timeout timeout
	reason  string
	wait    bool
	drain   bool
	gone    bool
}

func (d *decommission) verb() string {
	if d.drain {
		return "drain"
	}
	return "decommission"
}

// send has the coordinator order nodes to leave.
func (d *decommission) send(ctx context.Context, args []string) error {
	nodes, own, err := nodeTimes(d.verb(), args)
	if err != nil {
		return err
	}
	operator, l, err := d.to.operator()
	if err != nil {
		return err
	}
	defer l.Close()
	ask, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	names := strings.Join(nodes, ", ")
	reply, err := operator.Decommission(ask, &api.DecommissionRequest{
		Nodes: nodes, Timeout: d.timeout.remaining(), Timeouts: own,
		Reason: d.reason, Drain: d.drain, MarkGone: d.gone,
	})
	if err != nil {
		return l.rpcError(d.verb()+" "+names, err)
	}
	stdout, stderr := d.cmd.OutOrStdout(), d.cmd.ErrOrStderr()
	for _, n := range reply.GetNodes() {
		if note := notOrdered(n, cmp.Or(own[n.GetName()], d.timeout.remaining()), d.gone); note != "" {
			fmt.Fprintln(stderr, show.Plain(note))
		}
	}
	if !d.wait {
		return printNodes(stdout, d.out, reply.GetNodes())
	}
	fleet := &leavingNodes{operator: operator, link: l, names: nodes}
	undo := "recommission"
	if d.drain {
		undo = "reactivate"
	}
	w := newWaiter(stderr, "the decommission of "+names, "lifeboat "+undo+" "+strings.Join(nodes, " ")+d.to.againFleet())
	w.again = "lifeboat decommission " + strings.Join(nodes, " ") + " --wait" + d.to.againFleet() // without the timeout, which another may have changed by then
	ended, err := w.run(ctx, fleet.look)
	if err != nil {
		return err
	}
	if err := printNodes(stdout, d.out, fleet.last); err != nil {
		return err
	}
	return verdict(d.verb(), ended)
}

// nodeTimes splits the arguments NODE and NODE=TIME into the nodes, and the timeouts of the nodes that have their own.
func nodeTimes(verb string, args []string) (nodes []string, own map[string]*durationpb.Duration, err error) {
	for _, arg := range args {
		name, word, timed := strings.Cut(arg, "=")
		if slices.Contains(nodes, name) {
			return nil, nil, usagef("%s: %s is named twice: name it once", verb, name)
		}
		nodes = append(nodes, name)
		if !timed {
			continue
		}
		var t timeout
		if err := t.Set(word); err != nil {
			return nil, nil, usagef("%s: %s: %v", verb, arg, err)
		}
		if own == nil {
			own = map[string]*durationpb.Duration{}
		}
		own[name] = t.remaining()
	}
	return nodes, own, nil
}

// notOrdered says why an order with that timeout, and to be GONE or not, does not make a node leave now; empty: it does.
func notOrdered(n *api.Node, timeout *durationpb.Duration, gone bool) string {
	switch state := n.GetState(); state {
	case "DECOMMISSIONED", "GONE":
		if (timeout == nil || timeout.AsDuration() != 0) && !(gone && state == "GONE") {
			return n.GetName() + " is " + state + ": nothing more was asked of it"
		}
	case "LOST", "SHUTDOWN":
		return n.GetName() + " is " + state + ": the order waits until it is back"
	}
	return ""
}

// leave says DecommissionSelf to this machine's agent, as the script decommission-self does.
func (d *decommission) leave(ctx context.Context) error {
	agent, l, err := d.to.agent()
	if err != nil {
		return err
	}
	defer l.Close()
	ask, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req := &api.DecommissionSelfRequest{Reason: d.reason}
	if !d.timeout.none {
		req.Timeout = d.timeout.remaining()
	}
	reply, err := agent.DecommissionSelf(ask, req)
	if err != nil {
		return l.rpcError("decommission this machine", err)
	}
	stdout, stderr := d.cmd.OutOrStdout(), d.cmd.ErrOrStderr()
	if !d.wait {
		if d.out == show.JSON {
			return show.WriteJSON(stdout, incidentJSON{reply.GetIncident(), api.Seconds(reply.GetRemaining())})
		}
		_, err := fmt.Fprintf(stdout, "%s: deadline %s\n", reply.GetIncident(), show.Left(reply.GetRemaining()))
		return err
	}
	self := &leavingSelf{agent: agent, link: l, incident: reply.GetIncident()}
	w := newWaiter(stderr, "the decommission of this machine", "lifeboat cancel"+d.to.again())
	w.again = "lifeboat decommission --self --wait" + d.to.again()
	w.patience = selfPatience
	ended, err := w.run(ctx, self.look)
	if err != nil {
		return err
	}
	m := api.ManifestToJSON(self.last.GetManifest())
	if ended[0].verdict == exitFailed {
		return verdict(d.verb(), ended) // the decommission was taken back, so there is no account
	}
	if d.out == show.JSON {
		err = show.WriteJSON(stdout, m)
	} else if m != nil {
		_, err = fmt.Fprintf(stdout, "%s: %s\n", self.last.GetNode(), summary(self.last.GetManifest()))
	}
	if err != nil {
		return err
	}
	return verdict(d.verb(), ended)
}

// incidentJSON is a decommission that this machine was asked for.
type incidentJSON struct {
	Incident  string   `json:"incident"`
	Remaining *float64 `json:"remaining_seconds"` // null: without limit
}

// verdict is the outcome of a verb that waited: nil, or an error with the worst exit code of a node and what befell each.
func verdict(verb string, ended []leaving) error {
	var bad []string
	code := exitDone
	for _, e := range ended {
		if e.verdict != exitDone {
			why := e.node + ": " + e.why
			if e.lost {
				why += fmt.Sprintf(" (lifeboat manifest %s says which, and why)", e.node)
			}
			bad = append(bad, why)
			code = max(code, e.verdict)
		}
	}
	if code == exitDone {
		return nil
	}
	return &exitError{code, fmt.Errorf("%s: %s", verb, strings.Join(bad, "; "))}
}

func recommissionCommand() *cobra.Command {
	var to reach
	var out show.Format
	var self bool
	var reason string
	cmd := &cobra.Command{
		Use:   "recommission [--self | NODE...]",
		Short: "Take back a decommission: the nodes stay and take blocks again",
		Example: `  lifeboat recommission host-a host-b
  lifeboat recommission --self`,
		ValidArgsFunction: to.completeNodes,
		Args:              nodesOrSelf("recommission", &self),
		RunE: func(cmd *cobra.Command, args []string) error {
			if self {
				return cancelSelf(cmd, &to, out, reason)
			}
			reply, err := call(cmd.Context(), to.operator, "recommission "+strings.Join(args, ", "), api.OperatorClient.Recommission,
				&api.RecommissionRequest{Nodes: args, Reason: reason})
			if err != nil {
				return err
			}
			return printNodes(cmd.OutOrStdout(), out, reply.GetNodes())
		},
	}
	to.coordinatorFlags(cmd)
	to.socketFlags(cmd)
	out.Flag(cmd)
	cmd.Flags().BoolVar(&self, "self", false, "this machine, by its agent's socket: the same as cancel")
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` kept with what was asked, for lifeboat audit, or with --self for the agent's log")
	return cmd
}

func cancelCommand() *cobra.Command {
	var to reach
	var out show.Format
	var reason string
	cmd := &cobra.Command{
		Use:   "cancel",
		Short: "Withdraw this machine's own decommission; a cloud's notice stays",
		Long: `Withdraws what decommission --self (or the decommission-self script) said on this machine. Exits 3 when there is nothing
to withdraw, and 1 when something else still makes the machine leave, such as the cloud's own notice.`,
		Example: `  lifeboat cancel
  lifeboat cancel --reason "the update was called off"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cancelSelf(cmd, &to, out, reason) },
	}
	to.socketFlags(cmd)
	out.Flag(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` for the agent's log")
	return cmd
}

type cancelledJSON struct {
	Cancelled bool   `json:"cancelled"`
	Still     string `json:"still"` // why the machine leaves nevertheless
}

func cancelSelf(cmd *cobra.Command, to *reach, out show.Format, reason string) error {
	reply, err := call(cmd.Context(), to.agent, "cancel", api.LocalClient.Cancel, &api.CancelRequest{Reason: reason})
	if err != nil {
		return err
	}
	if out == show.JSON {
		err = show.WriteJSON(cmd.OutOrStdout(), cancelledJSON{reply.GetCancelled(), reply.GetStill()})
	} else if reply.GetCancelled() {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "withdrawn")
	}
	switch {
	case err != nil:
		return err
	case reply.GetStill() != "":
		return fmt.Errorf("cancel: the machine still leaves: %s", show.Plain(reply.GetStill()))
	case !reply.GetCancelled():
		return notFoundf("cancel: nothing to withdraw: no decommission was said on this machine")
	}
	return nil
}

// timeout is --timeout: a time, "none", or not given.
type timeout struct {
	given, none bool
	after       time.Duration
}

func (t *timeout) Type() string { return "TIME" }

func (t *timeout) String() string {
	switch {
	case !t.given:
		return ""
	case t.none:
		return "none"
	}
	return t.after.String()
}

func (t *timeout) Set(s string) error {
	if s == "none" {
		*t = timeout{given: true, none: true}
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return fmt.Errorf("want a time such as 90s or 10m, or none")
	}
	*t = timeout{given: true, after: d}
	return nil
}

// remaining is the timeout in a request: nil leaves it to the coordinator, negative means no limit.
func (t *timeout) remaining() *durationpb.Duration {
	switch {
	case !t.given:
		return nil
	case t.none:
		return durationpb.New(-time.Second)
	}
	return durationpb.New(t.after)
}
