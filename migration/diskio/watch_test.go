package diskio

import (
	"testing"
	"time"
	"unsafe"
)

// steppedAhead returns what time.Now would return after the clock was set that much ahead: another wall clock reading, and the same monotonic
// one, which nobody sets.
func steppedAhead(t testing.TB, at time.Time, by time.Duration) time.Time {
	t.Helper()
	const nanosecondBits = 30 // below the seconds in the first word of a time.Time
	was := at
	*(*uint64)(unsafe.Pointer(&at)) += uint64(by/time.Second) << nanosecondBits
	if !at.Round(0).Equal(was.Round(0).Add(by)) || at.Sub(was) != 0 {
		t.Skip("time.Time is laid out in another way")
	}
	return at
}

// A clock that is set amid work on a disk does not make the disk one that hangs, nor one that answers.
func TestClockThatIsSetIsNoDiskThatHangs(t *testing.T) {
	for _, by := range []time.Duration{time.Minute, -time.Minute} {
		var w Work
		dir, began := "/mnt/d0", time.Now()
		w.BeginAt(&dir, began)
		if _, took, _ := w.On(steppedAhead(t, began.Add(2*time.Second), by)); took != 2*time.Second {
			t.Errorf("the clock was set by %v: what was begun two seconds ago takes %v", by, took)
		}
		var took Moment
		took.Note(began)
		if quiet := took.Ago(steppedAhead(t, began.Add(time.Second), by)); quiet != time.Second {
			t.Errorf("the clock was set by %v: no peer has taken anything for %v, want a second", by, quiet)
		}
	}
}
