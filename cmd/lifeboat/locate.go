package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/client"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func locateCommand() *cobra.Command {
	var to reach
	var out show.Format
	cmd := &cobra.Command{
		Use:   "locate ID",
		Short: "Say which nodes have a block",
		Long: `Says which nodes have a block: those that took it from a leaving node, or those that are found to have it in a store of
theirs. What lies in a fallback, where no node has it, is shown as fallback:NAME and the address of an agent that reads it
there. Where no agent reads that fallback now, it says who put the block there, and exits 1. Without a coordinator it asks
the agent of this machine. Exits 3 when nobody has it and 4 when it is known to be lost.`,
		Example: `  lifeboat locate cache/-/model-7.bin
  lifeboat locate spark/app-20261121/shuffle_3_14_0 -o json`,
		ValidArgsFunction: to.completeBlock,
		Args:              cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := client.CheckID(args[0]); err != nil {
				return usagef("locate %s: %w", args[0], err)
			}
			local, err := to.local()
			if err != nil {
				return err
			}
			find := to.locate
			if local {
				find = to.locateHere
			}
			at, doubt, err := find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := printLocation(cmd, out, at); err != nil {
				return err
			}
			switch {
			case at.State == "lost":
				return incompletef("locate %s: %w", at.ID, &client.LostError{Why: at.Why})
			case len(at.Holders) > 0:
				return nil
			case doubt != nil: // a node that did not answer may have the block
				return fmt.Errorf("locate %s: nobody who answered has it: %w", at.ID, doubt)
			}
			return notFoundf("locate %s: nobody has it", at.ID)
		},
	}
	to.coordinatorFlags(cmd)
	to.socketFlags(cmd)
	out.Flag(cmd)
	return cmd
}

func printLocation(cmd *cobra.Command, out show.Format, at api.LocationJSON) error {
	if out == show.JSON {
		return show.WriteJSON(cmd.OutOrStdout(), at)
	}
	if len(at.Holders) == 0 {
		return nil
	}
	var t show.Table
	t.Row("NODE", "ADDRESS")
	for _, h := range at.Holders {
		t.Row(show.Dash(h.Node), show.Dash(h.Address))
	}
	return t.Print(cmd.OutOrStdout())
}

// find returns the nodes that have a block. It asks the coordinator for the holders. If the coordinator knows no holder that answers, or
// the caller asked the holders in vain (past), find probes them and the candidates that the coordinator names until at least `enough`
// nodes have the block; if none has, it asks nodes that look into a fallback. lost means that nobody has the block any more; doubt says
// which nodes gave no answer.
func (r *reach) find(ctx context.Context, id string, enough int, past bool) (have []*holder, lost *client.LostError, doubt, err error) {
	operator, l, err := r.operator()
	if err != nil {
		return nil, nil, nil, err
	}
	defer l.Close()
	ask, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	reply, err := operator.Locate(ask, &api.LocateRequest{Id: id, PastHolders: past})
	if err != nil {
		return nil, nil, nil, l.rpcError(r.cmd.Name()+" "+id, err)
	}
	holders, err := r.nodes(reply.GetHolders())
	if err != nil || len(holders) > 0 && len(reply.GetCandidates()) == 0 {
		return holders, nil, nil, err
	}
	could := reply.GetCandidates()
	for next := reply.GetNext(); next != ""; { // of a large fleet each reply names a part
		more, err := operator.Locate(ask, &api.LocateRequest{Id: id, PastHolders: true, After: next})
		if err != nil {
			return nil, nil, nil, l.rpcError(r.cmd.Name()+" "+id, err)
		}
		could, next = append(could, more.GetCandidates()...), more.GetNext()
	}
	candidates, err := r.nodes(without(could, reply.GetHolders()))
	if err != nil {
		return nil, nil, nil, err
	}
	doors, err := r.nodes(reply.GetFallbacks())
	if err != nil {
		return nil, nil, nil, err
	}
	// A block that the coordinator calls lost is sought as well: the block map lags behind the stores.
	have, gone, doubt := seek(ctx, id, append(holders, candidates...), doors, enough)
	if len(have) == 0 {
		unheard, err := r.nodes(reply.GetUnheard())
		if err != nil {
			return nil, nil, nil, err
		}
		have, _, _ = probe(ctx, id, unheard, min(enough, len(unheard))) // these are LOST: their silence is expected, and no doubt
	}
	if len(have) == 0 && len(holders) > 0 {
		return holders, nil, doubt, nil // they do not answer now, and may be back
	}
	if fallback := reply.GetSpilled(); len(have) == 0 && fallback != "" {
		return nil, nil, joinErrors([]error{doubt, fmt.Errorf("%s put it into fallback:%s, and no agent that is there reads that: give one this fallback (/usr/share/doc/lifeboat/docs/fallback.md), then ask again", reply.GetSpilledBy(), fallback)}), nil
	}
	if len(have) == 0 && (reply.GetState() == "lost" || gone || doubt == nil && reply.GetWhy() != "") { // in doubt a silent node may have it
		lost = &client.LostError{Why: reply.GetWhy()}
	}
	return have, lost, doubt, nil
}

// without returns the nodes that are not among others.
func without(nodes, others []*api.Holder) []*api.Holder {
	return slices.DeleteFunc(nodes, func(n *api.Holder) bool {
		return slices.ContainsFunc(others, func(o *api.Holder) bool { return o.GetNode() == n.GetNode() })
	})
}

func (r *reach) locate(ctx context.Context, id string) (api.LocationJSON, error, error) {
	const all = 1 << 30
	have, lost, doubt, err := r.find(ctx, id, all, false)
	at := api.LocationJSON{ID: id, Holders: []api.HolderJSON{}, State: "unknown"}
	if lost != nil {
		at.State, at.Why = "lost", lost.Why
	}
	for _, h := range have {
		at.State = "held"
		at.Holders = append(at.Holders, api.HolderJSON{Node: h.node, Address: h.address})
	}
	return at, doubt, err
}

// locateHere asks the agent of this machine, which serves the block itself or redirects to the peer that has it.
func (r *reach) locateHere(ctx context.Context, id string) (at api.LocationJSON, doubt, err error) {
	agent, l, err := r.agent()
	if err != nil {
		return at, nil, err
	}
	defer l.Close()
	ask, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	status, err := agent.GetStatus(ask, &api.GetAgentStatusRequest{})
	if err != nil {
		return at, nil, l.rpcError("locate "+id, err)
	}
	if status.GetSidecar() {
		return at, nil, fmt.Errorf("locate %s: %s is a sidecar, which knows of no blocks: give --coordinator ADDR", id, l.whom)
	}
	self := r.self()
	req, err := http.NewRequestWithContext(ask, http.MethodHead, self.url(id)+"?redirect=true", nil)
	if err != nil {
		return at, nil, fmt.Errorf("locate %s: %w", id, err)
	}
	resp, err := self.client.Do(req)
	if err != nil {
		return at, nil, fmt.Errorf("locate %s: ask %s: %w", id, self, bare(err))
	}
	resp.Body.Close()
	at = api.LocationJSON{ID: id, Holders: []api.HolderJSON{}, State: "held"}
	switch {
	case resp.StatusCode == http.StatusTemporaryRedirect:
		where, err := url.Parse(resp.Header.Get("Location"))
		if err != nil || where.Host == "" {
			return at, nil, fmt.Errorf("locate %s: %s sent us nowhere: Location %q", id, self, resp.Header.Get("Location"))
		}
		at.Holders = append(at.Holders, api.HolderJSON{Node: nodeAt(status, where.Host), Address: where.Host})
	case has(resp.StatusCode):
		at.Holders = append(at.Holders, api.HolderJSON{Node: cmp.Or(resp.Header.Get("Lifeboat-Node"), status.GetNode())})
	case resp.StatusCode == http.StatusGone:
		at.State, at.Why = "lost", resp.Header.Get("Lifeboat-Why")
	case resp.StatusCode == http.StatusNotFound:
		at.State = "unknown"
	default:
		return at, nil, fmt.Errorf("locate %s: %s %s", id, self, statusWords(resp.StatusCode))
	}
	return at, nil, nil
}

// nodeAt returns the name of the peer with that address; empty: the agent knows none.
func nodeAt(s *api.AgentStatus, address string) string {
	for _, p := range s.GetPeers() {
		if p.GetAddress() == address {
			return p.GetNode()
		}
	}
	return ""
}
