package coordinator

import (
	"testing"
	"time"
)

// The time of most clocks is right; of two clocks that differ it is not known which is.
func TestOffMost(t *testing.T) {
	for name, c := range map[string]struct {
		ahead []time.Duration
		want  time.Duration
	}{
		"alone":                       {[]time.Duration{0}, 0},
		"two that disagree":           {[]time.Duration{0, time.Hour}, 0},
		"three that agree":            {[]time.Duration{0, 3 * time.Millisecond, -200 * time.Millisecond}, 0},
		"another is an hour behind":   {[]time.Duration{0, time.Hour, 0}, 0},
		"this one is an hour ahead":   {[]time.Duration{0, time.Hour, time.Hour + time.Second}, time.Hour},
		"this one is an hour behind":  {[]time.Duration{0, -time.Hour, -time.Hour}, -time.Hour},
		"five, two of them wild":      {[]time.Duration{0, 0, 50 * time.Minute, -time.Hour, 0}, 0},
		"five, this one and one wild": {[]time.Duration{0, 2 * time.Second, 2 * time.Second, 2 * time.Second, -time.Hour}, 2 * time.Second},
	} {
		if got := offMost(c.ahead); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
