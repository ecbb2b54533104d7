package migration

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/receiver"
)

// overAgain is how soon a drain asks again after it had no answer, or when it is told of another end. A drain has two minutes, or half
// of one.
const overAgain = 5 * time.Second

// endings are the apps that are over, as far as a drain knows: their blocks are left behind.
type endings struct {
	log     *slog.Logger
	source  *source
	ask     receiver.Over          // nil: none is over
	changed func() <-chan struct{} // DrainConfig.OverChanged

	over  atomic.Pointer[map[string]string] // nil: no app is known to be
	asked chan struct{}                     // closed once that was asked
}

func newEndings(cfg DrainConfig, source *source) *endings {
	return &endings{log: cfg.Log, source: source, ask: cfg.Over, changed: cfg.OverChanged, asked: make(chan struct{})}
}

// apps are those whose blocks a drain meets.
func (e *endings) apps() []string {
	apps, err := e.source.vault.Catalog.Apps()
	if err != nil {
		e.log.Debug("cannot tell the apps of what landed here", "err", err)
	}
	for _, s := range e.source.all {
		apps = append(apps, s.Apps()...)
	}
	slices.Sort(apps)
	return slices.Compact(apps)
}

// learn keeps the drain told which apps are over, until ctx ends. Blocks do not wait for the answer, and some leave before it. Only
// blocks that nobody holds any more do (await), for that may be because their app has ended.
func (e *endings) learn(ctx context.Context) {
	asked := sync.OnceFunc(func() { close(e.asked) })
	defer asked()
	for e.ask != nil && ctx.Err() == nil {
		news, pause := receiver.News(e.changed), receiver.OverEvery
		if apps := e.apps(); len(apps) > 0 {
			over, err := e.ask(ctx, apps)
			switch was := e.over.Load(); {
			case err != nil: // what was heard before holds
				pause = overAgain
			case was == nil && len(over) > 0 || was != nil && !maps.Equal(*was, over): // an end may be taken back
				e.log.Info("blocks of apps that are over are left behind", "apps", slices.Sorted(maps.Keys(over)))
				e.over.Store(&over)
			}
		}
		asked()
		receiver.Turn(ctx, news, overAgain, pause)
	}
}

// isOver says why a block is not carried: its app is over; empty: it may be wanted.
func (e *endings) isOver(b inventory.Block) (why string) {
	over := e.over.Load()
	if over == nil {
		return ""
	}
	if why = (*over)[b.ID.App()]; why != "" {
		why = receiver.ItsAppIsOver + why
	}
	return why
}

// await waits, but not for long, until it is known which apps are over: that may be why nobody holds a block.
func (e *endings) await(ctx context.Context) {
	select {
	case <-e.asked:
	case <-time.After(overAgain):
	case <-ctx.Done():
	}
}
