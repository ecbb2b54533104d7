package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func disksCommand() *cobra.Command {
	var to reach
	var out show.Format
	var watch bool
	var node string
	cmd := &cobra.Command{
		Use:   "disks",
		Short: "List the disks of this machine, or of all nodes: health, room, speed",
		Long: `Lists what stands behind the directories of this machine's agent, or, where there is none, of all nodes that the coordinator
knows. --node and --coordinator ask the coordinator in any case.

USABLE is what leaving peers may still be promised. FLUSH and FETCH are how fast the device makes blocks durable and gives
them back; "-" is not known. SLOTS are blocks of 64 MiB, free of all.`,
		Example: `  lifeboat disks
  lifeboat disks --node host-a --watch
  lifeboat disks -o json | jq -r '.[] | select(.health != "HEALTHY") | .path + ": " + .why'`,
		Args: cobra.NoArgs,
	}
	to.coordinatorFlags(cmd)
	to.socketFlags(cmd)
	out.Flag(cmd)
	show.WatchFlag(cmd, &watch)
	cmd.Flags().StringVar(&node, "node", "", "only this `NODE`'s")
	_ = cmd.RegisterFlagCompletionFunc("node", to.completeNodes)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if node != "" && to.socket != "" {
			return usagef("--socket asks the agent of this machine and --node the coordinator: give one")
		}
		local, err := to.nearest()
		if err != nil {
			return err
		}
		if local && node == "" {
			return look(cmd, to.agent, watch, "list disks", func(ctx context.Context, agent api.LocalClient, w io.Writer) error {
				s, err := agent.GetStatus(ctx, &api.GetAgentStatusRequest{})
				if err != nil {
					return err
				}
				return printDisks(w, out, disksOf(nil, s.GetNode(), s.GetStatus()))
			})
		}
		what := "list disks"
		if node != "" {
			what = "list the disks of " + node
		}
		return look(cmd, to.operator, watch, what, func(ctx context.Context, operator api.OperatorClient, w io.Writer) error {
			found, err := disksOfNodes(ctx, operator, node)
			if err != nil {
				return err
			}
			return printDisks(w, out, found)
		})
	}
	return cmd
}

// diskOf is a disk with its node.
type diskOf struct {
	node string
	*api.Disk
}

// disksOfNodes are the disks of one node; with "" of all nodes.
func disksOfNodes(ctx context.Context, operator api.OperatorClient, node string) (all []diskOf, err error) {
	if node != "" {
		n, err := operator.GetNode(ctx, &api.GetNodeRequest{Node: node})
		return disksOf(nil, node, n.GetStatus()), err
	}
	reply, err := operator.ListNodes(ctx, &api.ListNodesRequest{})
	for _, n := range reply.GetNodes() {
		all = disksOf(all, n.GetName(), n.GetStatus())
	}
	return all, err
}

func disksOf(all []diskOf, node string, s *api.Status) []diskOf {
	for _, d := range s.GetDisks() {
		all = append(all, diskOf{node, d})
	}
	return all
}

type diskJSON struct {
	Node string `json:"node"`
	api.DiskJSON
}

func printDisks(w io.Writer, out show.Format, all []diskOf) error {
	if out == show.JSON {
		return show.WriteJSON(w, api.ListToJSON(all, func(d diskOf) diskJSON { return diskJSON{d.node, api.DiskToJSON(d.Disk)} }))
	}
	several := false
	for _, d := range all {
		several = several || d.node != all[0].node
	}
	name := func(d diskOf) string {
		if several {
			return d.node + ":" + d.GetPath()
		}
		return d.GetPath()
	}
	t, why := show.Table{Narrow: true}, show.Table{Folded: true, Narrow: true}
	t.Row("PATH", "HEALTH", "SINCE", "USABLE/TOTAL", "FLUSH", "FETCH", "SLOTS")
	why.Row("PATH", "WHY")
	for _, d := range all {
		since, room, slots := "-", "-", "-"
		if d.GetSince() != nil {
			since = show.Age(d.GetSince())
		}
		if d.Slots != nil {
			room = show.Size(d.GetUsableBytes()) + "/" + show.Size(d.GetTotalBytes())
			slots = fmt.Sprintf("%d/%d", d.GetFreeSlots(), d.GetSlots())
		}
		t.Row(name(d), show.Dash(d.GetHealth()), since, room, rate(d.FlushBytesPerSecond), rate(d.FetchBytesPerSecond), slots)
		if reason := whyNot(d.Disk); reason != "" {
			why.Row(name(d), reason)
		}
	}
	if err := t.Print(w); err != nil {
		return err
	}
	return show.Sections(w, &why)
}

func whyNot(d *api.Disk) string {
	var reasons []string
	if d.GetClosed() {
		reasons = append(reasons, "evacuated: takes no blocks")
	}
	if d.GetWhy() != "" {
		reasons = append(reasons, strings.ReplaceAll(d.GetWhy(), " at "+d.GetPath(), "")) // the line begins with it
	}
	return strings.Join(reasons, "; ")
}

func rate(bytesPerSecond *int64) string {
	if bytesPerSecond == nil {
		return "-"
	}
	return show.Size(*bytesPerSecond) + "/s"
}

func diskCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "disk",
		Short:   "See to one disk of this machine",
		Example: `  lifeboat disk evacuate /mnt/d1 --wait`,
		Args:    cobra.ArbitraryArgs,
		RunE:    needsVerb,
	}
	cmd.AddCommand(evacuateCommand())
	return cmd
}

func evacuateCommand() *cobra.Command {
	var e evacuate
	cmd := &cobra.Command{
		Use:   "evacuate PATH",
		Short: "Carry the blocks off a disk while the node stays",
		Long: `Carries what lies in the agent's directories at or below PATH to other nodes, as gently as copying ahead, and puts nothing
there any more until --cancel. Files that the agent did not put there stay where they are: their blocks are elsewhere as well
from then on. It goes on after a restart, and waits while the whole node leaves.

Disks that are dying (READ_ONLY, READ_WRITE_FAILURE, CRITICAL) are evacuated without being asked, unless disks.evacuate is
false.`,
		Example: `  lifeboat disk evacuate /mnt/d1 --wait
  lifeboat disk evacuate /mnt/d1 --cancel`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if e.cancel && e.wait {
				return usagef("disk evacuate: --cancel takes it back at once: there is nothing to wait for")
			}
			return e.run(cmd, args[0])
		},
	}
	e.to.socketFlags(cmd)
	e.out.Flag(cmd)
	cmd.Flags().BoolVar(&e.wait, "wait", false, "stay until the blocks are elsewhere; exit 4 when some could not be carried")
	cmd.Flags().BoolVar(&e.cancel, "cancel", false, "take it back: stop, and put blocks there again")
	return cmd
}

type evacuate struct {
	to           reach
	out          show.Format
	wait, cancel bool
}

func (e *evacuate) run(cmd *cobra.Command, path string) error {
	agent, l, err := e.to.agent()
	if err != nil {
		return err
	}
	defer l.Close()
	ask, cancel := context.WithTimeout(cmd.Context(), askTimeout)
	defer cancel()
	reply, err := agent.EvacuateDisk(ask, &api.EvacuateDiskRequest{Path: path, Cancel: e.cancel})
	if err != nil {
		return l.rpcError("evacuate "+path, err)
	}
	all := reply.GetEvacuations()
	if e.cancel && len(all) == 0 {
		return notFoundf("evacuate %s: no evacuation to take back", path)
	}
	if e.wait {
		those := &evacuating{agent: agent, link: l, paths: map[string]bool{}}
		for _, v := range all {
			those.paths[v.GetPath()] = true
		}
		w := newWaiter(cmd.ErrOrStderr(), "the evacuation of "+path, "lifeboat disk evacuate "+word(path)+" --cancel"+e.to.again())
		w.again = "lifeboat disk evacuate " + word(path) + " --wait" + e.to.again()
		w.patience = selfPatience
		if _, err := w.run(cmd.Context(), those.look); err != nil {
			return err
		}
		all = those.last
	}
	if err := printEvacuations(cmd.OutOrStdout(), e.out, all); err != nil || !e.wait {
		return err
	}
	var left int64
	for _, v := range all {
		left += v.GetProgress().GetBlocksLost()
	}
	if left > 0 {
		return incompletef("evacuate %s: %s could not be carried", path, show.Count(left, "block"))
	}
	return nil
}

// evacuating watches evacuations, as this machine's agent reports them.
type evacuating struct {
	agent api.LocalClient
	link  *link
	paths map[string]bool
	last  []*api.Evacuation
}

func (e *evacuating) look(ctx context.Context) (seen []leaving, _ error) {
	s, err := e.agent.GetStatus(ctx, &api.GetAgentStatusRequest{})
	if err != nil {
		return nil, e.link.away("look at the evacuation", err)
	}
	e.last = nil
	for _, v := range s.GetEvacuations() {
		if !e.paths[v.GetPath()] {
			continue
		}
		e.last = append(e.last, v)
		l := leaving{node: v.GetPath(), line: v.GetState(), gist: v.GetState(), ended: v.GetState() == "done"}
		if p := v.GetProgress(); p != nil {
			l.line += "  " + drainLine(p, false)
			if peer := missedPeer(p); peer != "" && !l.ended {
				l.line, l.gist = l.line+"  waits for "+peer, l.gist+"a peer"
			}
		}
		seen = append(seen, l)
	}
	if len(seen) < len(e.paths) {
		return nil, errors.New("the evacuation was taken back meanwhile")
	}
	return seen, nil
}

type evacuationJSON struct {
	Path  string         `json:"path"`
	State string         `json:"state"`
	By    string         `json:"by"`
	Age   *float64       `json:"age_seconds"`
	Drain *api.DrainJSON `json:"drain"`
}

func evacuationToJSON(v *api.Evacuation) evacuationJSON {
	return evacuationJSON{v.GetPath(), v.GetState(), v.GetBy(), api.Seconds(v.GetAge()), api.DrainToJSON(v.GetProgress())}
}

func printEvacuations(w io.Writer, out show.Format, all []*api.Evacuation) error {
	if out == show.JSON {
		return show.WriteJSON(w, api.ListToJSON(all, evacuationToJSON))
	}
	return evacuationTable(all).Print(w)
}

func evacuationTable(all []*api.Evacuation) *show.Table {
	t := &show.Table{Narrow: true}
	t.Row("EVACUATION", "STATE", "BY", "ASKED", "BLOCKS", "BYTES", "LEFT")
	for _, v := range all {
		blocks, bytes, left := "-", "-", "-"
		if p := v.GetProgress(); p != nil {
			blocks, bytes = movedOf(p), show.Size(p.GetBytesMoved())
			left = fmt.Sprint(p.GetBlocksLost())
		}
		t.Row(v.GetPath(), v.GetState(), v.GetBy(), show.Age(v.GetAge())+" ago", blocks, bytes, left)
	}
	return t
}
