package migration

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// An app that is over wants none of its blocks any more: what landed of it goes from its holders, and a node that leaves does
// not spend its time on what it has of it. Somebody else knows which are over. While nobody answers, none is.

// Over says which of some apps are over, and why each is.
type Over func(ctx context.Context, apps []string) (over map[string]string, err error)

const (
	// overEvery is how often that is asked: engines themselves leave files of a finished app for longer (Spark's external
	// shuffle service until it is told, YARN for yarn.nodemanager.delete.debug-delay-sec).
	// Whoever is told that an app has ended asks at once.
	overEvery = time.Minute
	// overGap is how far apart a holder asks at least: where an app ends each second, ten thousand holders ask a thousand times
	// a second, and their coordinator answers eight times as many beats (beatsPerSecond in coordinator/pace.go).
	overGap = 10 * time.Second
	// overAgain is how soon a drain asks again that had no answer, or is told of another end. It has two minutes, or half of one.
	overAgain = 5 * time.Second
)

// turn waits until it is time to ask again: at the end of pause, or when there is news, but not before the end of gap. It reports
// false once ctx ends.
func turn(ctx context.Context, news <-chan struct{}, gap, pause time.Duration) bool {
	began := time.Now()
	limit := time.NewTimer(pause)
	defer limit.Stop()
	select {
	case <-news:
		return diskio.Sleep(ctx, gap-time.Since(began))
	case <-limit.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// newsOf is what changed returns, or what never closes.
func newsOf(changed func() <-chan struct{}) <-chan struct{} {
	if changed == nil {
		return nil
	}
	return changed()
}

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

// learnOver keeps the drain told which apps are over, until ctx ends. What leaves before has left: nothing waits for it, but what
// nobody has any more, which may be because its app has ended.
func (d *Drain) learnOver(ctx context.Context) {
	asked := sync.OnceFunc(func() { close(d.overAsked) })
	defer asked()
	for ctx.Err() == nil {
		news, pause := newsOf(d.cfg.OverChanged), overEvery
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
		turn(ctx, news, overAgain, pause)
	}
}

const itsAppIsOver = "its app is over: "

// isOver says why a block is not carried: its app is over; empty: it may be wanted.
func (d *Drain) isOver(b inventory.Block) (why string) {
	over := d.over.Load()
	if over == nil {
		return ""
	}
	if why = (*over)[b.ID.App()]; why != "" {
		why = itsAppIsOver + why
	}
	return why
}

// letGo removes what landed here of apps that are over, as they end, until ctx does.
func (r *Receiver) letGo(ctx context.Context) {
	news := newsOf(r.cfg.OverChanged)
	for gap := time.Duration(0); turn(ctx, news, gap, overEvery); gap = overGap {
		news = newsOf(r.cfg.OverChanged) // an end that comes while it is asked is heard next
		apps, err := r.cfg.Vault.Catalog.Apps()
		if err != nil {
			r.cfg.Log.Warn("cannot tell the apps of what landed here: nothing is removed because its app is over", "err", err)
		}
		if len(apps) > 0 {
			r.letGoOf(ctx, apps)
		}
	}
}

// letGoOf removes what landed here of those of the apps that are over.
func (r *Receiver) letGoOf(ctx context.Context, apps []string) {
	over, err := r.cfg.Over(ctx, apps)
	if err != nil {
		r.cfg.Log.Debug("nobody says which apps are over", "err", err)
	}
	for _, why := range slices.Compact(slices.Sorted(maps.Values(over))) { // most that end at once end alike
		gone, err := r.Remove(ctx, itsAppIsOver+why, func(h vault.Held) bool { return over[h.App()] == why })
		if gone.Blocks > 0 {
			r.cfg.Log.Info("removed what landed of apps that are over", "why", why, "blocks", gone.Blocks, "bytes", gone.Bytes)
		}
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Warn("not all of apps that are over could be removed: it is tried again", "why", why, "err", err)
		}
	}
}
