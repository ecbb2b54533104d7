package manifest

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// The time of the account's file tells how long ago a block moved last: of a block that moved a moment ago it cannot be known yet who
// holds it. A line that is taken back, or whose copy a peer forgot, does not change that time.
func TestAccountIsAsOldAsWhatMovedLast(t *testing.T) {
	dir, hourAgo := t.TempDir(), time.Now().Add(-time.Hour).Truncate(time.Second)
	x := inventory.Block{ID: "cache/-/x", Members: []inventory.Member{{Name: "x", Bytes: 3, ModTime: hourAgo}}}
	if err := amend(dir, func(l *Ledger) { l.AddMoved("b", slices.Values([]*inventory.Block{&x})) }); err != nil {
		t.Fatal(err)
	}
	var last Line
	for line, err := range Lines(Path(dir, Moved)) {
		if last = line; err != nil {
			t.Fatal(err)
		}
	}
	for what, do := range map[string]func() error{
		"a peer forgot":         func() error { return Spend(dir, last.Entry, last.End) },
		"a receipt is void":     func() error { return amend(dir, func(l *Ledger) { l.Void(last.Entry) }) },
		"it is taken back":      func() error { return amend(dir, func(l *Ledger) { l.TakeBack(last.Begin, last.Entry) }) },
		"a drain moved nothing": func() error { return amend(dir, func(*Ledger) {}) },
		"it was moved once more": func() error {
			return amend(dir, func(l *Ledger) { l.AddMoved("b", slices.Values([]*inventory.Block{})) })
		},
	} {
		if err := os.Chtimes(Path(dir, Moved), hourAgo, hourAgo); err != nil {
			t.Fatal(err)
		}
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		info, err := os.Stat(Path(dir, Moved))
		if err != nil {
			t.Fatal(err)
		}
		if kept := info.ModTime().Equal(hourAgo); kept == (what == "it was moved once more") {
			t.Errorf("%s: its time is %s, and was %s", what, info.ModTime(), hourAgo)
		}
	}
}

func amend(dir string, how func(*Ledger)) error {
	l, err := Open(dir, nil, true, nil)
	if err != nil {
		return err
	}
	how(l)
	_, err = l.Close()
	return err
}
