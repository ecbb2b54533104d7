package preemption

import (
	"context"
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

// Run listens until ctx ends, and returns nil then. Trouble with a source is logged and the source asked again.
func (w *Watcher) Run(ctx context.Context) error {
	var listeners sync.WaitGroup
	for _, s := range w.sources {
		listeners.Go(func() { w.listen(ctx, s) })
	}
	listeners.Wait()
	return nil
}

// Next blocks until a source has something new to say, or ctx ends. Of several words about one notice that nobody asked
// for in time, only the newest is given: it may be the withdrawal of a notice that was never given.
func (w *Watcher) Next(ctx context.Context) (Notice, error) { return w.news.pop(ctx) }

func (w *Watcher) listen(ctx context.Context, s Source) {
	trouble := streak{log: w.log.With("source", fmt.Sprintf("%T", s)), what: "source of notices"}
	for {
		n, err := s.Next(ctx)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				w.news.push(n) // heard at the last moment: keep it for who asks next
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

// streak logs an unbroken run of failures twice: when it starts and when it ends.
type streak struct {
	log   *slog.Logger
	what  string
	since time.Time // zero: all is well
}

func (s *streak) failed(err error) {
	if s.since.IsZero() {
		s.since = time.Now()
		s.log.Warn(s.what+" is in trouble: what was last heard still holds", "err", err)
	}
}

func (s *streak) worked() {
	if !s.since.IsZero() {
		s.log.Info(s.what+" is well again", "took", time.Since(s.since))
		s.since = time.Time{}
	}
}

// sleepUntil waits for an instant or for the end of ctx, whose error it returns.
func sleepUntil(ctx context.Context, instant time.Time) error {
	timer := time.NewTimer(time.Until(instant))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return ctx.Err()
	}
}
