package receiver

import (
	"context"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// Advice to go may stand for weeks. What was carried ahead under it is kept for as long as its node may go and has it, and then for the
// whole time that anything is: what landed last would be gone an hour after that node, with the work that needs it.

// Home is what is known of a node that blocks were born on.
type Home struct {
	Stays   bool
	GoneFor time.Duration // 0: it is there
	Lacks   []int         // which of the blocks that were asked about it has no more as they were, by their places
	// KnownFor is for how long it has been known as the machine that it is. One before it, under its name, went then, or before. 0: nobody says.
	KnownFor time.Duration
}

// aged is one look for what has been here for long enough. One goroutine uses it.
type aged struct {
	r      *Receiver
	now    time.Time
	silent int // questions that were not answered
}

func (a *aged) old(rec catalog.Record) bool {
	cfg := a.r.cfg
	return a.now.Sub(rec.Landed) > cfg.Keep && (cfg.InUse == nil || !cfg.InUse(vault.HeldOf(rec).App()))
}

// ended are those of some old records whose time is over. What nobody speaks for stays, and each look asks.
func (a *aged) ended(ctx context.Context, old []catalog.Record) (ended []catalog.Record) {
	of := map[string][]catalog.Record{}
	for _, rec := range old {
		if a.r.cfg.Home == nil || rec.Origin == "" || rec.Origin == a.r.cfg.Node {
			ended = append(ended, rec)
		} else {
			of[rec.Origin] = append(of[rec.Origin], rec)
		}
	}
	for node, records := range of {
		if a.silent >= reading.MostSilent {
			break
		}
		about := make([]reading.Version, len(records))
		for i, rec := range records {
			about[i] = reading.Version{ID: inventory.BlockID(rec.ID), Tag: rec.Tag()}
		}
		home, err := a.r.cfg.Home(ctx, node, about)
		if err != nil {
			a.silent++
			a.r.cfg.Log.Info("it is not known whether a node has still what came from it: that is kept for now", "node", node, "blocks", len(about), "err", err)
			continue
		}
		for i, rec := range records {
			if a.now.Sub(rec.Landed) > home.KnownFor && 0 < home.KnownFor && home.KnownFor <= a.r.cfg.Keep {
				continue // it may be from the machine before
			}
			if home.Stays || home.GoneFor > a.r.cfg.Keep || slices.Contains(home.Lacks, i) {
				ended = append(ended, rec)
			}
		}
	}
	return ended
}
