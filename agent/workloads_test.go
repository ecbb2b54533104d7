package agent

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// What a program printed goes into each heartbeat, and a message with half a character in it cannot be sent.
func TestTroubleCanBeSent(t *testing.T) {
	for _, said := range []string{"", "a" + strings.Repeat("ö", longestTrouble), "\xff\xfe", strings.Repeat("x", longestTrouble)} {
		got := short(said, longestTrouble)
		if !utf8.ValidString(got) || len(got) > longestTrouble+len("...") {
			t.Errorf("short(%q) = %q", said, got)
		}
	}
	if got := short("exit status 1: ö", longestTrouble); got != "exit status 1: ö" {
		t.Errorf("got %q", got)
	}
}

// The same goes for the trouble of a peer, which repeats the peer's words and paths of files.
func TestTroubleOfPeersCanBeSent(t *testing.T) {
	for _, said := range []string{"open /" + strings.Repeat("ö", 2000), "it cannot land p\xc3"} {
		got := apiProgress(migration.Progress{Peers: []migration.PeerProgress{{Node: "host-b", Trouble: said}}}).Peers[0].Trouble
		if !utf8.ValidString(got) || len(got) > mostTold || got == "" {
			t.Errorf("got %d bytes of trouble, %q: want UTF-8 of at most %d", len(got), got, mostTold)
		}
	}
}

// A coordinator takes no account with a reason that is too long. A reason names up to three peers that were in trouble.
func TestReasonsCanBeTold(t *testing.T) {
	said := manifest.Entry{ID: "cache/-/a", Outcome: manifest.Lost, Reason: strings.Repeat("host-b: no route to hóst; ", 100)}
	account := func(yield func(manifest.Entry, error) bool) { yield(said, nil) }
	for e, err := range new(course).legible(account) {
		if err != nil || !utf8.ValidString(e.Reason) || len(e.Reason) > mostTold || len(e.Reason) < mostTold/2 {
			t.Errorf("got %d bytes of a reason (%v), want UTF-8 of at most %d", len(e.Reason), err, mostTold)
		}
	}
	if e := apiEntry(said); !utf8.ValidString(e.Reason) || len(e.Reason) > mostTold {
		t.Errorf("got %d bytes of a reason in the account for peers, want UTF-8 of at most %d", len(e.Reason), mostTold)
	}
}

// mostTold is the longest text that a coordinator takes.
const mostTold = 1024
