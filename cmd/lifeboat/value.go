package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

const (
	valuesPerCall = 1000    // the most that the agent takes
	mostValues    = 1 << 20 // more than the agent keeps
	longestLine   = 8 << 10 // an id of 4 KiB and a duration
)

func valueCommand() *cobra.Command {
	var to reach
	cmd := &cobra.Command{
		Use:   "value BLOCK=DURATION... | -",
		Short: "Say how long it takes to compute blocks again",
		Long: `Tells the agent of this machine how long it takes to compute blocks again, which decides what leaves first when time is short:
what is worth most a byte. It is the last word on a block, above files beside the blocks and hints of the settings, until
another is said, the block is gone, or it was not said again for 30 days. It is kept on disk, and goes with the block from
node to node. A value may be said before its block is written, and is forgotten if there is none after a day.

With - it reads lines "BLOCK DURATION" from standard input; empty ones and those that begin with # count for nothing. A
duration is 1ms to 720h; 0 takes back what was said. When one of the values is wrong none is taken, and it is named.
` + "`lifeboat blocks`" + ` on this machine shows what blocks are worth. It takes root or the agent's user.`,
		Example: `  lifeboat value cache/-/model-7.bin=2h cache/-/scratch.bin=1s
  lifeboat value spark/application_17_1/rdd_5_2=90s
  my-engine costs | lifeboat value -`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			var values []*api.BlockValue
			var err error
			if len(args) == 1 && args[0] == "-" {
				values, err = valuesOf(typed(cmd.Context(), cmd.InOrStdin()))
			} else {
				values, err = valuesIn(args)
			}
			if err != nil {
				return err
			}
			if err := to.setValues(cmd.Context(), values); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "took the value of %s\n", show.Count(int64(len(values)), "block"))
			return err
		},
	}
	to.socketFlags(cmd)
	return cmd
}

// valuesIn parses arguments BLOCK=DURATION. A block's id may contain a =, so the last one separates.
func valuesIn(args []string) ([]*api.BlockValue, error) {
	values := make([]*api.BlockValue, len(args))
	for i, arg := range args {
		at := strings.LastIndexByte(arg, '=')
		if at < 0 {
			return nil, usagef("value: %q: want BLOCK=DURATION", show.Plain(arg))
		}
		v, err := blockValue(arg[:at], arg[at+1:])
		if err != nil {
			return nil, usagef("value: %s: %w", show.Plain(arg), err)
		}
		values[i] = v
	}
	return values, nil
}

// valuesOf reads lines "BLOCK DURATION". A block's id may contain a space, so the last one separates.
func valuesOf(r io.Reader) (values []*api.BlockValue, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestLine)
	n := 1
	for ; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndexAny(line, " \t")
		if at < 0 {
			return nil, usagef("value: line %d: %q: want BLOCK DURATION", n, show.Plain(line))
		}
		v, err := blockValue(strings.TrimSpace(line[:at]), line[at+1:])
		if err != nil {
			return nil, usagef("value: line %d: %s: %w", n, show.Plain(line), err)
		}
		if values = append(values, v); len(values) > mostValues {
			return nil, usagef("value: line %d: more than %d values", n, mostValues)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("value: line %d: %w", n, err)
	}
	if len(values) == 0 {
		return nil, usagef("value: no line names a block")
	}
	return values, nil
}

func blockValue(id, value string) (*api.BlockValue, error) {
	d, err := time.ParseDuration(value)
	if err != nil {
		return nil, fmt.Errorf("%q is no duration: want one like 90s or 2h30m, or 0", show.Plain(value))
	}
	return &api.BlockValue{Id: id, Value: durationpb.New(d)}, nil
}

// setValues has the agent set all values or, if one of them is wrong, none. More than valuesPerCall take several calls, so the agent
// checks all of them before it takes the first.
func (r *reach) setValues(ctx context.Context, values []*api.BlockValue) error {
	agent, l, err := r.agent()
	if err != nil {
		return err
	}
	defer l.Close()
	say := func(from int, check bool) error {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		some := values[from:min(from+valuesPerCall, len(values))]
		if _, err := agent.SetValues(ctx, &api.SetValuesRequest{Values: some, Check: check}); err != nil {
			which := "value of " + show.Plain(some[0].GetId())
			if len(some) > 1 {
				which = fmt.Sprintf("values of %s and %d more", show.Plain(some[0].GetId()), len(some)-1)
			}
			return l.rpcError("set the "+which, err)
		}
		return nil
	}
	for _, check := range []bool{true, false} {
		if check && len(values) <= valuesPerCall {
			continue // one call is taken whole or not at all
		}
		for from := 0; from < len(values); from += valuesPerCall {
			if err := say(from, check); err != nil {
				return err
			}
		}
	}
	return nil
}
