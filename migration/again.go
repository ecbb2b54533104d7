package migration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/plan"
)

// Broken is a block of a drain of this node that is no longer whole at Peer. The drain carried it there, or to another peer that handed
// it on to Peer, an heir.
type Broken struct {
	ID   inventory.BlockID
	Peer string
	Heir bool
}

func (b Broken) words() string { return "what " + b.Peer + " had of it is broken" }

// shunBroken is how long a block is offered to others before the peer that it broke at may have it again: as long as it
// takes to connect to one.
const shunBroken = time.Second

// CarryAgain makes a running drain carry broken blocks again that it has moved itself. rest are the blocks that come too late for it, or lie
// here on a disk that does not answer: the caller asks again, and at last has a drain that follows carry them (DrainConfig.Again). An error
// says that the account could not be read to find out which blocks this drain moved; then all are carried again.
func (d *Drain) CarryAgain(ctx context.Context, broken []Broken) (rest []Broken, err error) {
	said := broken
	_, err = diskio.UnlessHung(ctx, func() (bool, error) {
		var err error
		said, err = d.claims.carryBroken(broken, true)
		return true, err
	})
	if err != nil && ctx.Err() != nil {
		return broken, err
	}
	return said, err
}

// carryBroken is CarryAgain. Unless it awaits disks that do not answer, what lies on one is lost.
func (c *claims) carryBroken(broken []Broken, awaits bool) (rest []Broken, err error) {
	if c.plan.Sealed() {
		return broken, nil
	}
	asked := make(map[inventory.BlockID]bool, len(broken))
	for _, b := range broken {
		asked[b.ID] = true
	}
	lines, err := c.account.ledger.Newest(asked)
	for _, b := range broken {
		e, known := lines[b.ID]
		switch {
		case err != nil: // better twice than not at all
			e = manifest.Entry{Outcome: manifest.Voided}
		case !known || e.Peer != b.Peer && !b.Heir:
			continue // not moved by this drain, or moved elsewhere since
		}
		if !c.again(b, e, awaits) {
			rest = append(rest, b)
		}
	}
	return rest, err
}

// again puts a block back into the plan. It reports false when that comes too late for this drain, or its disk is awaited.
func (c *claims) again(b Broken, e manifest.Entry, awaits bool) bool {
	blk, found := c.source.findAgain(b.ID)
	if e.Outcome == manifest.Voided && found == nil && c.account.history.takenBack(b.ID) && len(c.broken) == 0 {
		return true // an earlier run took its line back: the scan meets the block
	}
	if found != nil && c.account.once || awaits && diskio.IsSilent(found) {
		return false // the last pass names it
	}
	if found == nil && c.account.history.waits(blk) {
		return true // asked before
	}
	if c.plan.Sealed() {
		return false
	}
	if e.Outcome == manifest.Moved {
		c.account.ledger.Void(e)
	}
	if found != nil {
		if errors.Is(found, fs.ErrNotExist) {
			found = errors.New("it is not here any more")
		}
		c.account.ledger.Add(manifest.Entry{ID: string(b.ID), Bytes: e.Bytes, Outcome: manifest.Lost, Reason: fmt.Sprintf("%s, and here: %v", b.words(), found)})
		return true
	}
	c.log.Warn("a block is carried again", "block", b.ID, "bytes", blk.Bytes(), "peer", b.Peer, "err", b.words())
	if !c.plan.Again(plan.Entry{Block: blk}.After(plan.Setbacks{Shun: b.Peer, Shunned: time.Now().Add(shunBroken), Why: b.words()})) {
		return false
	}
	c.account.history.putBack(blk)
	return true
}

// carryAgain takes the place of the scan in a drain that is only for broken blocks.
func (v *survey) carryAgain(ctx context.Context) {
	began := time.Now()
	rest, err := v.claims.carryBroken(v.claims.broken, true)
	for len(rest) > 0 && err == nil && ctx.Err() == nil && time.Since(began) < thaw {
		v.rest(ctx, mostPause)
		rest, err = v.claims.carryBroken(rest, true)
	}
	if len(rest) > 0 {
		rest, err = v.claims.carryBroken(rest, false)
	}
	if err != nil {
		v.log.Warn("cannot read what was moved before: what is broken is carried again", "err", err)
	}
	for _, b := range rest {
		v.log.Error("a broken block is not carried again", "block", b.ID, "peer", b.Peer)
	}
	v.setPhase(PhaseSending)
	for v.plan.Idle(ctx) == nil && v.awaitsDisks(true) {
		v.rest(ctx, leastPause)
	}
}
