package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/config"
)

func blocksCommand() *cobra.Command {
	var to reach
	var out show.Format
	var node, store string
	cmd := &cobra.Command{
		Use:   "blocks",
		Short: "List blocks: held for others, or, on a node, what a drain would carry now",
		Long: `Asks the coordinator which blocks landed where, and which are lost: who took them is gone, and so is
the node that they came from, or a node left without them. Without a coordinator it asks the agent of this machine which
blocks a drain would carry now, and shows what somebody said that they are worth: how long it takes to compute them again
(lifeboat value --help).`,
		Example: `  lifeboat blocks --node host-b
  lifeboat blocks --socket /run/lifeboat/agent.sock
  lifeboat blocks -o json | jq -r '.[] | select(.state == "lost") | .id'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			local, err := to.local()
			if err != nil {
				return err
			}
			if local && node != "" {
				return usagef("blocks: --node needs the coordinator: give --coordinator ADDR or set LIFEBOAT_COORDINATOR")
			}
			p := blockPrinter{w: cmd.OutOrStdout(), out: out, list: show.JSONList{W: cmd.OutOrStdout()}, values: local, store: store, others: map[string]bool{}}
			for b, err := range to.blocks(cmd.Context(), &api.ListBlocksRequest{Node: node}) {
				if err == nil {
					err = p.add(b)
				}
				if err != nil {
					return err
				}
			}
			if p.store != "" && p.blocks == 0 {
				if err := to.hasStore(cmd.Context(), p.store, p.others); err != nil {
					return err
				}
			}
			if err := p.end(); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s, %s\n", show.Count(p.blocks, "block"), show.Size(p.bytes))
			return nil
		},
	}
	to.coordinatorFlags(cmd)
	to.socketFlags(cmd)
	out.Flag(cmd)
	cmd.AddCommand(removeBlocksCommand())
	cmd.Flags().StringVar(&node, "node", "", "only those that `NODE` holds")
	cmd.Flags().StringVar(&store, "store", "", "only those of the store `STORE`; accounts of drains, left with peers, are in "+api.AccountStore)
	_ = cmd.RegisterFlagCompletionFunc("node", to.completeNodes)
	return cmd
}

// blocks lists the blocks that the coordinator knows, or without a coordinator those of this machine's agent.
func (r *reach) blocks(ctx context.Context, req *api.ListBlocksRequest) iter.Seq2[*api.BlockInfo, error] {
	return func(yield func(*api.BlockInfo, error) bool) {
		local, err := r.local()
		if err != nil {
			yield(nil, err)
			return
		}
		stream, l, err := openStream(ctx, r, local, api.LocalClient.ListBlocks, api.OperatorClient.ListBlocks, req)
		if l == nil {
			yield(nil, err)
			return
		}
		defer l.Close()
		for reply, err := range api.Received(stream, err) {
			if err != nil {
				yield(nil, l.rpcError("list blocks", err))
				return
			}
			for _, b := range reply.GetBlocks() {
				if !yield(b, nil) {
					return
				}
			}
		}
	}
}

// hasStore fails if there is no store of that name. The stores are those that nodes have, and those in there, of which blocks were listed.
func (r *reach) hasStore(ctx context.Context, store string, there map[string]bool) error {
	local, err := r.local()
	if err != nil {
		return err
	}
	var all []*api.Status
	if local {
		s, err := call(ctx, r.agent, "ask for the stores", api.LocalClient.GetStatus, &api.GetAgentStatusRequest{})
		if err != nil {
			return err
		}
		all = append(all, s.GetStatus())
	} else {
		nodes, err := call(ctx, r.operator, "ask for the stores", api.OperatorClient.ListNodes, &api.ListNodesRequest{})
		if err != nil {
			return err
		}
		for _, n := range nodes.GetNodes() {
			all = append(all, n.GetStatus())
		}
	}
	there[api.AccountStore] = true
	for _, s := range all {
		for _, st := range s.GetStores() {
			there[show.Plain(st.GetName())] = true
		}
	}
	if there[store] {
		return nil
	}
	return notFoundf("blocks --store %s: there is no such store: there are %s", store, strings.Join(slices.Sorted(maps.Keys(there)), ", "))
}

// looked is how many blocks a completion looks at: a fleet may have millions.
const looked = 20_000

// completeBlock offers ids of blocks to the shell one part (STORE/, SCOPE/, NAME) at a time, as shells do with paths.
func (r *reach) completeBlock(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), keyPatience)
	defer cancel()
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found, directive, seen := map[string]bool{}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace, 0
	for b, err := range r.blocks(ctx, &api.ListBlocksRequest{}) {
		if seen++; err != nil || seen > looked {
			break // offer what has come so far
		}
		rest, is := strings.CutPrefix(show.Plain(b.GetId()), prefix)
		if !is || prefix == "" && strings.HasPrefix(rest, api.AccountStore+"/") {
			continue
		}
		part, _, more := strings.Cut(rest, "/")
		if more {
			part += "/"
		} else {
			directive &^= cobra.ShellCompDirectiveNoSpace
		}
		found[prefix+part] = true
	}
	return slices.Sorted(maps.Keys(found)), directive
}

// blockPrinter prints blocks as they come, without keeping them: a fleet may have millions.
type blockPrinter struct {
	w             io.Writer
	out           show.Format
	list          show.JSONList
	values        bool            // the list is an agent's, which knows the blocks' values
	store         string          // the store whose blocks are printed; empty: all but that of accounts
	others        map[string]bool // other stores, whose blocks were not printed
	blocks, bytes int64
}

func (p *blockPrinter) add(b *api.BlockInfo) error {
	if of, _, _ := strings.Cut(b.GetId(), "/"); p.store != "" && of != p.store || p.store == "" && of == api.AccountStore {
		if config.IsName(of) { // a directory that could not be read is listed too, under a remark instead of an id
			p.others[of] = true
		}
		return nil
	}
	if p.blocks == 0 && p.out != show.JSON {
		if err := p.line("SIZE", "STATE", "VALUE", "HOLDERS", "BLOCK"); err != nil {
			return err
		}
	}
	p.blocks++
	p.bytes += b.GetBytes()
	if p.out == show.JSON {
		return p.list.Add(api.BlockToJSON(b))
	}
	holders, value := cmp.Or(strings.Join(b.GetHolders(), ","), "-"), "-"
	if b.GetValue() != nil {
		value = show.Span(b.GetValue().AsDuration())
	}
	return p.line(show.Size(b.GetBytes()), show.Dash(b.GetState()), value, holders, b.GetId())
}

func (p *blockPrinter) line(bytes, state, value, holders, id string) error {
	state = fmt.Sprintf("%-5s", show.Plain(state))
	if p.values {
		state += fmt.Sprintf("  %7s", value)
	}
	_, err := fmt.Fprintln(p.w, show.Listed(show.WidthOf(p.w), fmt.Sprintf("%10s  %s", bytes, state), holders, id, blockHolders))
	return err
}

// blockHolders is the usual width of the column of holders.
const blockHolders = 24

func (p *blockPrinter) end() error {
	if p.out != show.JSON {
		return nil
	}
	return p.list.End("\n")
}
