package coordinator

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"time"
)

// A line of JSON in which "time" stands twice is refused by what reads logs, or loses its time to raft's span.
func TestRaftsWordsDoNotTakeThePlaceOfALinesTime(t *testing.T) {
	var out bytes.Buffer
	l := newRaftLog(slog.New(slog.NewJSONHandler(&out, nil)))
	l.began.Store(true)
	l.Warn("failed to contact", "server-id", "c2", "time", 3*time.Second)
	var line struct {
		Time   time.Time
		Server string        `json:"server-id"`
		Silent time.Duration // in nanoseconds, as slog writes spans
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Server != "c2" || line.Silent != 3*time.Second || time.Since(line.Time).Abs() > time.Minute {
		t.Errorf("got %s (%v), want the line's own time, and for how long c2 was silent", out.Bytes(), err)
	}
}
