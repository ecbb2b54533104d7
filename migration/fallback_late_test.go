package migration

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What the deadline cuts off is named with what the fallback said before, and with how long it took all the same.
func TestUploadThatIsCutOffSaysWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 4, 512<<10)
		s := newLarder()
		s.rate = 4096 // two minutes for each
		began := time.Now()
		s.trip = func(string) error {
			if time.Since(began) < 5*time.Second {
				return errors.New("slow down")
			}
			return nil
		}
		tr := newTrip(t, a)
		tr.cfg.Fallback = s.as(FallbackBlocks)
		_, entries := tr.run(within(t, 20*time.Second))
		wantLost(t, want, entries, "on its way to fallback:spill for 1")
		wantLost(t, want, entries, "slow down")
	})
}

// tardy answers for what it was put only after a while.
type tardy struct {
	*larder
	answers func(name string)
}

func (s tardy) Put(ctx context.Context, name string, bytes int64, content io.Reader, fresh bool) error {
	err := s.larder.Put(ctx, name, bytes, content, fresh)
	s.answers(name)
	return err
}

// What the fallback had whole when time was up counts if its record follows in a moment. Later none is begun.
func TestRecordFollowsWhatWasSentWholeWhenTimeIsUp(t *testing.T) {
	for after, moved := range map[time.Duration]bool{recordGrace - time.Millisecond: true, recordGrace + time.Millisecond: false} {
		synctest.Test(t, func(t *testing.T) {
			a, want := cached(t, 1, 1000)
			s := newLarder()
			tr := newTrip(t, a)
			tr.cfg.Fallback = s.as(FallbackBlocks)
			ctx, stop := context.WithCancelCause(t.Context())
			tr.cfg.Fallback.Objects = tardy{s, func(name string) {
				if strings.HasPrefix(name, fallbackBlocks) {
					stop(context.DeadlineExceeded)
					time.Sleep(after)
				}
			}}
			_, entries := tr.run(ctx)
			if moved {
				wantInFallback(t, tr.cfg.Fallback, want, entries)
				return
			}
			wantLost(t, want, entries, "on its way to fallback:spill")
			if len(s.putNames()) != 1 {
				t.Errorf("%v were put, want no record", s.putNames())
			}
		})
	}
}
