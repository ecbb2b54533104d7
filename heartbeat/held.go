package heartbeat

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
)

// Held is what the coordinator says of blocks that this node carried to others.
type Held struct {
	Missing []int    // those that nobody has any more, by their places in the question
	Why     string   // the first of them is, as far as that is known
	Unsure  int      // how many of the others it cannot tell of yet
	Holders []string // who has those of which it can, in order: one name for each block is enough
	At      []string // of WhoElse: one of them for each block, "" where nobody is known to have it; nil: an older coordinator does not say
}

// mostTakers is how many one question may be about (api/lifeboat.proto).
const mostTakers = 1024

// Peers is what the coordinator says of nodes that took blocks.
type Peers struct {
	Gone      []string          // those that are not there any more, or are done and go
	Renewed   map[string]string // the ids of those that are, as other machines than before
	Addresses map[string]string // where those are read that are there
	Index     uint64            // of the last event
	Log       uint64            // that it is of
	// GoneFor is for how long those have been gone that are: 0 for those that may go any moment.
	GoneFor map[string]time.Duration
	// KnownFor is for how long those have been known that are as the machines that they are: others may have had their names before.
	KnownFor map[string]time.Duration
}

// CheckPeers asks what became of the nodes that took blocks after the event since (an Index; 0: which are other machines is not asked).
func (c *Client) CheckPeers(ctx context.Context, since uint64, peers []string) (is Peers, err error) {
	is.Renewed, is.Addresses = map[string]string{}, map[string]string{}
	is.GoneFor, is.KnownFor = map[string]time.Duration{}, map[string]time.Duration{}
	for rest := peers; ; {
		some := rest[:min(len(rest), mostTakers)]
		err := c.call(ctx, "ask who of those that took blocks is there", func(m *link) error {
			reply, err := m.CheckHeld(ctx, &api.CheckHeldRequest{Node: c.cfg.Node, Peers: some, Since: since})
			is.Gone, is.Index, is.Log = append(is.Gone, reply.GetGone()...), reply.GetIndex(), reply.GetLog()
			maps.Copy(is.Renewed, reply.GetRenewed())
			maps.Copy(is.Addresses, reply.GetAddresses())
			for node, age := range reply.GetGoneFor() {
				is.GoneFor[node] = age.AsDuration()
			}
			for node, age := range reply.GetKnownFor() {
				is.KnownFor[node] = age.AsDuration()
			}
			return err
		})
		if rest = rest[len(some):]; err != nil || len(rest) == 0 {
			return is, err
		}
	}
}

// CheckHeld asks who has blocks that were carried to others that long ago at least (age).
func (c *Client) CheckHeld(ctx context.Context, age time.Duration, blocks []*api.HeldBlock) (held Held, err error) {
	return c.checkHeld(ctx, age, blocks, false)
}

// WhoElse asks who has blocks that this node has, in whatever version: all that do are its Holders.
func (c *Client) WhoElse(ctx context.Context, age time.Duration, blocks []*api.HeldBlock) (held Held, err error) {
	return c.checkHeld(ctx, age, blocks, true)
}

func (c *Client) checkHeld(ctx context.Context, age time.Duration, blocks []*api.HeldBlock, elsewhere bool) (held Held, err error) {
	asked := 0
	for asked < len(blocks) {
		var all heldRuns
		n := asked
		for full := false; n < len(blocks) && !full; n++ {
			full = all.add(&api.HeldBlock{Id: blocks[n].GetId(), Bytes: blocks[n].GetBytes()})
		}
		r := &api.CheckHeldRequest{Node: c.cfg.Node, Age: durationpb.New(age), Elsewhere: elsewhere}
		for _, run := range all.runs {
			r.Blocks = append(r.Blocks, run.Blocks)
		}
		err := c.call(ctx, "ask who has what was carried", func(m *link) error {
			reply, err := m.CheckHeld(ctx, r)
			for _, at := range reply.GetMissing() {
				if at := asked + int(at); at < n {
					held.Missing = append(held.Missing, at)
				}
			}
			held.Holders = append(held.Holders, reply.GetHolders()...)
			for _, at := range reply.GetAt() {
				node := ""
				if at > 0 && int(at) <= len(reply.Holders) {
					node = reply.Holders[at-1]
				}
				held.At = append(held.At, node)
			}
			if held.Unsure += int(reply.GetUnsure()); held.Why == "" {
				held.Why = reply.GetWhy()
			}
			return err
		})
		if err != nil {
			return Held{}, err
		}
		asked = n
	}
	if len(held.At) != len(blocks) {
		held.At = nil
	}
	slices.Sort(held.Holders)
	held.Holders = slices.Compact(held.Holders)
	return held, nil
}
