package blockmap

import (
	"fmt"
	"testing"
	"unique"
)

// A full report repeats what a node has each time that the leader changes: none of these blocks counts as ended.
func TestWhatStaysDoesNotLapse(t *testing.T) {
	known := New()
	x, y := KeyOf("s/a/x"), KeyOf("s/a/y")
	full := func(keys ...Key) *Map {
		all := New()
		for _, k := range keys {
			if _, err := all.Hear("b", []Word{{Key: k, What: Landed{Bytes: 1, From: unique.Make("a")}}}); err != nil {
				t.Fatal(err)
			}
		}
		return all
	}
	known.Replace("b", "", full(x, y))
	known.Replace("b", "", full(x))
	if _, why := known.EndOf(x); why != "" {
		t.Errorf("x, which is held: got %q", why)
	}
	if from, why := known.EndOf(y); from != "a" || why != "b has it no more" {
		t.Errorf("y: got %q from %q", why, from)
	}
	if nodes, _ := known.Holders(x); len(nodes) != 1 || known.Located() != 1 {
		t.Errorf("got x at %v and %d blocks in all, want it at b alone", nodes, known.Located())
	}
}

// However many blocks end, only the newest of them are remembered.
func TestLapsedAreBounded(t *testing.T) {
	var l lapsed
	from := unique.Make("a")
	spread := func(i int) uint64 { return uint64(i) * 0x9e3779b97f4a7c15 }
	const many = 10 * lapsedRows * lapsedEach
	for i := range many {
		l.add(spread(i), from, "b removed it")
		l.add(spread(i), from, fmt.Sprint("c removed it ", i%2)) // it came again, and went
	}
	kept, once := 0, map[uint64]bool{}
	for _, row := range l.rows {
		kept += len(row)
		for _, one := range row {
			once[one.key] = true
		}
		if cap(row) > lapsedEach {
			t.Fatalf("room for %d in a row, want at most %d", cap(row), lapsedEach)
		}
	}
	if kept > lapsedRows*lapsedEach || kept != len(once) {
		t.Errorf("got %d of %d blocks, want each once and at most %d", kept, len(once), lapsedRows*lapsedEach)
	}
	for i, want := range map[int]string{many - 1: "c removed it 1", many - lapsedRows: "c removed it 0", 0: "", many + 1: ""} {
		if _, why := l.at(spread(i)); why != want {
			t.Errorf("block %d of %d: got %q, want %q", i, many, why, want)
		}
	}
}
