package show

import (
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	for given, want := range map[string]string{
		"0": "0.0s", "400ms": "0.4s", "9.94s": "9.9s", "9.96s": "10s", "59.4s": "59s", "59.6s": "1m0s", "80s": "1m20s", "59m59.9s": "1h0m",
		"5h3m": "5h3m", "52h": "2d4h", "-80s": "-1m20s",
	} {
		d, err := time.ParseDuration(given)
		if err != nil {
			t.Fatal(err)
		}
		if got := Span(d); got != want {
			t.Errorf("%s: got %q, want %q", given, got, want)
		}
	}
}

func TestWaitLine(t *testing.T) {
	all := []string{"workload a", "app b", "app c"}
	for width, want := range map[int]string{100: "workload a, app b, app c", 24: "workload a, app b, app c", 23: "workload a and 2 more", 20: "workload… and 2 more", 28: "workload a, app b, app c"} {
		if got := Some(all, width); got != want {
			t.Errorf("width %d: got %q, want %q", width, got, want)
		}
	}
	if got := Some([]string{"workload with a long name"}, 10); got != "workload …" {
		t.Errorf("got %q", got)
	}
}
