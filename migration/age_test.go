package migration

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// How long ago something moved last is told by the time of the account's file: whoever asks for what moved a moment ago is told that it
// cannot be known yet who has it. What is taken back, and what peers forgot, has not moved.
func TestAccountIsAsOldAsWhatMovedLast(t *testing.T) {
	dir, hourAgo := t.TempDir(), time.Now().Add(-time.Hour).Truncate(time.Second)
	x := inventory.Block{ID: "cache/-/x", Members: []inventory.Member{{Name: "x", Bytes: 3, ModTime: hourAgo}}}
	if err := amend(dir, func(l *ledger) { l.moved("b", slices.Values([]*inventory.Block{&x})) }); err != nil {
		t.Fatal(err)
	}
	var last ledgerLine
	for line, err := range ledgerLines(ledgerPath(dir, Moved)) {
		if last = line; err != nil {
			t.Fatal(err)
		}
	}
	for what, do := range map[string]func() error{
		"a peer forgot":          func() error { return spend(dir, last.Entry, last.end) },
		"a receipt is void":      func() error { return amend(dir, func(l *ledger) { l.void(last.Entry) }) },
		"it is taken back":       func() error { return amend(dir, func(l *ledger) { l.takeBack(last.begin, last.Entry) }) },
		"a drain moved nothing":  func() error { return amend(dir, func(*ledger) {}) },
		"it was moved once more": func() error { return amend(dir, func(l *ledger) { l.moved("b", slices.Values([]*inventory.Block{})) }) },
	} {
		if err := os.Chtimes(ledgerPath(dir, Moved), hourAgo, hourAgo); err != nil {
			t.Fatal(err)
		}
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		info, err := os.Stat(ledgerPath(dir, Moved))
		if err != nil {
			t.Fatal(err)
		}
		if kept := info.ModTime().Equal(hourAgo); kept == (what == "it was moved once more") {
			t.Errorf("%s: its time is %s, and was %s", what, info.ModTime(), hourAgo)
		}
	}
}

func amend(dir string, how func(*ledger)) error {
	l, err := openLedger(dir, false, true, nil)
	if err != nil {
		return err
	}
	how(l)
	_, err = l.close()
	return err
}
