package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestWholeBlocks(t *testing.T) {
	for _, row := range []struct {
		sizes      []int64
		room, want int64
	}{
		{[]int64{40, 40, 40}, 100, 80},            // equal ones: as many as fit
		{[]int64{40, 40}, 100, 80},                // all
		{[]int64{60, 50, 45, 30}, 100, 95},        // not the largest first
		{[]int64{101, 102, 103}, 100, 0},          // none
		{[]int64{1000, 2000, 3001}, 5003, 5001},   // nearly to the last byte
		{[]int64{70, 30, 1, 69, 31, 7}, 100, 100}, // of several answers any
	} {
		if got := wholeBlocks(row.sizes, row.room); got > row.want || float64(got) < 0.98*float64(row.want) {
			t.Errorf("%v into %d: got %d, want %d or hardly less", row.sizes, row.room, got, row.want)
		}
	}
}

func TestTableOfLinksFits(t *testing.T) {
	all := make([][]carriage, len(linksAsked))
	for i := range all {
		all[i] = []carriage{{moved: 90e6, could: 100e6, vain: 2e6, after: 20_000}, {moved: 96e6, could: 100e6}, {moved: 98e6, could: 100e6}}
	}
	all[0][1].moved = 80e6
	var b bytes.Buffer
	if err := printLinks(&b, linksAsked, all); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := len(strings.TrimSpace(line)); n > 100 {
			t.Errorf("%d columns, want at most 100: %s", n, line)
		}
	}
	if !strings.Contains(b.String(), " 90.0! ") || !strings.Contains(b.String(), " 96.0 ") || !strings.Contains(b.String(), " 20!\n") {
		t.Errorf("want 90.0! and then 96.0 of what fits, and 20! after the tail:\n%s", b.String())
	}
	if f := linkFigures(linksAsked, all, "x"); len(f) != 3*len(linksAsked) || f[0].Value != 90 || f[0].Peer != nil {
		t.Errorf("got %d figures, the first %+v", len(f), f[0])
	}
}
