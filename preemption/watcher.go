package preemption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// retryAfter is the pause before a source that returned an error is asked again.
const retryAfter = time.Second

// Watcher listens to several sources at once, each in its own goroutine, so that one that hangs delays no other.
type Watcher struct {
	log     *slog.Logger
	sources []Source
	news    *queue
}

// NewWatcher returns a watcher over the sources. It listens while Run runs.
func NewWatcher(log *slog.Logger, sources ...Source) *Watcher {
	return &Watcher{log: log, sources: sources, news: newQueue()}
}

// Believe passes the notices that were known before a restart to the sources. Call it before Run.
func (w *Watcher) Believe(notices ...Notice) {
	for _, s := range w.sources {
		if b, ok := s.(Believer); ok {
			b.Believe(notices...)
		}
	}
}

// Run listens until ctx ends, and returns nil then. Trouble with a source is logged and the source asked again.
func (w *Watcher) Run(ctx context.Context) error {
	var listeners sync.WaitGroup
	for _, s := range w.sources {
		if r, ok := s.(Runner); ok {
			listeners.Go(func() {
				if err := r.Run(ctx); err != nil {
					w.log.Error("a source of notices ended", "source", fmt.Sprintf("%T", s), "err", err)
				}
			})
		}
		listeners.Go(func() { w.listen(ctx, s) })
	}
	listeners.Wait()
	return nil
}

// Next blocks until a source has something new to say, or ctx ends. If several words about one notice wait, it returns only
// the newest: that may be the withdrawal of a notice that it never returned.
func (w *Watcher) Next(ctx context.Context) (Notice, error) { return w.news.pop(ctx) }

func (w *Watcher) listen(ctx context.Context, s Source) {
	trouble := streak{log: w.log.With("source", fmt.Sprintf("%T", s)), what: "source of notices"}
	for {
		n, err := s.Next(ctx)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				w.news.push(n) // heard at the last moment: keep it for the next call of Next
			}
			return
		case err != nil:
			trouble.failed(err)
			if sleepUntil(ctx, time.Now().Add(retryAfter)) != nil {
				return
			}
		default:
			trouble.worked()
			w.news.push(n)
		}
	}
}

// Health tells how well each source that asks a service is informed.
func (w *Watcher) Health() []Health {
	var all []Health
	for _, s := range w.sources {
		if h, ok := s.(Healthy); ok {
			all = append(all, h.Health()...)
		}
	}
	return all
}

// Release tells the sources of the notices that the node has done what they asked for. A source that fails, or does not
// answer, keeps no other from being told. It lasts no longer than ctx.
func (w *Watcher) Release(ctx context.Context, notices ...Notice) error {
	failed := make([]error, len(w.sources))
	var telling sync.WaitGroup
	for i, s := range w.sources {
		r, ok := s.(Releaser)
		if !ok {
			continue
		}
		telling.Go(func() {
			for _, n := range notices {
				if err := r.Release(ctx, n); err != nil {
					failed[i] = errors.Join(failed[i], fmt.Errorf("release the machine to %s: %w", n.Source, err))
				}
			}
		})
	}
	telling.Wait()
	return errors.Join(failed...)
}
