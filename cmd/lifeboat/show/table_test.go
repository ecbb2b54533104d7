package show

import (
	"strings"
	"testing"
)

// People copy the first column: on a terminal the others are cut for it, or it gets a line of its own. Nothing is cut for a file. Control
// characters off the wire do not reach the terminal.
func TestTableGivesWay(t *testing.T) {
	name, word := strings.Repeat("ä", 70), strings.Repeat("c", 40)
	for _, row := range []struct {
		Table
		width int
		want  string
	}{
		{Table{Narrow: true, Wordy: true}, 80, name + "\n" + strings.Repeat(" ", 49) + "b      " + word[:23] + "…\nshort" + strings.Repeat(" ", 44) + "b?[2J  c\n"},
		{Table{Wordy: true}, 100, name + "  b      " + word[:23] + "…\n"},
		{Table{Narrow: true}, 120, name + "  b      " + word + "\n"},
		{Table{Narrow: true, Wordy: true}, anyWidth, name + "  b      " + word + "\n"},
	} {
		row.Row("NAME", "B", "C")
		row.Row(name, "b", word)
		row.Row("short", "b\x1b[2J", "c")
		out := Picture{Width: row.width}
		if err := row.Print(&out); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); !strings.Contains(got, row.want) {
			t.Errorf("%d columns: got\n%s\nwant\n%s", row.width, got, row.want)
		}
	}
}

// A narrow table on a terminal leaves out a column that is "-" in every row if that gives names room; a file has all columns. Lines below a
// row are cut.
func TestTableLeavesOutWhatSaysNothing(t *testing.T) {
	name := "ip-10-120-113-117.eu-central-1.compute.internal"
	print := func(width int) string {
		table := Table{Narrow: true}
		table.Row("NAME", "STATE", "DEADLINE", "BLOCKS", "ROOM", "BEAT")
		table.Row(name, "ACTIVE", "-", "-", "64.5 GiB", "0.9s")
		table.Below("waits for " + strings.Repeat("much ", 20))
		table.Row("host-b", "ACTIVE", "-", "-", "-", "0.4s")
		out := Picture{Width: width}
		if err := table.Print(&out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	narrow := "NAME" + strings.Repeat(" ", 45) + "STATE   ROOM      BEAT\n" + name + "  ACTIVE  64.5 GiB  0.9s\n  waits for " + strings.Repeat("much ", 13) + "mu…\nhost-b" + strings.Repeat(" ", 43) + "ACTIVE  -         0.4s\n"
	if got := print(80); got != narrow {
		t.Errorf("got\n%s\nwant\n%s", got, narrow)
	}
	if got := print(120); !strings.Contains(got, "DEADLINE  BLOCKS  ROOM") {
		t.Errorf("where there is room, columns are missing:\n%s", got)
	}
}
