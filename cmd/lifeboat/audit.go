package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func auditCommand() *cobra.Command {
	var a audit
	cmd := &cobra.Command{
		Use:   "audit [--node NODE]",
		Short: "Print who asked for what, when and why, and what became of it",
		Long: `Prints what operators asked of the coordinator, the oldest first: when, who by the name in the certificate, what, and of which
nodes; and below that what became of it, the events that it led to, from where it came, and why. What was refused is there as
well. The coordinators keep the newest 4,096 records, through restarts and failovers. A record names 256 nodes at most; its
events name all.`,
		Example: `  lifeboat audit
  lifeboat audit --node host-a --limit 5
  lifeboat audit --after 120 -o json | jq -r '.[] | select(.outcome != "done") | .who'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.w = cmd.OutOrStdout()
			return a.run(cmd.Context())
		},
	}
	a.to.coordinatorFlags(cmd)
	a.out.Flag(cmd)
	f := cmd.Flags()
	f.StringVar(&a.node, "node", "", "only what was asked of `NODE`")
	f.Uint64Var(&a.after, "after", 0, "only records with a greater `INDEX`")
	f.IntVar(&a.limit, "limit", 0, "the newest `N` of them at most; 0: all")
	_ = cmd.RegisterFlagCompletionFunc("node", a.to.completeNodes)
	return cmd
}

// reasonFlag adds --reason to a verb that changes something.
func reasonFlag(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "`TEXT` kept with what was asked, for lifeboat audit")
}

type audit struct {
	to    reach
	out   show.Format
	node  string
	after uint64
	limit int
	w     io.Writer
}

func (a *audit) run(ctx context.Context) error {
	if a.limit < 0 {
		return usagef("audit: --limit %d: must be 1 or more, or 0 for all", a.limit)
	}
	var records []*api.AuditRecord
	err := ask(ctx, a.to.operator, "audit", askTimeout, func(ctx context.Context, operator api.OperatorClient) error {
		for reply, err := range api.Received(operator.ListAudit(ctx, &api.ListAuditRequest{After: a.after, Node: a.node})) {
			if err != nil {
				return err
			}
			records = append(records, reply.GetRecords()...)
		}
		if len(records) == 0 && a.node != "" { // the name may be mistyped; not checked if there are records, as the node may be forgotten
			if _, err := operator.GetNode(ctx, &api.GetNodeRequest{Node: a.node}); status.Code(err) == codes.NotFound {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if a.limit > 0 {
		records = records[max(0, len(records)-a.limit):]
	}
	if a.out == show.JSON {
		list := show.JSONList{W: a.w}
		for _, r := range records {
			if err := list.Add(api.AuditToJSON(r)); err != nil {
				return err
			}
		}
		return list.End("\n")
	}
	if len(records) == 0 {
		return a.none()
	}
	for _, r := range records {
		if err := printRecord(a.w, r); err != nil {
			return err
		}
	}
	return nil
}

// none says for people that there are no records. If it printed nothing they could not tell whether the verb had asked at all.
func (a *audit) none() error {
	said := "nothing was asked of the coordinator"
	if a.node != "" {
		said += " that concerns " + a.node
	}
	if a.after > 0 {
		said += fmt.Sprintf(" after record %d", a.after)
	}
	_, err := fmt.Fprintln(a.w, said)
	return err
}

// printRecord prints a record on two lines, which are folded on a terminal that is too narrow: which nodes were named is what people look for.
func printRecord(w io.Writer, r *api.AuditRecord) error {
	asked := fmt.Sprintf("%6d  %s  %-16s  %s", r.GetIndex(), show.Instant(r.GetTime()), r.GetWho(), r.GetAsked())
	if len(r.GetNodes()) > 0 {
		asked += "  " + strings.Join(r.GetNodes(), ", ")
	}
	var became strings.Builder
	became.WriteString("        " + r.GetOutcome())
	switch first, last := r.GetFirstEvent(), r.GetLastEvent(); {
	case first == 0:
	case first == last:
		fmt.Fprintf(&became, ", event %d", first)
	default:
		fmt.Fprintf(&became, ", events %d to %d", first, last)
	}
	if r.GetFrom() != "" {
		became.WriteString(", from " + r.GetFrom())
	}
	if r.GetReason() != "" {
		fmt.Fprintf(&became, ": %q", r.GetReason())
	}
	for _, k := range slices.Sorted(maps.Keys(r.GetDetail())) {
		became.WriteString("  " + k + "=" + r.GetDetail()[k])
	}
	const lead = 8 // columns, of both lines: the index, or nothing
	for _, line := range []string{show.Plain(asked), show.Plain(became.String())} {
		if most := show.WidthOf(w); show.Columns(line) > most {
			line = line[:lead] + strings.Join(show.Fold(line[lead:], most-lead), "\n"+strings.Repeat(" ", lead))
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
