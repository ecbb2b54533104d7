package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

// removeTimeout bounds a removal: to remove a million files in place takes a disk a minute or more.
const removeTimeout = 10 * time.Minute

func removeBlocksCommand() *cobra.Command {
	var to reach
	var app, from string
	cmd := &cobra.Command{
		Use:   "rm --app APP | --from NODE",
		Short: "Remove blocks that this machine holds for others",
		Long: `Has the agent of this machine remove what landed here from other nodes: the blocks of an app that is over, or those that came
from a node; with both, the node's blocks of the app. Their space comes back, and the coordinator is told that they are gone.
Who is reading a block reads it to its end. The files of the machine's own stores that did not come from others stay.

Without it they go by themselves once they were here for receive.keep.`,
		Example: `  lifeboat blocks rm --app app-20261120-0007
  lifeboat blocks rm --from host-a`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if app == "" && from == "" {
				return usagef("blocks rm: whose? give --app APP or --from NODE")
			}
			return ask(cmd.Context(), to.agent, "remove blocks", removeTimeout, func(ctx context.Context, agent api.LocalClient) error {
				reply, err := agent.RemoveBlocks(ctx, &api.RemoveBlocksRequest{App: app, From: from})
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "removed %s, %s\n", show.Count(reply.GetBlocks(), "block"), show.Size(reply.GetBytes()))
				return err
			})
		},
	}
	to.socketFlags(cmd)
	cmd.Flags().StringVar(&app, "app", "", "those of this `APP`, which their ids name")
	cmd.Flags().StringVar(&from, "from", "", "those that came from this `NODE`")
	return cmd
}
