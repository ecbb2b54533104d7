package manifest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/disks/smalldisk"
	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// The disk becomes full in the middle. Lost blocks are still named; moved ones are not, and an error says so.
func TestDiskOfTheAccountBecomesFull(t *testing.T) {
	dir := smalldisk.New(t, 16<<20)
	l, err := Open(filepath.Join(dir, "inc-1"), nil, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	smalldisk.Fill(t, dir)
	const blocks = 10_000
	for i := range blocks {
		l.Add(Entry{ID: fmt.Sprintf("cache/-/f-%d", i), Outcome: Lost, Reason: strings.Repeat("why ", 30)})
		l.Add(Entry{ID: fmt.Sprintf("cache/-/g-%d", i), Outcome: Moved, Peer: "b"})
	}
	if _, err := l.Close(); !durable.Full(err) {
		t.Errorf("close: got %v, want to hear of what was moved", err)
	}
	got := 0
	for e, err := range Entries(l.dir) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Outcome == Lost {
			got++
		}
	}
	if got != blocks {
		t.Errorf("got %d names, want %d", got, blocks)
	}
}

// Lost blocks for whose names neither disk nor memory has room are still counted, and the account says why.
func TestTheAccountSaysWhatItDoesNotName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "incidents")
	if err := os.WriteFile(dir, []byte("in the way"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(filepath.Join(dir, "inc-1"), nil, false, nil)
	if err == nil {
		t.Fatal("a directory was made where a file is")
	}
	const blocks = 20_000
	for i := range blocks {
		l.Add(Entry{ID: fmt.Sprintf("cache/-/f-%d", i), Bytes: 3, Outcome: Lost, Reason: "the deadline came first"})
	}
	sum, err := l.Close()
	if sum.Lost != (inventory.Count{Blocks: blocks, Bytes: 3 * blocks}) || err == nil {
		t.Errorf("got %+v and %v, want %d lost and an error", sum, err, blocks)
	}
	if len(l.lost.lines) > maxUnwritten+1024 {
		t.Errorf("%d bytes are in memory", len(l.lost.lines))
	}
	lines := strings.Split(strings.TrimSpace(string(l.lost.lines)), "\n")
	e, err := ParseLine([]byte(lines[len(lines)-1] + "\n"))
	if want := fmt.Sprintf("(%d blocks)", blocks-len(lines)+1); err != nil || e.ID != want || !strings.Contains(e.Reason, "not a directory") {
		t.Errorf("got %+v (%v), want %s", e, err, want)
	}
}

// Neither disk nor memory has room for all names as time is up, and another pass follows: that one meets the blocks that have no line, and
// must not find a line that stands for them, too.
func TestTheAccountLeavesWhatItDoesNotNameToTheNextPass(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "incidents")
	if err := os.WriteFile(dir, []byte("in the way"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, _ := Open(filepath.Join(dir, "inc-1"), nil, true, nil)
	for i := range 20_000 {
		l.Add(Entry{ID: fmt.Sprintf("cache/-/f-%d", i), Bytes: 3, Outcome: Lost, Reason: "the deadline came first"})
	}
	_, _ = l.Close()
	if l.lost.unnamed.Blocks == 0 || bytes.Contains(l.Unwritten(), []byte(unnamedID(l.lost.unnamed.Blocks))) {
		t.Errorf("%d blocks have no line, want some, and none that stands for them", l.lost.unnamed.Blocks)
	}
}

// A crash leaves half a line at the end of what an account keeps. The next line is not glued to it.
func TestHalfALineIsCutOff(t *testing.T) {
	for _, o := range []Outcome{Moved, Skipped, Lost} {
		dir := t.TempDir()
		if err := os.WriteFile(Path(dir, o), []byte(`{"id":"cache/-/a","outcome":"`+string(o)+`"}`+"\n"+`{"id":"cache/-/b"`), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(dir, []Outcome{Skipped, Lost}, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		l.Add(Entry{ID: "cache/-/c", Outcome: o})
		if _, err := l.Close(); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for e, err := range Read(Path(dir, o)) {
			if err != nil {
				t.Errorf("%s: %v", o, err)
			}
			ids = append(ids, e.ID)
		}
		if !slices.Equal(ids, []string{"cache/-/a", "cache/-/c"}) {
			t.Errorf("%s: got %q", o, ids)
		}
	}
}
