package preemption

import (
	"context"
	"log/slog"
	"time"

	"github.com/lifeboat/lifeboat/await"
)

// streak logs a run of failures twice: when it starts and when it ends. Where settles is set, the run ends only after
// nothing has failed for so long: a service of which every other answer fails must not fill the log.
type streak struct {
	log     *slog.Logger
	what    string
	settles time.Duration
	since   time.Time // zero: all is well
	failing time.Time // since when nothing worked; zero: something did just now
	good    time.Time // since when nothing failed, while that is not yet the end; zero: something did just now
}

func (s *streak) failed(err error) {
	now := time.Now()
	s.good = time.Time{}
	if s.failing.IsZero() {
		s.failing = now
	}
	if s.since.IsZero() {
		s.since = now
		s.log.Warn(s.what+" is in trouble: what was last heard still holds", "err", err)
	}
}

func (s *streak) worked() {
	s.failing = time.Time{}
	if s.since.IsZero() {
		return
	}
	now := time.Now()
	if s.good.IsZero() {
		s.good = now
	}
	if now.Sub(s.good) >= s.settles {
		s.log.Info(s.what+" is well again", "took", s.good.Sub(s.since))
		s.since, s.good = time.Time{}, time.Time{}
	}
}

// sleepUntil waits for an instant or for the end of ctx, whose error it returns.
func sleepUntil(ctx context.Context, instant time.Time) error {
	await.Sleep(ctx, time.Until(instant))
	return ctx.Err()
}
