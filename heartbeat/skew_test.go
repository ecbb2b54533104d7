package heartbeat

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
)

func TestSkewIsByTheQuickestReply(t *testing.T) {
	var s skew
	if _, ok := s.ahead(); ok {
		t.Error("got a skew before any reply")
	}
	now := time.Unix(1e9, 0)
	hear := func(there, back, ahead time.Duration) {
		written := timestamppb.New(now.Add(there - ahead))
		s.measure(now, now.Add(there+back), written)
		now = now.Add(time.Second)
	}
	want := func(least, most time.Duration) {
		t.Helper()
		if got, ok := s.ahead(); !ok || got < least || got > most {
			t.Errorf("got %s, want %s to %s", got, least, most)
		}
	}
	for _, late := range []struct{ there, back time.Duration }{{4 * time.Second, 0}, {0, 4 * time.Second}} { // a new leader, to which all nodes come at once
		hear(late.there, late.back, 0)
		want(0, 0)
	}
	s.forget()
	hear(2*time.Second, 0, time.Hour) // half of the journey may be wrong, and is not told
	want(time.Hour-2*time.Second, time.Hour-2*time.Second)
	hear(time.Millisecond, time.Millisecond, time.Hour)
	want(time.Hour-time.Millisecond, time.Hour-time.Millisecond)
	for range skewSamples - 1 {
		hear(10*time.Millisecond, 0, -time.Minute) // the clock was set
	}
	want(time.Hour-time.Millisecond, time.Hour-time.Millisecond)
	hear(10*time.Millisecond, 0, -time.Minute)
	want(-time.Minute-5*time.Millisecond, -time.Minute+5*time.Millisecond)
	s.measure(now, now, timestamppb.New(now.Add(50*mostSkew)))
	want(-mostSkew, -mostSkew)
	s.forget()
	hear(0, 0, -time.Minute)
	s.measure(now, now, nil)
	s.measure(now, now, &timestamppb.Timestamp{Nanos: -1})
	want(-time.Minute-5*time.Millisecond, -time.Minute+5*time.Millisecond)
}

// The node says how far off its clock is, and the coordinator's deadlines still come on time.
func TestAnHourOffIsToldAndHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		co := &coordinator{interval: time.Second, term: 1, behind: time.Hour}
		co.directive = &api.Directive{Decommission: "dec-1", Remaining: durationpb.New(time.Minute)}
		c := beating(t, co)
		d, err := c.NextDirective(t.Context())
		if left := d.GetRemaining().AsDuration(); err != nil || left > time.Minute || left < 59*time.Second {
			t.Errorf("got %s left (%v), want the minute", left, err)
		}
		time.Sleep(5 * time.Second)
		co.mu.Lock()
		defer co.mu.Unlock()
		if got := co.beats[0].Status.ClockAhead; got != nil {
			t.Errorf("got %s in the first beat, want nothing: nothing was measured", got.AsDuration())
		}
		if got := co.beats[len(co.beats)-1].Status.GetClockAhead().AsDuration(); got.Round(time.Second) != time.Hour {
			t.Errorf("got a clock that is %s ahead, want an hour", got)
		}
	})
}
