package migration

import (
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// The reason of an upload that the deadline cuts off has the fallback's earlier error, and how long the upload had taken.
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
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		_, entries := tr.run(within(t, 20*time.Second))
		wantLost(t, want, entries, "on its way to fallback:spill for 1")
		wantLost(t, want, entries, "slow down")
	})
}

// tardy is a storage that answers a put only after a while.
type tardy struct {
	*larder
	answers func(name string)
}

func (s tardy) Put(ctx context.Context, name string, bytes int64, content io.Reader, fresh bool) error {
	err := s.larder.Put(ctx, name, bytes, content, fresh)
	s.answers(name)
	return err
}

// A block is whole in the fallback when time is up. It counts if its record is there a moment later. After that no record is
// begun.
func TestRecordFollowsWhatWasSentWholeWhenTimeIsUp(t *testing.T) {
	for after, moved := range map[time.Duration]bool{recordGrace - time.Millisecond: true, recordGrace + time.Millisecond: false} {
		synctest.Test(t, func(t *testing.T) {
			a, want := cached(t, 1, 1000)
			s := newLarder()
			tr := newTrip(t, a)
			tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
			ctx, stop := context.WithCancelCause(t.Context())
			tr.cfg.Fallback.Objects = tardy{s, func(name string) {
				if strings.HasPrefix(name, "lifeboat-blocks/") {
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

// Under a cap, no more large blocks are begun at once than it can carry: if all shared it, none would be there in time.
func TestLargeBlocksUnderACapDoNotAllComeTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 4, 4<<20)
		s := newLarder()
		s.latency = 10 * time.Millisecond
		tr := newTrip(t, a)
		tr.cfg.Fallback, tr.cfg.MaxBytesPerSecond = s.as(lastresort.LayoutBlocks), 1<<20
		sum, entries := tr.run(within(t, 12*time.Second))
		if sum.Moved.Blocks < 2 {
			t.Errorf("got %+v, want two moved or more: the cap carries 12 MiB", sum)
		}
		lost := outcome(t, entries, manifest.Lost)
		maps.DeleteFunc(want, func(id string, _ []byte) bool { _, is := lost[id]; return is })
		wantInFallback(t, tr.cfg.Fallback, want, entries)
		for id, e := range lost {
			if !strings.Contains(e.Reason, errTooLate.Error()) || strings.Contains(e.Reason, "room") {
				t.Errorf("%s is lost for %q, want for want of time", id, e.Reason)
			}
		}
	})
}

// Many uploads fail at once. That counts as one failure: the fallback is asked again as soon as after one.
func TestUploadsThatFailTogetherFailOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 32, smallUpload+1)
		s := newLarder()
		s.latency = 250 * time.Millisecond
		began := time.Now()
		s.trip = func(string) error {
			if time.Since(began) < 50*time.Millisecond {
				return errors.New("slow down")
			}
			return nil
		}
		tr := newTrip(t, a)
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		tr.cfg.Fallback.Streams = 8
		_, entries := tr.run(within(t, time.Minute))
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("took %v after a hiccup, want less than 3 s", took)
		}
		wantInFallback(t, tr.cfg.Fallback, want, entries)
	})
}
