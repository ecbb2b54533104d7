package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
)

func eventsCommand() *cobra.Command {
	var to reach
	var out format
	var follow bool
	var after, node string
	var types []string
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print what happened to the fleet, one event a line",
		Long: `Print what happened to the fleet, one event a line, each with its place: TERM.INDEX, or TERM.INDEX.SOFT of what one
leader alone tells. After the place of the last line come all events that were not printed yet.

An event of type Gap says that what came before it is no longer kept: list the nodes, and go on.`,
		Example: `  lifeboat events --follow
  lifeboat events --follow --type NodeLost --type NodeDecommissioning
  lifeboat events --after 3.1204 -o json
  lifeboat events --node host-a -o json | jq -c '[.time, .type, .data.reason]'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := api.ParsePlace(after)
			if err != nil {
				return usagef("--after: %w", err)
			}
			operator, l, err := to.operator()
			if err != nil {
				return err
			}
			defer l.Close()
			f := follower{operator: operator, link: l, w: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr(), out: out, after: at, types: types, node: node}
			return f.run(cmd.Context(), follow)
		},
	}
	to.coordinatorFlags(cmd)
	out.flag(cmd)
	cmd.Flags().BoolVar(&follow, "follow", false, "stay, and print what happens until interrupted")
	cmd.Flags().StringVar(&after, "after", "0", "only events after that `PLACE`")
	cmd.Flags().StringArrayVar(&types, "type", nil, "only events of that `TYPE`; may be given several times")
	cmd.Flags().StringVar(&node, "node", "", "only events of that `NODE`")
	return cmd
}

type follower struct {
	operator  api.OperatorClient
	link      *link
	w, stderr io.Writer
	out       format
	after     api.Place
	types     []string
	node      string
	told      bool // something of node
}

// run prints events. When it follows, it outlives the coordinator's absence: the place says where to go on, so that no
// event of the log is missed and none printed twice. Only the first answer may fail.
func (f *follower) run(ctx context.Context, follow bool) error {
	answered, streak := false, false
	for {
		err := f.read(ctx, follow, func() { answered, streak = true, false })
		_, away := errors.AsType[errAway](err)
		switch {
		case follow && ctx.Err() != nil:
			return nil
		case !follow && err == nil:
			return f.checkNode(ctx)
		case !follow, err != nil && !(away && answered):
			return err
		case err != nil && !streak:
			streak = true
			fmt.Fprintf(f.stderr, "lifeboat: %s (this goes on by itself when one answers)\n", err)
		}
		if !sleep(ctx, watchPace) {
			return nil
		}
	}
}

// checkNode refuses a name of which there was nothing to tell because there is no such node. Of one that is no more there may be events.
func (f *follower) checkNode(ctx context.Context) error {
	if f.node == "" || f.told {
		return nil
	}
	_, err := f.operator.GetNode(ctx, &api.GetNodeRequest{Node: f.node})
	if status.Code(err) == codes.NotFound {
		return f.link.rpcError("events", err)
	}
	return nil
}

func (f *follower) read(ctx context.Context, follow bool, answered func()) error {
	stream, err := f.operator.Events(ctx, &api.EventsRequest{
		After: f.after.Index, AfterTerm: f.after.Term, AfterSoft: f.after.Soft, Types: f.types, Node: f.node, Follow: follow,
	})
	if err != nil {
		return f.link.away("events", err)
	}
	answered() // a stream is only made on a connection that has shaken hands
	for {
		e, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return f.link.away("events", err)
		}
		f.after = api.PlaceOf(e)
		f.told = f.told || e.GetNode() == f.node
		if err := f.print(e); err != nil {
			return err
		}
	}
}

func (f *follower) print(e *api.Event) error {
	if f.out == formatJSON {
		line, err := compact(api.EventToJSON(e))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(f.w, line)
		return err
	}
	var data strings.Builder
	for _, k := range slices.Sorted(maps.Keys(e.GetData())) {
		fmt.Fprintf(&data, "  %s=%s", k, e.GetData()[k])
	}
	at := "-"
	if t := api.Instant(e.GetTime()); t != nil {
		at = t.Format(time.RFC3339)
	}
	_, err := fmt.Fprintf(f.w, "%6s  %s  %-20s  %s%s\n", api.PlaceOf(e), at, plain(e.GetType()), plain(dash(e.GetNode())), plain(data.String()))
	return err
}
