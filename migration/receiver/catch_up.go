package receiver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
)

// A node that is away or cut off is not told when its blocks change on the nodes that they were born on. If it got a block from a third
// node, nobody remembers to tell it later either, and its readers would get old bytes. So once it is back it asks the nodes that its
// blocks were born on, and where a node is gone, the others that have the block.

// CatchUp tells whom a node asks that is back.
type CatchUp struct {
	// Where returns the address at which a node's blocks are read; "": the node is not there.
	Where func(ctx context.Context, node string) (address string, err error)
	// Ask is a Fetcher's AtHome.
	Ask func(ctx context.Context, h reading.Holder, about []reading.Version) (reading.AtHome, error)
	// WhoElse returns the holders of some of these blocks. sure: every node has reported what it has. Nil: nobody else
	// is asked.
	WhoElse func(ctx context.Context, blocks []inventory.BlockID) (holders []reading.Holder, sure bool, err error)
	// Of names the nodes whose blocks are asked about. Nil: all.
	Of map[string]bool
}

// CatchUp removes blocks that have changed meanwhile, as far as anybody says so. It reports false if not all could be
// asked.
func (r *removal) CatchUp(ctx context.Context, whom CatchUp) (all bool) {
	if r.storesAway() {
		return false
	}
	c := catchingUp{CatchUp: whom, r: r, at: map[string]string{}, silent: map[string]bool{}, made: madeDirs{}, unsaid: map[string]bool{}}
	never := func() bool { return false } // it goes on under notice: blocks that have changed must not be handed on
	_, hangs := diskio.InStints(ctx, r.storesAway, never, func(ctx context.Context, rest func() bool) {
		all = c.through(ctx, rest)
	})
	return ctx.Err() == nil && !hangs && all // a look that hangs has not assigned all
}

type catchingUp struct {
	CatchUp
	r      *removal
	at     map[string]string // addresses of the nodes that blocks were born on; "": not there
	silent map[string]bool   // nodes that did not answer
	made   madeDirs
	unsaid map[string]bool // nodes that did not say what has changed; "": the coordinator
	unread bool            // the catalog could not be read to its end
}

func (c *catchingUp) through(ctx context.Context, rest func() bool) (all bool) {
	of, n := map[string][]catalog.Record{}, 0
	for rec, err := range c.r.cfg.Vault.Catalog.All() {
		c.unread = c.unread || err != nil && rec.ID == "" // the records after this were not read
		if err != nil || rec.Origin == c.r.cfg.Node || rec.Origin == "" || c.Of != nil && !c.Of[rec.Origin] {
			continue // a record that cannot be read is left to scrub
		}
		of[rec.Origin] = append(of[rec.Origin], rec)
		if n++; n == reading.MostAsked {
			c.askAll(ctx, of)
			of, n = map[string][]catalog.Record{}, 0
		}
		if !rest() {
			return false
		}
	}
	c.askAll(ctx, of)
	if err := c.r.giveBack(ctx, c.made); err != nil {
		c.r.cfg.Log.Warn("not all copies that are out of date could be removed yet", "err", err)
	}
	return len(c.unsaid) == 0 && !c.unread
}

// askAll asks about blocks, by the nodes that they were born on.
func (c *catchingUp) askAll(ctx context.Context, of map[string][]catalog.Record) {
	var orphans []catalog.Record
	for _, home := range slices.Sorted(maps.Keys(of)) {
		switch address, err := c.where(ctx, home); {
		case err != nil:
			c.notSaid(home, err)
		case address == "":
			orphans = append(orphans, of[home]...)
		default:
			c.ask(ctx, reading.Holder{Node: home, Address: address}, of[home])
		}
	}
	if len(orphans) == 0 || c.WhoElse == nil {
		return
	}
	ids := make([]inventory.BlockID, len(orphans))
	for i, rec := range orphans {
		ids[i] = inventory.BlockID(rec.ID)
	}
	holders, sure, err := c.WhoElse(ctx, ids)
	switch {
	case err != nil:
		c.notSaid("", fmt.Errorf("ask the coordinator who else has them: %w", err))
	case !sure:
		c.notSaid("", errors.New("not every node has said yet what it has"))
	}
	for _, h := range holders {
		c.ask(ctx, h, orphans)
	}
}

func (c *catchingUp) where(ctx context.Context, home string) (address string, err error) {
	address, known := c.at[home]
	if !known {
		if address, err = c.Where(ctx, home); err == nil {
			c.at[home] = address
		}
	}
	return address, err
}

// notSaid logs once for each node that it did not answer: there may be a thousand questions to one.
func (c *catchingUp) notSaid(by string, err error) {
	if c.unsaid[by] {
		return
	}
	c.unsaid[by] = true
	log := c.r.cfg.Log
	if by != "" {
		log = log.With("node", by)
	}
	log.Info("it is not known whether blocks have changed: that is asked again", "err", err)
}

// ask removes the blocks of which a node says that it has another version.
func (c *catchingUp) ask(ctx context.Context, h reading.Holder, about []catalog.Record) {
	if c.silent[h.Node] {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reading.ForgetTimeout)
	defer cancel()
	asked := make([]reading.Version, len(about))
	for i, rec := range about {
		asked[i] = reading.Version{ID: inventory.BlockID(rec.ID), Tag: rec.Tag(), Origin: rec.Origin, Modified: rec.ModTime}
	}
	is, err := c.Ask(ctx, h, asked)
	if err != nil {
		c.silent[h.Node] = true
		c.notSaid(h.Node, err)
	}
	changed := reading.Picked(is.Changed, about)
	if len(changed) == 0 {
		return
	}
	tell := c.r.removed(h.Node + " has another version")
	gone, err := c.r.removeBatch(changed, func(gone []catalog.Record) { c.made.note(c.r.stores, gone); tell(gone) })
	if err != nil {
		c.notSaid(h.Node, fmt.Errorf("remove what has changed: %w", err))
	}
	c.r.cfg.Log.Info("blocks changed while this node was away: its copies are removed", "node", h.Node, "blocks", gone.Blocks, "bytes", gone.Bytes)
}
