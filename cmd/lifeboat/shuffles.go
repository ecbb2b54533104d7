package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func shufflesCommand() *cobra.Command {
	var to reach
	var out show.Format
	var app string
	var watch bool
	cmd := &cobra.Command{
		Use:   "shuffles",
		Short: "List the shuffles with map outputs that were carried away: how many, where, and lost",
		Long: `Sums up what lifeboat blocks lists by Spark's shuffles: the map outputs that nodes hold for others, and those that are known to be lost,
whose maps must run again. Map outputs that are still where they were written are not among them. Where no directory names the
application, a shuffle stands under its block manager's name, and an application may have several rows.`,
		Example: `  lifeboat shuffles
  lifeboat shuffles --app application_1795493514662_0001
  lifeboat shuffles -o json | jq '[.[] | select(.lost_blocks > 0)]'`,
		Args: cobra.NoArgs,
	}
	to.coordinatorFlags(cmd)
	out.Flag(cmd)
	show.WatchFlag(cmd, &watch)
	cmd.Flags().StringVar(&app, "app", "", "only those of this `APP`")
	_ = cmd.RegisterFlagCompletionFunc("app", to.completeApps)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		operator, l, err := to.operator()
		if err != nil {
			return err
		}
		defer l.Close()
		return show.Draw(cmd.Context(), watch, cmd.OutOrStdout(), cmd.ErrOrStderr(), func(ctx context.Context, w io.Writer) error {
			all, err := sumShuffles(ctx, operator, app)
			if err != nil {
				return l.rpcError("list shuffles", err)
			}
			if app != "" && len(all) == 0 && !watch {
				if err := checkApp(ctx, operator, app); err != nil {
					return err
				}
			}
			if out == show.JSON {
				return show.WriteJSON(w, all)
			}
			return printShuffles(w, all)
		})
	}
	return cmd
}

// checkApp refuses an app that the coordinator does not know. An app that runs may have no shuffle that was moved, which is no error.
func checkApp(ctx context.Context, operator api.OperatorClient, app string) error {
	apps, err := listApps(ctx, operator)
	if err == nil && !hasApp(apps, app) {
		return notFoundf("list shuffles: app %q is not known: lifeboat apps lists those that are", app)
	}
	return nil // a failed call does not prove that there is no such app
}

// shuffleJSON is one shuffle as programs read it.
type shuffleJSON struct {
	Store      string   `json:"store"`
	App        string   `json:"app"`
	Shuffle    int64    `json:"shuffle"`
	HeldBlocks int64    `json:"held_blocks"`
	HeldBytes  int64    `json:"held_bytes"`
	Holders    []string `json:"holders"`
	LostBlocks int64    `json:"lost_blocks"`
	LostBytes  int64    `json:"lost_bytes"`
}

// mapOutput is STORE/APP/shuffle_SHUFFLE_MAP_0 (ShuffleDataBlockId in Spark's core).
var mapOutput = regexp.MustCompile(`^([^/]+)/([^/]+)/shuffle_(\d+)_\d+_\d+$`)

// sumShuffles sums blocks up as the stream brings them, and keeps none: a fleet may hold millions.
func sumShuffles(ctx context.Context, operator api.OperatorClient, app string) ([]shuffleJSON, error) {
	sums := map[shuffleKey]*shuffleSum{}
	for reply, err := range api.Received(operator.ListBlocks(ctx, &api.ListBlocksRequest{})) {
		if err != nil {
			return nil, err
		}
		for _, b := range reply.GetBlocks() {
			part := mapOutput.FindStringSubmatch(b.GetId())
			if part == nil || part[2] == "-" || app != "" && part[2] != app {
				continue
			}
			n, err := strconv.ParseInt(part[3], 10, 64)
			if err != nil {
				continue // Spark counts in 32 bits
			}
			key := shuffleKey{part[1], part[2], n}
			if sums[key] == nil {
				sums[key] = &shuffleSum{holders: map[string]bool{}}
			}
			sums[key].add(b)
		}
	}
	return shufflesOf(sums), nil
}

type shuffleKey struct {
	store, app string
	shuffle    int64
}

type shuffleSum struct {
	held, lost api.Count
	holders    map[string]bool
}

func (s *shuffleSum) add(b *api.BlockInfo) {
	sum := &s.held
	if b.GetState() == "lost" {
		sum = &s.lost
	}
	sum.Blocks++
	sum.Bytes += b.GetBytes()
	for _, h := range b.GetHolders() {
		s.holders[h] = true
	}
}

func shufflesOf(sums map[shuffleKey]*shuffleSum) []shuffleJSON {
	all := []shuffleJSON{}
	for k, s := range sums {
		all = append(all, shuffleJSON{
			Store: k.store, App: k.app, Shuffle: k.shuffle, HeldBlocks: s.held.Blocks, HeldBytes: s.held.Bytes,
			Holders: slices.AppendSeq([]string{}, maps.Keys(s.holders)), LostBlocks: s.lost.Blocks, LostBytes: s.lost.Bytes,
		})
		slices.Sort(all[len(all)-1].Holders)
	}
	slices.SortFunc(all, func(a, b shuffleJSON) int {
		return cmp.Or(strings.Compare(a.App, b.App), cmp.Compare(a.Shuffle, b.Shuffle), strings.Compare(a.Store, b.Store))
	})
	return all
}

func printShuffles(w io.Writer, all []shuffleJSON) error {
	t := show.Table{Narrow: true}
	t.Row("APP", "SHUFFLE", "STORE", "HELD", "OUTPUTS", "LOST", "AT")
	for _, s := range all {
		lost := "-"
		if s.LostBlocks > 0 {
			lost = fmt.Sprint(s.LostBlocks)
		}
		t.Row(s.App, fmt.Sprint(s.Shuffle), s.Store, show.Size(s.HeldBytes), fmt.Sprint(s.HeldBlocks), lost, show.Dash(show.Some(s.Holders, show.RoomFor(w, show.MinLastColumn))))
	}
	return t.Print(w)
}
