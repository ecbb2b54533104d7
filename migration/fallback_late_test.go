package migration

import (
	"errors"
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
