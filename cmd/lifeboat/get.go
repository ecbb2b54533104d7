package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/client"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func getCommand() *cobra.Command {
	var g getter
	var into string
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Read a block from whichever node has it",
		Long: `Reads a block from whichever node has it, to standard output or into a file, which appears whole or not at all. A map
output of several members is written into a directory; without one its members are named and the exit code is 2.
When a node goes while it is read from, or sends no byte for 30 s, the reading goes on with another that has the same bytes.
Without a coordinator the agent of this machine is asked, and fetches the block from where it is.
Exits 3 when nobody has the block and 4 when it is known to be lost.`,
		Example: `  lifeboat get cache/-/model-7.bin -o model-7.bin
  lifeboat get cache/-/model-7.bin --range 0-1023 | xxd
  lifeboat get spark/app-20261121/shuffle_3_14_0 -o outputs/`,
		ValidArgsFunction: g.to.completeBlock,
		Args:              cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := client.CheckID(args[0]); err != nil {
				return usagef("get %s: %w", args[0], err)
			}
			if g.span != "" && !isRange(g.span) {
				return usagef("get: --range %s: want A-B, A- or -LAST", g.span)
			}
			g.stderr = cmd.ErrOrStderr()
			to, err := newTarget(into, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			defer to.Close()
			return g.get(cmd.Context(), args[0], to)
		},
	}
	g.to.coordinatorFlags(cmd)
	g.to.socketFlags(cmd)
	f := cmd.Flags()
	f.StringVarP(&into, "output", "o", "-", "`FILE` to write, or an existing directory; -: standard output")
	f.StringVar(&g.span, "range", "", "only the bytes `A-B`, both included and counted from 0")
	return cmd
}

// isRange reports whether a server would accept a range. A server ignores one that it does not understand and answers with the whole
// block.
func isRange(s string) bool {
	from, to, is := strings.Cut(s, "-")
	a, noFrom := strconv.ParseUint(from, 10, 63)
	b, noTo := strconv.ParseUint(to, 10, 63)
	switch {
	case !is || from == "" && noTo != nil || from != "" && noFrom != nil || to != "" && noTo != nil:
		return false
	case from == "":
		return b > 0
	}
	return to == "" || a <= b
}

type getter struct {
	to     reach
	span   string
	stderr io.Writer
	others func(ctx context.Context, id string) []*holder // further holders, for when one goes in the middle of a block
}

// inFlight is how long to wait for a block that is being sent to another node.
const inFlight = time.Minute

// get finds the holders of the block and asks them in turn.
func (g *getter) get(ctx context.Context, id string, to *target) error {
	local, err := g.to.local()
	if err != nil {
		return err
	}
	var from []*holder
	var doubt error
	if local {
		from = []*holder{g.to.self()}
		g.others = func(context.Context, string) []*holder { return from }
	} else {
		g.others = func(ctx context.Context, id string) []*holder {
			have, _, _, _ := g.to.find(ctx, id, 1, true) // the error that made it look for others is reported, not this one's
			return have
		}
		var lost *client.LostError
		if from, lost, doubt, err = g.to.find(ctx, id, 1, false); err != nil {
			return err
		}
		if lost != nil {
			return incompletef("get %s: %w", id, lost)
		}
	}
	return g.fromAny(ctx, id, from, doubt, to)
}

// fromAny tries each holder, and then looks once for others. A holder that fails is no reason to give up while another may have the
// block.
func (g *getter) fromAny(ctx context.Context, id string, from []*holder, doubt error, to *target) error {
	var troubles []error
	if doubt != nil {
		troubles = append(troubles, doubt)
	}
	tried := map[string]bool{}
	for further := false; len(from) > 0; {
		h := from[0]
		from, tried[h.node] = from[1:], true
		err := g.patiently(ctx, id, h, to)
		many, isMany := errors.AsType[*client.MembersError](err)
		final, isFinal := errors.AsType[*finalError](err)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("get %s: %w", id, context.Cause(ctx))
		case isMany:
			return g.members(ctx, id, h, many, to)
		case isFinal:
			return fmt.Errorf("get %s from %s: %w", id, h, final)
		case errors.Is(err, client.ErrLost):
			return incompletef("get %s: %w", id, err)
		case !errors.Is(err, client.ErrUnknown):
			troubles = append(troubles, fmt.Errorf("from %s: %w", h, bare(err)))
		}
		if len(from) == 0 && !further && g.others != nil {
			further = true
			from = slices.DeleteFunc(slices.Clone(g.others(ctx, id)), func(o *holder) bool { return tried[o.node] })
		}
	}
	if len(troubles) > 0 {
		return fmt.Errorf("get %s: %w", id, joinErrors(troubles))
	}
	return notFoundf("get %s: nobody has it", id)
}

// members writes each member of a map output into a directory. Without a directory it fails, and the error names the members.
func (g *getter) members(ctx context.Context, id string, h *holder, many *client.MembersError, to *target) error {
	if to.dir == nil || to.name != "" {
		var b strings.Builder
		fmt.Fprintf(&b, "get %s: it has several members; get one of them, or give a directory with -o:", id)
		for _, m := range many.Members {
			fmt.Fprintf(&b, "\n  %s (%s)", show.Plain(m.ID), show.Size(m.Bytes))
		}
		return usagef("%s", b.String())
	}
	if g.span != "" {
		return usagef("get %s: --range is of one member, and this has several", id)
	}
	for _, m := range many.Members {
		if err := g.fromAny(ctx, m.ID, []*holder{h}, nil, to); err != nil {
			return err
		}
	}
	return nil
}

// patiently asks one holder, and repeats that for up to inFlight while the block is being sent there.
func (g *getter) patiently(ctx context.Context, id string, h *holder, to *target) error {
	until, said := time.Now().Add(inFlight), false
	for {
		err := g.once(ctx, id, h, to)
		flight, ok := errors.AsType[*client.InFlightError](err)
		if !ok || time.Now().Add(flight.Retry).After(until) {
			return err
		}
		if !said {
			said = true
			fmt.Fprintln(g.stderr, show.Plain(fmt.Sprintf("%s: %v: asking again for %s", id, err, show.Span(inFlight))))
		}
		if !await.Sleep(ctx, flight.Retry) {
			return err
		}
	}
}

// once asks one holder, and writes the block from its answer.
func (g *getter) once(ctx context.Context, id string, h *holder, to *target) error {
	header := http.Header{}
	if g.span != "" {
		header.Set("Range", "bytes="+g.span)
	}
	resp, err := h.open(ctx, id, header)
	if err != nil {
		return err
	}
	body := newResumed(ctx, g, id, header, resp)
	defer body.Close()
	switch {
	case resp.StatusCode == http.StatusOK && g.span == "", resp.StatusCode == http.StatusPartialContent && g.span != "":
		return to.write(id, body, resp.ContentLength)
	case resp.StatusCode == http.StatusOK && resp.ContentLength == 0: // an empty block has no range to give
		return &finalError{usagef("--range %s: the block has no such bytes: it is empty", g.span)}
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return &finalError{usagef("--range %s: the block has no such bytes (%s)", g.span, resp.Header.Get("Content-Range"))}
	}
	return client.Refused(resp)
}

// finalError is an error for which another holder need not be asked: it would answer the same.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }
