package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func forgetCommand() *cobra.Command {
	var to reach
	var out show.Format
	var reason string
	cmd := &cobra.Command{
		Use:   "forget NODE...",
		Short: "Drop nodes that are LOST or GONE and never come back from the list",
		Long: `Drops nodes from the list, and what they were said to hold, at once rather than after forget_after: whoever asks for a block that
nobody else has is told that it is gone. Only a node that is LOST or GONE, and not heard, is forgotten; of several, all or none. What its
manifest names as lost stays so.

A LOST node that comes back after all is a new one: it is ACTIVE, and says anew what it has; an order that waited for it, and
deactivate, are forgotten with it. One that is GONE stays out. For a machine that must not come back, say lifeboat drain NODE
--max-grace-period 0 --mark-gone before.`,
		Example: `  lifeboat forget host-a --reason "terminated"
  lifeboat forget host-a host-b -o json`,
		ValidArgsFunction: to.completeNodes,
		Args:              someNamed("forget", "nodes"),
		RunE: func(cmd *cobra.Command, args []string) error {
			reply, err := call(cmd.Context(), to.operator, "forget "+strings.Join(args, ", "), api.OperatorClient.Forget, &api.ForgetRequest{Nodes: args, Reason: reason})
			if err != nil {
				return err
			}
			return printForgotten(cmd, out, reply.GetNodes())
		},
	}
	to.coordinatorFlags(cmd)
	out.Flag(cmd)
	reasonFlag(cmd, &reason)
	return cmd
}

// forgottenJSON is what was known of a forgotten node, as JSON.
type forgottenJSON struct {
	Node   string `json:"node"`
	ID     string `json:"id"`
	State  string `json:"state"`
	Blocks int64  `json:"blocks"`
}

func printForgotten(cmd *cobra.Command, out show.Format, nodes []*api.ForgottenNode) error {
	w := cmd.OutOrStdout()
	if out == show.JSON {
		return show.WriteJSON(w, api.ListToJSON(nodes, func(n *api.ForgottenNode) forgottenJSON {
			return forgottenJSON{n.GetNode(), n.GetId(), n.GetState(), n.GetBlocks()}
		}))
	}
	for _, n := range nodes {
		was := ""
		if n.GetState() != "" {
			was = fmt.Sprintf(": it was %s, and said to hold %s", n.GetState(), show.Count(n.GetBlocks(), "block"))
		}
		if _, err := fmt.Fprintln(w, show.Plain(n.GetNode()+" is forgotten"+was)); err != nil {
			return err
		}
	}
	return nil
}
