package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

// machines is the verb `maintenance down`, or `maintenance up`.
type machines struct {
	cmd    *cobra.Command
	to     reach
	out    show.Format
	up     bool
	left   timeout
	reason string
	wait   bool
}

func (v *machines) run(ctx context.Context, names []string) error {
	operator, l, err := v.to.operator()
	if err != nil {
		return err
	}
	defer l.Close()
	ask, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m, err := operator.GetMaintenance(ask, &api.GetMaintenanceRequest{})
	if err == nil {
		r := &api.ChangeMachinesRequest{Machines: scheduledAs(m, names), Up: v.up, Timeout: v.left.remaining(), Reason: v.reason}
		if none := withoutNode(m, r.GetMachines()); v.wait && len(none) > 0 {
			return notFoundf("maintenance %s: %s: without a node, or not in the maintenance schedule: nothing was carried, and nothing changed; "+
				"lifeboat nodes lists the names, lifeboat maintenance status what is scheduled", v.cmd.Name(), show.Plain(strings.Join(none, ", ")))
		}
		if m, err = operator.ChangeMachines(ask, r); err == nil && v.wait {
			return v.follow(ctx, operator, l, nodesOn(m, r.GetMachines()), names)
		}
	}
	if err != nil {
		return l.rpcError("maintenance "+v.cmd.Name(), err)
	}
	return printMachines(v.cmd.OutOrStdout(), v.out, m)
}

// follow waits until the nodes have left.
func (v *machines) follow(ctx context.Context, operator api.OperatorClient, l *link, nodes, names []string) error {
	fleet := &leavingNodes{operator: operator, link: l, names: nodes}
	w := newWaiter(v.cmd.ErrOrStderr(), "the decommission of "+strings.Join(nodes, ", "), "lifeboat maintenance up "+strings.Join(names, " ")+v.to.againFleet())
	w.again = "lifeboat decommission " + strings.Join(nodes, " ") + " --wait" + v.to.againFleet()
	ended, err := w.run(ctx, fleet.look)
	if err != nil {
		return err
	}
	ask, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	m, err := operator.GetMaintenance(ask, &api.GetMaintenanceRequest{})
	if err != nil {
		return l.rpcError("maintenance status", err)
	}
	return errors.Join(printMachines(v.cmd.OutOrStdout(), v.out, m), verdict("maintenance down", ended))
}

// nodesOn returns the names of the known nodes on the given machines.
func nodesOn(m *api.Maintenance, some []*api.Machine) (names []string) {
	for _, s := range m.GetMachines() {
		if !slices.ContainsFunc(some, func(id *api.Machine) bool { return machineName(id) == machineName(s.GetMachine()) }) {
			continue
		}
		for _, n := range s.GetNodes() {
			names = append(names, n.GetNode())
		}
	}
	return names
}

// withoutNode returns the names of the given machines that have no known node, so that there is nothing to wait for.
func withoutNode(m *api.Maintenance, some []*api.Machine) (names []string) {
	has := map[string]bool{}
	for _, s := range m.GetMachines() {
		has[machineName(s.GetMachine())] = len(s.GetNodes()) > 0
	}
	for _, id := range some {
		if name := machineName(id); !has[name] {
			names = append(names, name)
		}
	}
	return names
}

func machinesCommand(verb string, up bool) *cobra.Command {
	v := &machines{up: up}
	cmd := &cobra.Command{
		Use:  verb + " MACHINE...",
		Args: someNamed("maintenance "+verb, "machines"),
		RunE: func(cmd *cobra.Command, args []string) error {
			v.cmd = cmd
			return v.run(cmd.Context(), args)
		},
		ValidArgsFunction: v.to.completeNodes,
	}
	v.to.coordinatorFlags(cmd)
	v.out.Flag(cmd)
	reasonFlag(cmd, &v.reason)
	if up {
		cmd.Short = "Say that machines are worked on no more: their nodes are let in, and taken back"
		cmd.Long = `Says that machines which are DOWN are worked on no more. They go out of the schedule, their nodes are let in, and what maintenance had
leave is taken back. A node that somebody else had leave stays as it is: recommission is for those.`
		cmd.Example = "  lifeboat maintenance up host-a host-b"
		return cmd
	}
	cmd.Short = "Say that machines are being worked on: their nodes leave, and none is let in"
	cmd.Long = `Says that machines of the schedule are being worked on. Nodes that have not left leave now, with the time to carry what they have;
switch a machine off when maintenance status says that its node is DECOMMISSIONED, or --wait has ended with 0. Until maintenance up none of it is let in, also when
it is booted by mistake.

With --wait each machine must have a node: where one has none, as by a name that is mistyped, nothing is done, and the exit code is 3.`
	cmd.Example = `  lifeboat maintenance down host-a host-b --wait          # until all that they had is elsewhere
  lifeboat maintenance down host-c --timeout 5m
  lifeboat maintenance schedule --at now host-d && lifeboat maintenance down host-d`
	cmd.Flags().BoolVar(&v.wait, "wait", false, "stay until their nodes have left; exit 4 when something was lost or timed out")
	cmd.Flags().Var(&v.left, "timeout", "how long nodes have to leave (`TIME`: 90s, 10m, none); not given: what they have, or the coordinator's own")
	return cmd
}

// scheduledAs resolves names to machines of the schedule, by host name, IP address or node. A name that matches none is passed on for the
// coordinator to refuse.
func scheduledAs(m *api.Maintenance, names []string) []*api.Machine {
	all := machinesNamed(names)
	for i, name := range names {
		for _, s := range m.GetMachines() {
			id := s.GetMachine()
			is := strings.EqualFold(id.GetHostname(), name) || id.GetIp() == name
			for _, n := range s.GetNodes() {
				is = is || n.GetNode() == name
			}
			if is {
				all[i] = id
				break
			}
		}
	}
	return all
}
