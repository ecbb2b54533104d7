package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/preemption"
)

func manifestCommand() *cobra.Command {
	var to reach
	var out show.Format
	var self, all bool
	cmd := &cobra.Command{
		Use:   "manifest [--self | NODE]",
		Short: "Show the account of a node's last drain: what was moved, lost or skipped, and why",
		Long: `Shows the account of a node's last drain. The table names the blocks that were lost or skipped and, with --all, those that
were moved, and in the end where how many went, and why how many did not; JSON has them all, but for those that the node could not write down, on a full disk, say: of them it says how
many. What the coordinator was not told, or has no more, is asked of the peer that the node left it with. Exits 4 when
something was lost, or time was up for what the node was to wait for. That of a rehearsal (lifeboat simulate) says so, and
exits 4 for what would have been lost: the node stayed, and has its blocks.`,
		Example: `  lifeboat manifest host-a
  lifeboat manifest --self --all
  lifeboat manifest host-a -o json | jq -r '.entries[] | select(.outcome == "lost") | .id'`,
		ValidArgsFunction: to.completeNode,
		Args: func(_ *cobra.Command, args []string) error {
			if self == (len(args) == 1) || len(args) > 1 {
				return usagef("manifest: name one node, or say --self")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, request := "manifest of this machine", &api.GetManifestRequest{}
			if !self {
				asked, request.Node = "manifest of "+args[0], args[0]
			}
			stream, l, err := openStream(cmd.Context(), &to, self, api.LocalClient.GetManifest, api.OperatorClient.GetManifest, request)
			if l == nil {
				return err
			}
			defer l.Close()
			if err != nil {
				return l.rpcError(asked, err)
			}
			p := manifestPrinter{w: cmd.OutOrStdout(), errs: cmd.ErrOrStderr(), out: out, all: all}
			recv := stream.Recv
			for {
				msg, err := recv()
				if status.Code(err) == codes.NotFound && !self {
					kept := to.account(cmd.Context(), args[0])
					if kept == nil {
						return l.rpcError(asked, err)
					}
					fmt.Fprintf(cmd.ErrOrStderr(), "the coordinator has none: this is what %s left with a peer\n", args[0])
					recv = kept
					continue
				}
				switch {
				case errors.Is(err, io.EOF):
					return p.end(asked)
				case err != nil:
					return l.rpcError(asked, err)
				}
				if err := p.add(msg); err != nil {
					return err
				}
			}
		},
	}
	to.coordinatorFlags(cmd)
	to.socketFlags(cmd)
	out.Flag(cmd)
	cmd.Flags().BoolVar(&self, "self", false, "this machine, by its agent's socket")
	cmd.Flags().BoolVar(&all, "all", false, "in the table, name the moved blocks as well")
	return cmd
}

// manifestPrinter prints a manifest as it comes: the summary first, then the entries.
type manifestPrinter struct {
	w, errs io.Writer
	out     show.Format
	all     bool
	begun   bool
	headed  bool
	moved   int64 // entries with the outcome moved, so far
	of      *api.ManifestSummary
	entries show.JSONList
	sums    manifestSums
}

func (p *manifestPrinter) add(msg *api.GoodbyeRequest) error {
	if !p.begun {
		p.begun, p.of = true, msg.GetSummary()
		if err := p.begin(msg.GetSummary()); err != nil {
			return err
		}
	}
	for _, e := range msg.GetEntries() {
		if err := p.entry(e); err != nil {
			return err
		}
	}
	return nil
}

func (p *manifestPrinter) begin(m *api.ManifestSummary) error {
	if m == nil {
		return errors.New("the manifest came without its summary")
	}
	if p.out == show.JSON {
		p.entries.W = p.w
		head, err := show.Compact(api.ManifestToJSON(m))
		if err != nil {
			return err
		}
		_, err = io.WriteString(p.w, strings.TrimSuffix(head, "}")+`,"entries":`)
		return err
	}
	t := show.Table{Folded: true}
	t.Row("node", m.GetNode())
	incident := fmt.Sprintf("%s: %s from %s", show.Dash(m.GetIncident()), show.Dash(m.GetKind()), show.Dash(m.GetSource()))
	if at := m.GetNoticedAt(); at != nil {
		incident += ", noticed at " + show.Instant(at)
	}
	t.Row("incident", incident)
	t.Row("deadline", show.Instant(m.GetDeadline()))
	if m.GetSource() == preemption.SourceRehearsal {
		t.Row("rehearsal", "the node stayed, and has all of its blocks: lost is what would have been")
	}
	t.Row("drain", summary(m))
	for _, what := range m.GetUnfinished() {
		t.Row("unfinished", what)
	}
	return t.Print(p.w)
}

func (p *manifestPrinter) entry(e *api.ManifestEntry) error {
	if e.GetOutcome() == "moved" {
		p.moved++
	}
	if p.out == show.JSON {
		return p.entries.Add(api.EntryToJSON(e))
	}
	p.sums.add(e)
	if e.GetOutcome() == "moved" && !p.all {
		return nil
	}
	if !p.headed {
		p.headed = true
		if _, err := fmt.Fprintln(p.w, "\n"+show.Listed(show.WidthOf(p.w), manifestLead("OUTCOME", "SIZE"), "PEER", "BLOCK", manifestPeer)); err != nil {
			return err
		}
	}
	// Fixed columns: entries are printed as they come.
	line := show.Listed(show.WidthOf(p.w), manifestLead(e.GetOutcome(), show.Size(e.GetBytes())), show.Dash(e.GetPeer()), e.GetId(), manifestPeer)
	if reason := show.Plain(e.GetReason()); reason != "" {
		if show.Columns(line[strings.LastIndexByte(line, '\n')+1:]+": "+reason) <= show.WidthOf(p.w) {
			line += ": " + reason
		} else {
			line += "\n" + show.Cut("  "+reason, show.WidthOf(p.w))
		}
	}
	_, err := fmt.Fprintln(p.w, line)
	return err
}

// manifestPeer is how wide the peer of a moved block usually is.
const manifestPeer = 16

func manifestLead(outcome, size string) string {
	return fmt.Sprintf("%-7s  %8s", show.Plain(outcome), size)
}

func (p *manifestPrinter) end(asked string) error {
	if !p.begun {
		return notFoundf("%s: there is none", asked)
	}
	if p.out == show.JSON {
		if err := p.entries.End("}\n"); err != nil {
			return err
		}
	} else if err := p.sums.print(p.w); err != nil {
		return err
	}
	// A node whose disk is full counts the blocks that it cannot write down; the peers that took them know them.
	if n := p.of.GetMoved().GetBlocks() - p.moved; n > 0 && p.of.GetFinishedAt() != nil {
		fmt.Fprintf(p.errs, "%s that moved, of %d, could not be written down and are not in this account: lifeboat locate finds them\n", show.Count(n, "block"), p.of.GetMoved().GetBlocks())
	}
	if p.of.GetSource() == preemption.SourceRehearsal {
		asked += ", a rehearsal"
	}
	switch {
	case p.of.GetLost().GetBlocks() > 0:
		return incompletef("%s: %s", asked, lostOf(p.of))
	case len(p.of.GetUnfinished()) > 0:
		return incompletef("%s: %s", asked, unfinishedOf(p.of))
	}
	return nil
}

// summary tells a manifest in one line, fit to be pasted.
func summary(m *api.ManifestSummary) string {
	// Skipped blocks were not to be moved: counted in the total they would read like a loss.
	all := m.GetMoved().GetBlocks() + m.GetLost().GetBlocks()
	line := ""
	if m.GetSource() == preemption.SourceRehearsal {
		line = "rehearsed: "
	}
	line += fmt.Sprintf("%d (%s) of %s moved, %d lost", m.GetMoved().GetBlocks(), show.Size(m.GetMoved().GetBytes()), show.Count(all, "block"), m.GetLost().GetBlocks())
	if lost := m.GetLost(); lost.GetBlocks() > 0 {
		line += fmt.Sprintf(" (%s)", show.Size(lost.GetBytes()))
	}
	line += fmt.Sprintf(", %d skipped", m.GetSkipped().GetBlocks())
	if n := len(m.GetUnfinished()); n > 0 {
		line += fmt.Sprintf(", %d unfinished", n)
	}
	from, to := api.Instant(m.GetStartedAt()), api.Instant(m.GetFinishedAt())
	if from == nil || to == nil {
		return line
	}
	line += ", took " + show.Span(to.Sub(*from))
	switch deadline := api.Instant(m.GetDeadline()); {
	case deadline == nil:
	case deadline.Before(*to):
		line += ", " + show.Span(to.Sub(*deadline)) + " after the deadline"
	default:
		line += ", " + show.Span(deadline.Sub(*to)) + " to spare"
	}
	return line
}
