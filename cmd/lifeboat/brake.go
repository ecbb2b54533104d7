package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func brakeCommand() *cobra.Command {
	var to reach
	var out show.Format
	var watch bool
	cmd := &cobra.Command{
		Use:   "brake",
		Short: "Show what holds up the loss of nodes that fell silent together, and release it",
		Long: `Shows the brakes that hold. When too many nodes of the fleet, of a pool or of a zone are silent at once and none of them said
why, that is more often the network's doing than theirs: they stay suspects (nothing is sent to them, nothing of theirs counts as
lost) until they are heard again. When they are lost indeed, say so with lifeboat brake release.`,
		Example: `  lifeboat brake
  lifeboat brake --watch
  lifeboat brake release --reason "rack 7 burnt down"`,
		Args: cobra.NoArgs,
	}
	to.coordinatorFlags(cmd)
	out.Flag(cmd)
	show.WatchFlag(cmd, &watch)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return look(cmd, to.operator, watch, "brake", func(ctx context.Context, operator api.OperatorClient, w io.Writer) error {
			s, err := operator.GetStatus(ctx, &api.GetStatusRequest{OfLeader: true})
			if err != nil {
				return err
			}
			if out == show.JSON {
				return show.WriteJSON(w, api.ListToJSON(s.GetBrakes(), brakeToJSON))
			}
			if len(s.GetBrakes()) == 0 {
				_, err := fmt.Fprintf(w, "no brake holds (%s)\n", show.Count(s.GetSuspects(), "suspect"))
				return err
			}
			var t show.Table
			t.Row("BRAKE", "SUSPECTS", "NODES", "HOLDS FOR")
			for _, b := range s.GetBrakes() {
				t.Row(brakeName(b), fmt.Sprint(b.GetSuspects()), fmt.Sprint(b.GetNodes()), show.Age(b.GetAge()))
			}
			return t.Print(w)
		})
	}
	cmd.AddCommand(brakeReleaseCommand())
	return cmd
}

func brakeReleaseCommand() *cobra.Command {
	var to reach
	var out show.Format
	var reason string
	cmd := &cobra.Command{
		Use:   "release",
		Short: "Let the nodes be lost that a brake holds now",
		Long: `Lets the nodes be lost that a brake holds now: at once those that have been silent for a lease, the others when they have. One
that is heard before is not. Nodes that fall silent later meet the brake anew.`,
		Example: `  lifeboat brake release --reason "rack 7 burnt down"`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reply, err := call(cmd.Context(), to.operator, "brake release", api.OperatorClient.ReleaseBrake, &api.ReleaseBrakeRequest{Reason: reason})
			if err != nil {
				return err
			}
			if out == show.JSON {
				return show.WriteJSON(cmd.OutOrStdout(), releasedJSON{append([]string{}, reply.GetNodes()...)})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "lost now: %s\n", show.Dash(strings.Join(reply.GetNodes(), ", ")))
			return err
		},
	}
	to.coordinatorFlags(cmd)
	out.Flag(cmd)
	reasonFlag(cmd, &reason)
	return cmd
}

func brakeName(b *api.Brake) string {
	return strings.TrimSpace(b.GetScope() + " " + b.GetName())
}

// brakeWords is the line of lifeboat status about a brake that holds. Nobody should miss it.
func brakeWords(b *api.Brake) string {
	return fmt.Sprintf("HOLDS for %s: %d of %s silent, none is LOST before lifeboat brake release", show.Age(b.GetAge()), b.GetSuspects(), show.Count(b.GetNodes(), "node"))
}

type brakeJSON struct {
	Scope    string   `json:"scope"`
	Name     string   `json:"name"`
	Suspects int64    `json:"suspects"`
	Nodes    int64    `json:"nodes"`
	Age      *float64 `json:"age_seconds"`
}

type releasedJSON struct {
	Nodes []string `json:"nodes"` // that are LOST now
}

func brakeToJSON(b *api.Brake) brakeJSON {
	return brakeJSON{b.GetScope(), b.GetName(), b.GetSuspects(), b.GetNodes(), api.Seconds(b.GetAge())}
}
