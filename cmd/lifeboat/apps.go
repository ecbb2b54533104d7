package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func appsCommand() *cobra.Command {
	var to reach
	var out show.Format
	var watch, all bool
	cmd := &cobra.Command{
		Use:   "apps",
		Short: "List the applications: which run and which are over, where, and what is held of them",
		Long: `Lists the applications that blocks belong to: those that beat or were ended, those that the nodes' workloads run, and those of
which nodes hold blocks. UNKNOWN are those that nobody speaks for: they are never taken for over.

What landed of an application that is over is removed from its holders within seconds, and drains leave its blocks behind.`,
		Example: `  lifeboat apps
  lifeboat apps --watch
  lifeboat apps -o json | jq -r '.[] | select(.state == "OVER" and .held_blocks > 0) | .app'
  lifeboat apps end application_1795493514662_0001`,
		Args: cobra.NoArgs,
	}
	to.coordinatorFlags(cmd)
	out.Flag(cmd)
	show.WatchFlag(cmd, &watch)
	cmd.Flags().BoolVar(&all, "all", false, "in the table, too, those that are over and have nothing left")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return look(cmd, to.operator, watch, "list apps", func(ctx context.Context, operator api.OperatorClient, w io.Writer) error {
			apps, err := listApps(ctx, operator)
			if err != nil {
				return err
			}
			left := 0
			if out != show.JSON && !all {
				apps, left = ofInterest(apps)
			}
			if err := printApps(w, out, apps); err != nil || left == 0 {
				return err
			}
			_, err = fmt.Fprintf(w, "\n%s over, with nothing left anywhere: --all lists them\n", are(left, "app"))
			return err
		})
	}
	cmd.AddCommand(appsEndCommand(), appsBeatCommand())
	return cmd
}

func listApps(ctx context.Context, operator api.OperatorClient) (apps []*api.App, err error) {
	for reply, err := range api.Received(operator.ListApps(ctx, &api.ListAppsRequest{})) {
		if err != nil {
			return nil, err
		}
		apps = append(apps, reply.GetApps()...)
	}
	return apps, nil
}

func hasApp(apps []*api.App, name string) bool {
	return slices.ContainsFunc(apps, func(a *api.App) bool { return a.GetApp() == name })
}

func printApps(w io.Writer, out show.Format, apps []*api.App) error {
	if out == show.JSON {
		return show.WriteJSON(w, api.ListToJSON(apps, api.AppToJSON))
	}
	t, over := show.Table{Narrow: true}, show.Table{Narrow: true}
	t.Row("APP", "STATE", "FOR", "BEAT", "RUNS ON", "HELD", "BLOCKS", "AT")
	over.Row("APP", "IS OVER BECAUSE")
	for _, a := range apps {
		beat := "-"
		if a.GetLease() != nil {
			beat = show.Age(a.GetLastBeat()) + " of " + show.Span(a.GetLease().AsDuration())
		}
		held, blocks, at := "-", "-", "-"
		if a.GetHeldBlocks() > 0 {
			held, blocks, at = show.Size(a.GetHeldBytes()), fmt.Sprint(a.GetHeldBlocks()), show.Count(a.GetHolders(), "node")
		}
		t.Row(a.GetApp(), a.GetState(), show.Age(a.GetSince()), beat, runsOn(a), held, blocks, at)
		if a.GetWhy() != "" {
			over.Row(a.GetApp(), a.GetWhy())
		}
	}
	if err := t.Print(w); err != nil {
		return err
	}
	return show.Sections(w, &over)
}

// ofInterest leaves out apps that are over and have no blocks left: a fleet has thousands of those in a week.
func ofInterest(apps []*api.App) (some []*api.App, left int) {
	some = slices.DeleteFunc(slices.Clone(apps), func(a *api.App) bool {
		return a.GetState() == "OVER" && a.GetHeldBlocks() == 0 && a.GetNodesCount() == 0
	})
	return some, len(apps) - len(some)
}

func are(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return show.Count(int64(n), noun) + " are"
}

// runsOn is the node that runs the app, or how many nodes do.
func runsOn(a *api.App) string {
	switch {
	case a.GetNodesCount() == 0:
		return "-"
	case a.GetNodesCount() == 1:
		return strings.Join(a.GetNodes(), "")
	}
	return show.Count(a.GetNodesCount(), "node")
}

func appsEndCommand() *cobra.Command {
	var to reach
	var out show.Format
	var r api.EndAppsRequest
	cmd := &cobra.Command{
		Use:   "end APP...",
		Short: "Say that applications are over: what landed goes, and no drain carries their blocks",
		Long: `Says that applications are over. Within seconds every node removes what landed there of theirs, which cannot be taken back, and
drains leave their blocks behind, so that those of others have the time. The applications' own files, where they wrote them, stay
as they are, and so does what lies in the last resort. A node whose workloads still run one keeps it.

With --undo they are not over any more: what is still there is carried and kept again.`,
		Example: `  lifeboat apps end application_1795493514662_0001
  lifeboat apps end app-20261120-0007 app-20261120-0008 --reason "finished, says the scheduler"
  lifeboat apps end --undo app-20261120-0008`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Apps = args
			return ask(cmd.Context(), to.operator, "apps end", askTimeout, func(ctx context.Context, operator api.OperatorClient) error {
				var unheard []string // apps that are not known: mistyped, or ended before they ran
				if known, err := listApps(ctx, operator); err == nil && !r.Undo {
					unheard = slices.DeleteFunc(slices.Clone(args), func(app string) bool { return hasApp(known, app) })
				}
				reply, err := operator.EndApps(ctx, &r)
				if err != nil {
					return err
				}
				for _, app := range unheard {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: nobody has heard of it before: is that its name? If not, apps end --undo takes it back\n", show.Plain(app))
				}
				return printApps(cmd.OutOrStdout(), out, reply.GetApps())
			})
		},
		ValidArgsFunction: to.completeApps,
	}
	to.coordinatorFlags(cmd)
	out.Flag(cmd)
	cmd.Flags().BoolVar(&r.Undo, "undo", false, "they are not over")
	reasonFlag(cmd, &r.Reason)
	return cmd
}

func appsBeatCommand() *cobra.Command {
	var to reach
	var r api.BeatAppRequest
	var lease time.Duration
	cmd := &cobra.Command{
		Use:   "beat APP",
		Short: "Say that an application lives, for programs that cannot: over when it falls silent",
		Long: `Says that an application lives. It is over when nothing is heard of it for the lease, or with --over, and then stays over whatever is
said later. The first word decides whose certificate speaks for it from then on. Programs say the same with a certificate of their own
(lifeboat tls issue --dir DIR --app NAME) by POST to the coordinator: /apps/APP/beat?lease=5m and /apps/APP/over.`,
		Example: `  lifeboat apps beat app-20261120-0007 --lease 5m
  lifeboat apps beat app-20261120-0007 --over
  while kill -0 "$driver"; do lifeboat apps beat "$app"; sleep 60; done
  lifeboat apps beat "$app" --over`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.App = args[0]
			if cmd.Flags().Changed("lease") {
				r.Lease = durationpb.New(lease)
			}
			_, err := call(cmd.Context(), to.operator, "apps beat", api.OperatorClient.BeatApp, &r)
			return err
		},
		ValidArgsFunction: to.completeApps,
	}
	to.coordinatorFlags(cmd)
	cmd.Flags().DurationVar(&lease, "lease", 10*time.Minute, "how long it may be silent, 30s to 24h")
	cmd.Flags().BoolVar(&r.Over, "over", false, "it is over")
	return cmd
}

// completeApps offers the names of applications to the shell.
func (r *reach) completeApps(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return r.complete(cmd, args, func(ctx context.Context, operator api.OperatorClient, offer func(name, about string)) {
		apps, _ := listApps(ctx, operator)
		for _, a := range apps {
			offer(a.GetApp(), a.GetState())
		}
	})
}
