package main

import (
	"strings"
	"testing"
)

// An operator who removes all coordinators but one is told what that means.
func TestMembersSayWhatTheySurvive(t *testing.T) {
	for n, want := range map[int]string{1: "while it is away nothing is decided", 3: "survive the failure of 1", 5: "survive the failure of 2"} {
		if got := survives(n); !strings.Contains(got, want) {
			t.Errorf("%d: got %q, want %q in it", n, got, want)
		}
	}
}
