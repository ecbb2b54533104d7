package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/lifeboat/lifeboat/api"
)

// account reads, message by message, the newest account (manifest) that a node left with its peers. Nil: there is none, or
// none that can be read now. For a node that is leaving or has left, or whose last manifest is known by its figures, only accounts of that
// drain count, not those of earlier ones.
func (r *reach) account(ctx context.Context, node string) (recv func() (*api.GoodbyeRequest, error)) {
	var newest *api.ManifestSummary
	for _, id := range r.accounts(ctx, node) {
		next, err := r.readAccount(ctx, id)
		if err != nil {
			continue
		}
		first, err := next()
		if s := first.GetSummary(); err != nil || s.GetNode() != node || newest != nil && s.GetFinishedAt().AsTime().Before(newest.GetFinishedAt().AsTime()) {
			continue
		}
		newest = first.Summary
		recv = func() (*api.GoodbyeRequest, error) {
			if m := first; m != nil {
				first = nil
				return m, nil
			}
			return next()
		}
	}
	return recv
}

// accounts are the ids of a node's accounts that the coordinator knows to be held by peers.
func (r *reach) accounts(ctx context.Context, node string) (ids []string) {
	operator, l, err := r.operator()
	if err != nil {
		return nil
	}
	defer l.Close()
	prefix := api.AccountPrefix(node)
	if n, err := operator.GetNode(ctx, &api.GetNodeRequest{Node: node}); err == nil {
		switch incident := n.GetStatus().GetNotice().GetIncident(); {
		case n.GetState() == "DECOMMISSIONING" && incident == "":
			return nil // the node has not heard the order yet, and so has no account of it
		case n.GetState() == "DECOMMISSIONING":
			prefix += incident
		case n.GetManifest() != nil: // the coordinators have only its figures: an earlier account would tell of another drain
			prefix += n.Manifest.Incident
		case departed(n):
			prefix += incident
		}
	}
	for reply := range api.Received(operator.ListBlocks(ctx, &api.ListBlocksRequest{})) { // an error ends the list, and what came so far counts
		for _, b := range reply.GetBlocks() {
			if strings.HasPrefix(b.GetId(), prefix) && b.GetState() == "held" {
				ids = append(ids, b.GetId())
			}
		}
	}
	return ids
}

func (r *reach) readAccount(ctx context.Context, id string) (next func() (*api.GoodbyeRequest, error), err error) {
	var b bytes.Buffer
	g := getter{to: *r, stderr: io.Discard}
	if err := g.get(ctx, id, &target{stream: &b}); err != nil {
		return nil, err
	}
	in := bufio.NewReader(&b)
	return func() (*api.GoodbyeRequest, error) {
		m := &api.GoodbyeRequest{}
		if err := protodelim.UnmarshalFrom(in, m); err != nil {
			return nil, err
		}
		return m, nil
	}, nil
}
