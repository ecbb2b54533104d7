package receiver

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// Nobody needs the blocks of an app that is over: its holders remove what landed of it, and a leaving node spends no time on
// sending it. The coordinator knows which apps are over. While nobody answers, no app is.

// Over returns which of some apps are over, with the reason for each.
type Over func(ctx context.Context, apps []string) (over map[string]string, err error)

const (
	// OverEvery is how often Over is asked at least. Engines themselves keep the files of a finished app for longer
	// (Spark's external shuffle service until it is told, YARN for yarn.nodemanager.delete.debug-delay-sec). A node that
	// hears that an app has ended asks at once.
	OverEvery = time.Minute
	// overGap is the least pause between two questions of one holder: where an app ends each second, ten thousand holders ask a
	// thousand times a second, and their coordinator answers eight times as many heartbeats (beatsPerSecond in
	// coordinator/pace.go).
	overGap = 10 * time.Second
)

// Turn waits until it is time to ask again: until pause is over, or until there is news, but in that case for gap at least. It
// reports false once ctx has ended.
func Turn(ctx context.Context, news <-chan struct{}, gap, pause time.Duration) bool {
	began := time.Now()
	limit := time.NewTimer(pause)
	defer limit.Stop()
	select {
	case <-news:
		return await.Sleep(ctx, gap-time.Since(began))
	case <-limit.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// News returns what changed returns, or nil, which never closes.
func News(changed func() <-chan struct{}) <-chan struct{} {
	if changed == nil {
		return nil
	}
	return changed()
}

// ItsAppIsOver stands before the reason in accounts.
const ItsAppIsOver = "its app is over: "

// letGo removes the landed blocks of apps as they end, until ctx ends.
func (r *removal) letGo(ctx context.Context) {
	news := News(r.cfg.OverChanged)
	for gap := time.Duration(0); Turn(ctx, news, gap, OverEvery); gap = overGap {
		news = News(r.cfg.OverChanged) // so that an end during the question below is heard next
		apps, err := r.cfg.Vault.Catalog.Apps()
		if err != nil {
			r.cfg.Log.Warn("cannot tell the apps of what landed here: nothing is removed because its app is over", "err", err)
		}
		if len(apps) > 0 {
			r.letGoOf(ctx, apps)
		}
	}
}

// letGoOf removes the landed blocks of those of the apps that are over.
func (r *removal) letGoOf(ctx context.Context, apps []string) {
	over, err := r.cfg.Over(ctx, apps)
	if err != nil {
		r.cfg.Log.Debug("nobody says which apps are over", "err", err)
	}
	for _, why := range slices.Compact(slices.Sorted(maps.Values(over))) { // apps that end at the same time mostly have one reason
		gone, err := r.Remove(ctx, ItsAppIsOver+why, func(h vault.Held) bool { return over[h.App()] == why })
		if gone.Blocks > 0 {
			r.cfg.Log.Info("removed what landed of apps that are over", "why", why, "blocks", gone.Blocks, "bytes", gone.Bytes)
		}
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Warn("not all of apps that are over could be removed: it is tried again", "why", why, "err", err)
		}
	}
}
