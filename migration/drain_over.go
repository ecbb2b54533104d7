package migration

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/receiver"
)

// overAgain is how soon a drain asks again after it had no answer, or when it is told of another end. A drain has two minutes, or half
// of one.
const overAgain = 5 * time.Second

// apps are those whose blocks a drain meets.
func (d *Drain) apps() []string {
	apps, err := d.cfg.Vault.Catalog.Apps()
	if err != nil {
		d.cfg.Log.Debug("cannot tell the apps of what landed here", "err", err)
	}
	for _, s := range d.cfg.Stores {
		apps = append(apps, s.Apps()...)
	}
	slices.Sort(apps)
	return slices.Compact(apps)
}

// learnOver keeps the drain told which apps are over, until ctx ends. Blocks do not wait for the answer, and some leave before it. Only
// blocks that nobody holds any more do (awaitOver), for that may be because their app has ended.
func (d *Drain) learnOver(ctx context.Context) {
	asked := sync.OnceFunc(func() { close(d.overAsked) })
	defer asked()
	for ctx.Err() == nil {
		news, pause := receiver.News(d.cfg.OverChanged), receiver.OverEvery
		if apps := d.apps(); len(apps) > 0 {
			over, err := d.cfg.Over(ctx, apps)
			switch was := d.over.Load(); {
			case err != nil: // what was heard before holds
				pause = overAgain
			case was == nil && len(over) > 0 || was != nil && !maps.Equal(*was, over): // an end may be taken back
				d.cfg.Log.Info("blocks of apps that are over are left behind", "apps", slices.Sorted(maps.Keys(over)))
				d.over.Store(&over)
			}
		}
		asked()
		receiver.Turn(ctx, news, overAgain, pause)
	}
}

// isOver says why a block is not carried: its app is over; empty: it may be wanted.
func (d *Drain) isOver(b inventory.Block) (why string) {
	over := d.over.Load()
	if over == nil {
		return ""
	}
	if why = (*over)[b.ID.App()]; why != "" {
		why = receiver.ItsAppIsOver + why
	}
	return why
}
