package show

import (
	"strings"
	"testing"
)

// What stands first is what people copy: on a terminal the rest gives way to it, or stands below. Nothing is cut for a file. What came
// off the wire does not move the cursor.
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
