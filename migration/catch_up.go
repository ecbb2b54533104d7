package migration

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// A node that is away, or cut off, is not told what changes meanwhile where its blocks were born, and if it has them over others nobody
// remembers to tell it later: who reads there would be given what they were. So it asks, once it is back. Of those whose home is gone
// nobody knows it any more.

// CatchUp removes what is something else by now where it was born, as far as that node says so. where says where a node's blocks are
// read, "" if it is not there; ask is a Fetcher's AtHome. It reports false if not all could be asked.
func (r *Receiver) CatchUp(ctx context.Context, where func(ctx context.Context, node string) (string, error), ask func(context.Context, Holder, []Version) (AtHome, error)) (all bool) {
	c := catchUp{Receiver: r, where: where, ask: ask, at: map[string]string{}, made: madeDirs{}}
	_, hangs := inStints(ctx, r.storesAway, r.leaving, func(ctx context.Context, rest func() bool) {
		all = c.through(ctx, rest)
	})
	return all && !hangs && ctx.Err() == nil
}

type catchUp struct {
	*Receiver
	where  func(ctx context.Context, node string) (string, error)
	ask    func(context.Context, Holder, []Version) (AtHome, error)
	at     map[string]string // addresses of nodes that blocks were born on, "" for those that are not asked
	made   madeDirs
	unsaid bool // by some of them
}

func (c *catchUp) through(ctx context.Context, rest func() bool) (all bool) {
	of, n := map[string][]record{}, 0
	for rec, err := range c.cfg.Vault.catalog.all() {
		if err != nil || rec.Origin == c.cfg.Node || rec.Origin == "" {
			continue // a record that cannot be read is seen to by who reads back what landed
		}
		of[rec.Origin] = append(of[rec.Origin], rec)
		if n++; n == askedAbout {
			c.askEach(ctx, of)
			of, n = map[string][]record{}, 0
		}
		if !rest() {
			return false
		}
	}
	c.askEach(ctx, of)
	if err := c.giveBack(ctx, c.made); err != nil {
		c.cfg.Log.Warn("the room of copies that are out of date is not free yet", "err", err)
	}
	return !c.unsaid
}

func (c *catchUp) askEach(ctx context.Context, of map[string][]record) {
	for _, home := range slices.Sorted(maps.Keys(of)) {
		changed, err := c.changed(ctx, home, of[home])
		if err != nil {
			c.at[home], c.unsaid = "", true
			c.cfg.Log.Info("it is not known whether blocks have changed where they were born: that is asked again", "node", home, "err", err)
		}
		if len(changed) == 0 {
			continue
		}
		tell := c.removed("it changed on " + home)
		gone, err := c.removeBatch(changed, func(gone []record) { c.made.note(c.stores, gone); tell(gone) })
		if err != nil {
			c.unsaid = true
			c.cfg.Log.Warn("copies that are out of date cannot be removed: it is tried again", "node", home, "err", err)
		}
		if gone.Blocks > 0 {
			c.cfg.Log.Info("blocks changed while this node was away: its copies are removed", "node", home, "blocks", gone.Blocks, "bytes", gone.Bytes)
		}
	}
}

// changed asks a home about what was born there.
func (c *catchUp) changed(ctx context.Context, home string, about []record) (changed []record, err error) {
	ctx, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	address, known := c.at[home]
	if !known {
		if address, err = c.where(ctx, home); err != nil {
			return nil, fmt.Errorf("ask where %s is: %w", home, err)
		}
		c.at[home] = address
	}
	if address == "" {
		return nil, nil
	}
	asked := make([]Version, len(about))
	for i, rec := range about {
		asked[i] = Version{BlockID(rec.ID), rec.tag()}
	}
	is, err := c.ask(ctx, Holder{home, address}, asked)
	return picked(is.Changed, about), err
}
