package migration

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// LookBack makes peers forget, from time to time until ctx ends, copies from withdrawn drains of this node that are out of date
// by now: the node stays, its engines write on, and a reader who asks a peer would be given old bytes. The next drain would see
// to it at its end (withdraw), which is too late for that reader.
//
// accounts are the directories of those drains, cfg.Dir is where they lie. leaves reports whether the node is under notice: then
// its drain does the same.
func LookBack(ctx context.Context, cfg DrainConfig, accounts func() []string, leaves func() bool) error {
	l := newLookBack(cfg, accounts, leaves)
	diskio.AtLeisure(ctx, l.look)
	return nil
}

type lookBack struct {
	cfg      DrainConfig
	source   *source
	accounts func() []string
	leaves   func() bool
	busy     atomic.Bool // a look that hangs has not come back
	said     map[string]bool
}

func newLookBack(cfg DrainConfig, accounts func() []string, leaves func() bool) *lookBack {
	return &lookBack{cfg: cfg, source: newSource(cfg), accounts: accounts, leaves: leaves, said: map[string]bool{}}
}

// look goes through all accounts, and returns for how long it worked. Waiting for peers is not work.
func (l *lookBack) look(ctx context.Context) time.Duration {
	if l.hindered() || !l.busy.CompareAndSwap(false, true) {
		return 0
	}
	var waited time.Duration
	worked, hangs := diskio.InStints(ctx, l.away, l.hindered, func(ctx context.Context, rest func() bool) {
		waited = l.through(ctx, rest)
		l.busy.Store(false)
	})
	if hangs {
		l.cfg.Log.Warn("a disk hangs that has the manifests of withdrawn drains: peers may keep copies that are out of date until it answers", "dir", l.cfg.Dir)
	}
	if worked == 0 {
		return 0 // it may still wait
	}
	return worked - waited
}

// hindered reports whether no look may be now: the node leaves, or a disk is away, and what is not found on that may be there.
func (l *lookBack) hindered() bool { return l.leaves() || l.away() }

func (l *lookBack) away() bool {
	away := func(dir string) bool { return !l.source.disks.Readable(dir) }
	return away(l.cfg.Dir) || slices.ContainsFunc(l.cfg.Stores, func(s *inventory.Store) bool { return slices.ContainsFunc(s.Paths, away) })
}

func (l *lookBack) through(ctx context.Context, rest func() bool) (waited time.Duration) {
	w := newWithdrawal(l.cfg, l.source, lastHeard(l.cfg.Peers), rest)
	w.said = l.said
	for _, dir := range l.accounts() {
		waited += w.tellBy(ctx, 1, func(yield func(stale) bool) {
			for c := range w.earlier(dir, changed|deleted) {
				if l.hindered() || !yield(c) {
					return
				}
			}
		})
		if l.hindered() {
			return waited
		}
	}
	if rest() {
		w.report(ctx)
	}
	return waited
}
