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

// A node may be advised to go for weeks. What it has copied ahead is kept here for as long as the node is there, may go, and has the
// block; then for a whole Keep after the node went. If age alone counted, the blocks that landed last could be removed an hour after
// the node is gone, while work still needs them.
//
// What another node has handed on had landed before, so its age here does not matter once its home has been gone for a whole Keep. In a
// fleet whose nodes live for less than that, each hands on what it has, and no such block would ever be old enough.

// Home is what is known of the node that blocks were born on.
type Home struct {
	Stays   bool
	GoneFor time.Duration // 0: the node is there
	Lacks   []int         // indexes of the blocks asked about that the node no longer has in that version
	// KnownFor is for how long the node has been known as this machine. A machine before it with the same name went then, or earlier. 0:
	// unknown.
	KnownFor time.Duration
}

// aged is one look for blocks that have been here long enough. One goroutine uses it.
type aged struct {
	cfg    *Config
	now    time.Time
	silent int             // nodes about which nothing could be learned
	gone   map[string]bool // whether nodes that were asked about have been gone for a whole Keep
}

// old picks the records that ended is to judge.
func (a *aged) old(rec catalog.Record) bool {
	handedOn := a.cfg.Home != nil && rec.Origin != "" && rec.Origin != a.cfg.Node && rec.Origin != rec.From
	return (handedOn || !a.young(rec)) && (a.cfg.InUse == nil || !a.cfg.InUse(vault.HeldOf(rec).App()))
}

func (a *aged) young(rec catalog.Record) bool { return a.now.Sub(rec.Landed) <= a.cfg.Keep }

// wentLongAgo reports whether a node is known to have been gone for a whole Keep. Each look asks once for each node.
func (a *aged) wentLongAgo(ctx context.Context, node string) bool {
	gone, asked := a.gone[node]
	if !asked && a.silent < reading.MostSilent {
		home, err := a.cfg.Home(ctx, node, nil)
		if err != nil {
			a.silent++
		}
		gone = err == nil && home.GoneFor > a.cfg.Keep
		a.gone[node] = gone
	}
	return gone
}

// ended returns the records, of some old ones, whose blocks are to go. If nothing can be learned of a block's home the
// block stays, and the next look asks again.
func (a *aged) ended(ctx context.Context, old []catalog.Record) (ended []catalog.Record) {
	of := map[string][]catalog.Record{}
	for _, rec := range old {
		switch {
		case a.cfg.Home == nil || rec.Origin == "" || rec.Origin == a.cfg.Node:
			ended = append(ended, rec)
		case !a.young(rec):
			of[rec.Origin] = append(of[rec.Origin], rec)
		case a.wentLongAgo(ctx, rec.Origin):
			ended = append(ended, rec)
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
		home, err := a.cfg.Home(ctx, node, about)
		if err != nil {
			a.silent++
			a.cfg.Log.Info("it is not known whether a node has still what came from it: that is kept for now", "node", node, "blocks", len(about), "err", err)
			continue
		}
		for i, rec := range records {
			if a.now.Sub(rec.Landed) > home.KnownFor && 0 < home.KnownFor && home.KnownFor <= a.cfg.Keep {
				continue // the block may come from the machine before this one
			}
			if home.Stays || home.GoneFor > a.cfg.Keep || slices.Contains(home.Lacks, i) {
				ended = append(ended, rec)
			}
		}
	}
	return ended
}
