package heartbeat

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
)

// Held is what the coordinator says of blocks that this node carried to peers.
type Held struct {
	Missing []int    // the blocks that nobody has any more, by their places in the question
	Why     string   // the first of these is missing, as far as that is known
	Unsure  int      // of how many other blocks it cannot tell yet
	Holders []string // the nodes that have the rest, sorted: one for each block is enough
	At      []string // of WhoElse: one holder for each block, "" where none is known; nil: the coordinator is an older one
}

// mostTakers is how many peers one question may name (api/lifeboat.proto).
const mostTakers = 1024

// Peers is what the coordinator says of nodes that took blocks.
type Peers struct {
	Gone      []string          // the peers that are gone, or are drained and about to go
	Renewed   map[string]string // the names that other machines have now, with the ids of these
	Addresses map[string]string // at which the peers that are there are read
	Index     uint64            // of the last event
	Log       uint64            // the log that has that event
	// GoneFor is for how long each peer that is gone has been; 0: it may go any moment. A peer that stays has no entry.
	GoneFor map[string]time.Duration
	// KnownFor is for how long each peer has been known as the machine that it is: another machine may have had its name
	// before.
	KnownFor map[string]time.Duration
}

// CheckPeers asks what became of peers that took blocks after the event since. With 0, an unknown event, it does not ask
// which of them are other machines now.
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

// CheckHeld asks who has blocks that were carried to peers at least age ago.
func (c *Client) CheckHeld(ctx context.Context, age time.Duration, blocks []*api.HeldBlock) (held Held, err error) {
	return c.checkHeld(ctx, age, blocks, false)
}

// WhoElse asks which other nodes have blocks of this node, in whatever version: Holders names all of them.
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
