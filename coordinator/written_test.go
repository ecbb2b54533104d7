package coordinator

import (
	"encoding/json"
	"testing"
	"time"
)

func written(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var t0 = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
