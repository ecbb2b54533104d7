package preemption

import (
	"context"
	"log/slog"
	"time"
)

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
