package receiver

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// An app that is over wants none of its blocks any more: what landed of it goes from its holders, and a node that leaves does
// not spend its time on what it has of it. Somebody else knows which are over. While nobody answers, none is.

// Over says which of some apps are over, and why each is.
type Over func(ctx context.Context, apps []string) (over map[string]string, err error)

const (
	// OverEvery is how often that is asked: engines themselves leave files of a finished app for longer (Spark's external
	// shuffle service until it is told, YARN for yarn.nodemanager.delete.debug-delay-sec).
	// Whoever is told that an app has ended asks at once.
	OverEvery = time.Minute
	// overGap is how far apart a holder asks at least: where an app ends each second, ten thousand holders ask a thousand times
	// a second, and their coordinator answers eight times as many beats (beatsPerSecond in coordinator/pace.go).
	overGap = 10 * time.Second
)

// Turn waits until it is time to ask again: at the end of pause, or when there is news, but not before the end of gap. It reports
// false once ctx ends.
func Turn(ctx context.Context, news <-chan struct{}, gap, pause time.Duration) bool {
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

// News is what changed returns, or what never closes.
func News(changed func() <-chan struct{}) <-chan struct{} {
	if changed == nil {
		return nil
	}
	return changed()
}

// ItsAppIsOver is before the reason in accounts.
const ItsAppIsOver = "its app is over: "

// letGo removes what landed here of apps that are over, as they end, until ctx does.
func (r *Receiver) letGo(ctx context.Context) {
	news := News(r.cfg.OverChanged)
	for gap := time.Duration(0); Turn(ctx, news, gap, OverEvery); gap = overGap {
		news = News(r.cfg.OverChanged) // an end that comes while it is asked is heard next
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
		gone, err := r.Remove(ctx, ItsAppIsOver+why, func(h vault.Held) bool { return over[h.App()] == why })
		if gone.Blocks > 0 {
			r.cfg.Log.Info("removed what landed of apps that are over", "why", why, "blocks", gone.Blocks, "bytes", gone.Bytes)
		}
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Warn("not all of apps that are over could be removed: it is tried again", "why", why, "err", err)
		}
	}
}
