package migration

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// aFlow is a lane's at 1 MB/s, 10 s before the end. All lanes carry 2 MB/s, and others have begun on 5 MB.
func aFlow(bytesPerSecond int64) *flow {
	return &flow{
		out:     newOutflow(DrainConfig{MaxBytesPerSecond: bytesPerSecond}),
		traffic: &traffic{rate: 2e6, pledged: 5e6},
		pace:    pace{rate: 1e6, known: paceMemory},
		until:   time.Now().Add(10 * time.Second),
	}
}

// A lane may begin what it has the time for and the others leave; and near the end more, as if the others were done.
func TestFlowSharesTheTime(t *testing.T) {
	for _, row := range []struct {
		what        string
		limit       int64
		is          func(f *flow)
		most, alone int64
	}{
		{"the lanes share a link", 0, func(f *flow) {}, 9e6, 12e6},
		{"the lane waits for its own connection", 0, func(f *flow) { f.slack = true }, 9e6, 9e6},
		{"a cap leaves less", 1e6, func(f *flow) {}, 3e6, 3e6},
		{"what lanes carry is not known", 0, func(f *flow) { f.traffic.rate = 0 }, 9e6, 9e6},
		{"only the cap is known", 2e6, func(f *flow) { f.traffic.rate = 0 }, 9e6, 12e6},
		{"the end is not known", 0, func(f *flow) { f.until = time.Time{} }, 9e6, 9e6},
		{"the others have begun too much", 0, func(f *flow) { f.traffic.pledged = 30e6 }, -1, -1},
	} {
		t.Run(row.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := aFlow(row.limit)
				row.is(f)
				if most, alone := f.share(1e6, 9e6); most != row.most || alone != row.alone {
					t.Errorf("got %d, and alone %d, want %d and %d", most, alone, row.most, row.alone)
				}
				if f.load.pledged != 1e6 {
					t.Errorf("others see that it has begun on %d bytes", f.load.pledged)
				}
			})
		})
	}
}

// Where nothing is measured of a lane, it goes by others, unless it is to try what they say is too much.
func TestFlowAffordsWhatIsTypical(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			is   func(f *flow)
			want int64
		}{
			{func(f *flow) {}, 9e6 - 1000},
			{func(f *flow) { f.pace.rate = 0 }, 18e6 - 1000},
			{func(f *flow) { f.pace.rate, f.tries = 0, true }, math.MaxInt64},
			{func(f *flow) { f.out.ends = func() time.Time { return time.Time{} } }, math.MaxInt64},
		} {
			f := aFlow(0)
			end := f.until
			f.out.ends = func() time.Time { return end }
			row.is(f)
			if got := f.affordable(t.Context(), 1000, func() float64 { return 2e6 }); got != row.want {
				t.Errorf("got %d, want %d", got, row.want)
			}
		}
	})
}

func TestFlowProspect(t *testing.T) {
	now := time.Now()
	for _, row := range []struct {
		what string
		is   func(f *flow)
		left int64
		want prospect
	}{
		{"all lanes are in time", func(f *flow) {}, 12e6, goAhead},
		{"others have less left", func(f *flow) {}, 16e6, holdBack},
		{"others have less left, and it is far too much", func(f *flow) {}, 30e6, breakOff},
		{"it is the first", func(f *flow) { f.traffic.begun = nil }, 21e6, breakOff},
		{"it is the first, and most was sent", func(f *flow) { f.traffic.begun, f.traffic.rate = nil, 1e6 }, 11e6, goAhead},
		{"all was sent", func(f *flow) { f.traffic.begun[0].pledged, f.traffic.pledged = 40e6, 40e6 }, 0, goAhead},
		{"it waits for its own connection", func(f *flow) { f.slack, f.traffic.rate = true, 1.2e6 }, 14e6, goAhead},
		{"its own connection is too slow", func(f *flow) { f.slack = true }, 16e6, breakOff},
		{"nothing is known", func(f *flow) { f.traffic.rate = 0 }, 40e6, goAhead},
	} {
		f := aFlow(0)
		f.until = now.Add(10 * time.Second)
		f.traffic.begun = []*load{{pledged: 5e6}}
		row.is(f)
		f.traffic.pledge(&f.load, row.left)
		if got := f.prospect(now, max(row.left, 22e6), row.left); got != row.want {
			t.Errorf("%s: got %d, want %d", row.what, got, row.want)
		}
	}
}

// What was measured of small blocks, or of a link that stood still, is forgotten for a block that it says is too large: once, if nobody is
// at work and there is time.
func TestFlowForgetsWhatMayBeWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			what string
			is   func(f *flow)
			want bool
		}{
			{"small blocks", func(f *flow) {}, true},
			{"a large block", func(f *flow) { f.streamed = true }, false},
			{"a link that stood still", func(f *flow) { f.streamed, f.pace.stood, f.rated = true, true, time.Now().Add(-stillSlow) }, true},
			{"one that stood still just now", func(f *flow) { f.streamed, f.pace.stood, f.rated = true, true, time.Now() }, false},
			{"a second time", func(f *flow) { f.tries = true }, false},
			{"too late", func(f *flow) { f.until = time.Now().Add(tryBefore) }, false},
			{"others are at work", func(f *flow) { f.traffic.pledged = 1 }, false},
		} {
			f := aFlow(0)
			f.traffic.pledged = 0
			row.is(f)
			before := f.pace
			if got := f.forget(); got != row.want {
				t.Errorf("%s: got %t, want %t", row.what, got, row.want)
			}
			if forgotten := f.pace != before; forgotten != row.want {
				t.Errorf("%s: forgotten is %t", row.what, forgotten)
			}
		}
	})
}
