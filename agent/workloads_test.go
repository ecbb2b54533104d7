package agent

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// What a program printed goes into each heartbeat, and a message with half a character in it cannot be sent.
func TestTroubleCanBeSent(t *testing.T) {
	for _, said := range []string{"", "a" + strings.Repeat("ö", longestTrouble), "\xff\xfe", strings.Repeat("x", longestTrouble)} {
		got := short(said)
		if !utf8.ValidString(got) || len(got) > longestTrouble+len("...") {
			t.Errorf("short(%q) = %q", said, got)
		}
	}
	if got := short("exit status 1: ö"); got != "exit status 1: ö" {
		t.Errorf("got %q", got)
	}
}
