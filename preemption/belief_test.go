package preemption

import (
	"log/slog"
	"testing"
	"time"
)

// A machine may boot with a wrong clock and be given notice before a time server sets it. What the service says after that is
// compared with what it said before, so neither may depend on what the clock showed.
func TestDeadlinesOutliveAStepOfTheClock(t *testing.T) {
	shown := time.Now().Add(2 * time.Minute).UTC().Format(time.RFC3339)
	b := newBelief(slog.New(slog.DiscardHandler), SourceEC2, pathAction, time.Second, 1, readAction)
	news, err := b.hear([]byte(`{"action": "terminate", "time": "`+shown+`"}`), true, nil, time.Now())
	if err != nil || len(news) != 1 {
		t.Fatalf("heard %v, %v, want one notice", news, err)
	}
	for _, at := range []time.Time{news[0].Deadline, b.known[0].notice.Deadline} {
		if at == at.Round(0) { // a time without a reading of the monotonic clock is as it was
			t.Errorf("the deadline is %s, which only the wall clock measures", at)
		}
	}
}
