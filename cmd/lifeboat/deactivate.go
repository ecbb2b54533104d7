package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func deactivateCommand() *cobra.Command {
	cmd := cordonCommand("deactivate", false)
	cmd.Short = "Give nodes nothing new: no blocks land there, and they are not schedulable"
	cmd.Long = `Gives nodes nothing new until reactivate. They stay, keep what they have and serve it, and what runs there goes on; a
notice of the cloud is heeded as ever. In nodes they are ACTIVE,deactivated; programs see that they are not schedulable, and
nodes that leave send them nothing. It holds through restarts of the node and of the coordinators, and ends where another
machine comes under the name.`
	cmd.Example = `  lifeboat deactivate host-a --reason "errors in its memory"
  lifeboat deactivate host-a host-b -o json`
	return cmd
}

func reactivateCommand() *cobra.Command {
	cmd := cordonCommand("reactivate", true)
	cmd.Short = "Take back deactivate: nodes take blocks and work again"
	cmd.Example = `  lifeboat reactivate host-a host-b`
	return cmd
}

func cordonCommand(verb string, undo bool) *cobra.Command {
	var to reach
	var out show.Format
	var reason string
	cmd := &cobra.Command{
		Use:               verb + " NODE...",
		ValidArgsFunction: to.completeNodes,
		Args:              someNamed(verb, "nodes"),
		RunE: func(cmd *cobra.Command, args []string) error {
			reply, err := call(cmd.Context(), to.operator, verb+" "+strings.Join(args, ", "), api.OperatorClient.Deactivate,
				&api.DeactivateRequest{Nodes: args, Reason: reason, Undo: undo})
			if err != nil {
				return err
			}
			return printNodes(cmd.OutOrStdout(), out, reply.GetNodes())
		},
	}
	to.coordinatorFlags(cmd)
	out.Flag(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` kept with what was asked, for lifeboat audit and events")
	return cmd
}
