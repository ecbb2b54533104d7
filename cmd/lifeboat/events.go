package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/coordinator"
)

func eventsCommand() *cobra.Command {
	var to reach
	var out show.Format
	var follow, all bool
	var after, node string
	var types []string
	var last int
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print what happened to the fleet, one event a line",
		Long: `Print what happened to the fleet, one event a line, each with its place: TERM.INDEX, or TERM.INDEX.SOFT of what one
leader alone tells. After the place of the last line come all events that were not printed yet.

An event of type Gap says that what came before it is no longer kept: list the nodes, and go on.

BlocksMoved, which comes each second while nodes leave, is in the table with --all or --type BlocksMoved; -o json has it in any case.

The types are ` + strings.Join(coordinator.EventTypes(), ", ") + ".",
		Example: `  lifeboat events --last 20
  lifeboat events --follow
  lifeboat events --follow --type NodeLost --type NodeDecommissioning
  lifeboat events --after 3.1204 -o json
  lifeboat events --node host-a -o json | jq -c '[.time, .type, .data.reason]'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := api.ParsePlace(after)
			if err != nil {
				return usagef("--after: %w", err)
			}
			if last < 0 {
				return usagef("events: --last %d: must be 1 or more, or 0 for all that are kept", last)
			}
			operator, l, err := to.operator()
			if err != nil {
				return err
			}
			defer l.Close()
			f := follower{operator: operator, link: l, w: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr(), out: out, after: at, types: types, node: node, last: last}
			f.calm = out != show.JSON && !all && len(types) == 0
			if k, ok := f.w.(*kept); ok {
				f.unread = func() bool { return show.Unread(k.Writer) }
			}
			return f.run(cmd.Context(), follow)
		},
	}
	to.coordinatorFlags(cmd)
	out.Flag(cmd)
	cmd.Flags().BoolVar(&follow, "follow", false, "stay, and print what happens until interrupted")
	cmd.Flags().StringVar(&after, "after", "0", "only events after that `PLACE`")
	cmd.Flags().IntVar(&last, "last", 0, "the newest `N` of them at most, and with --follow what happens then; 0: all that are kept")
	cmd.Flags().BoolVar(&all, "all", false, "in the table, BlocksMoved as well")
	cmd.Flags().StringArrayVar(&types, "type", nil, "only events of that `TYPE`; may be given several times")
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(coordinator.EventTypes(), cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().StringVar(&node, "node", "", "only events of that `NODE`")
	_ = cmd.RegisterFlagCompletionFunc("node", to.completeNodes)
	return cmd
}

// blocksMoved is the type of most events: one each second for each pair of nodes while blocks move.
const blocksMoved = "BlocksMoved"

type follower struct {
	operator  api.OperatorClient
	link      *link
	w, stderr io.Writer
	out       show.Format
	after     api.Place
	types     []string
	node      string
	last      int  // how many old events to print; 0: all
	calm      bool // leave out BlocksMoved
	leftOut   int  // how many were left out
	told      bool // there was an event of node

	unread func() bool // whether the reader of w is gone; nil: not known
}

// run prints events. While it follows, it outlasts the coordinators' absence: it goes on after the place of the last event, so no
// event of the log is missed or printed twice. Only before the first answer is an absence an error.
func (f *follower) run(ctx context.Context, follow bool) error {
	if follow && f.unread != nil {
		var watching sync.WaitGroup
		defer watching.Wait()
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		watching.Go(func() { // after `| head -1` has ended, the next event, whose write would fail, may come in a week
			for await.Sleep(ctx, show.WatchPace) {
				if f.unread() {
					stop()
				}
			}
		})
	}
	if f.last > 0 {
		if err := f.newest(ctx); err != nil {
			return err
		}
		if !follow {
			return f.end(ctx)
		}
	}
	answered, streak := false, false
	for {
		err := f.read(ctx, follow, func() {
			if follow && !answered {
				f.askBack(ctx)
			}
			answered, streak = true, false
		}, f.print)
		_, away := errors.AsType[errAway](err)
		switch {
		case follow && ctx.Err() != nil:
			return nil
		case !follow && err == nil:
			return f.end(ctx)
		case !follow, err != nil && !(away && answered):
			return err
		case err != nil && !streak:
			streak = true
			fmt.Fprintf(f.stderr, "lifeboat: %s (this goes on by itself when one answers)\n", show.Plain(err.Error()))
		}
		if !await.Sleep(ctx, show.WatchPace) {
			return nil
		}
	}
}

// newest prints the last events that are kept.
func (f *follower) newest(ctx context.Context) error {
	var events []*api.Event
	err := f.read(ctx, false, func() {}, func(e *api.Event) error {
		events = append(events, e)
		events = events[max(0, len(events)-f.last):]
		return nil
	})
	if err != nil {
		return err
	}
	for _, e := range events {
		if err := f.print(e); err != nil {
			return err
		}
	}
	return nil
}

// end says how many events were left out. It fails if there were no events of the wanted node and the coordinator does not know it: the
// name may be mistyped. A forgotten node may have events, so a name with events is not checked.
func (f *follower) end(ctx context.Context) error {
	if f.leftOut > 0 {
		fmt.Fprintf(f.stderr, "%s of type %s left out (--all)\n", show.Count(int64(f.leftOut), "event"), blocksMoved)
	}
	if f.node == "" || f.told {
		return nil
	}
	_, err := f.operator.GetNode(ctx, &api.GetNodeRequest{Node: f.node})
	if status.Code(err) == codes.NotFound {
		return f.link.rpcError("events", err)
	}
	return nil
}

// askBack says so if the coordinator does not know the wanted node. It may come yet; or its name is mistyped, and then no event ever does.
func (f *follower) askBack(ctx context.Context) {
	if f.node == "" || f.told {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if _, err := f.operator.GetNode(ctx, &api.GetNodeRequest{Node: f.node}); status.Code(err) == codes.NotFound {
		fmt.Fprintf(f.stderr, "%s: no node of that name is known: is that its name?\n", show.Plain(f.node))
	}
}

func (f *follower) read(ctx context.Context, follow bool, answered func(), take func(*api.Event) error) error {
	stream, err := f.operator.Events(ctx, &api.EventsRequest{
		After: f.after.Index, AfterTerm: f.after.Term, AfterSoft: f.after.Soft, Types: f.types, Node: f.node, Follow: follow,
	})
	if err == nil {
		answered() // gRPC makes a stream only after the handshake
	}
	for e, err := range api.Received(stream, err) {
		if err != nil {
			return f.link.away("events", err)
		}
		f.after = api.PlaceOf(e)
		f.told = f.told || e.GetNode() == f.node
		if f.calm && e.GetType() == blocksMoved {
			f.leftOut++
			continue
		}
		if err := take(e); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) print(e *api.Event) error {
	if f.out == show.JSON {
		line, err := show.Compact(api.EventToJSON(e))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(f.w, line)
		return err
	}
	var data strings.Builder
	for _, k := range slices.Sorted(maps.Keys(e.GetData())) {
		v := e.GetData()[k]
		if t, err := time.Parse(time.RFC3339, v); err == nil { // print deadlines to the second, like the event's own time
			v = t.Format(time.RFC3339)
		}
		fmt.Fprintf(&data, "  %s=%s", k, v)
	}
	_, err := fmt.Fprintf(f.w, "%12s  %s  %-22s  %s%s\n", api.PlaceOf(e), show.Instant(e.GetTime()), show.Plain(e.GetType()), show.Plain(show.Dash(e.GetNode())), show.Plain(data.String()))
	return err
}
