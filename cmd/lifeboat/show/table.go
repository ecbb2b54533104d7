// Package show is how the verbs print: tables and words for people, JSON for programs, and pictures that are drawn anew for those who
// watch. A terminal has so many columns and does as it is told by control characters, so lines are cut and folded by their width there,
// and what came off the wire is made plain; a file or a pipe gets all of it. It knows nothing of nodes and blocks.
//
// The files: table; words, what a number or a name is called; columns, how wide that is; terminal, how wide it may be; watch; format
// and json, for -o.
package show

import (
	"io"
	"slices"
	"strings"
)

// Table lines up columns, below a heading if it is a narrow one. Where a line would be too wide for a terminal, a narrow table leaves
// out columns that say nothing of any row, the last column of a wordy one gives way, then the first of a narrow one: that is what people
// copy, and is not cut but has a line to itself. The last column of a folded one goes on below.
type Table struct {
	Narrow, Wordy, Folded bool
	rows                  [][]string
	below                 map[int]string // the last line of a row, across the columns
}

// Row adds a line. What came off the wire does not move the cursor.
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = Plain(c)
	}
	t.rows = append(t.rows, cells)
}

// Below adds a line about the last row, set in.
func (t *Table) Below(line string) {
	if t.below == nil {
		t.below = map[int]string{}
	}
	t.below[len(t.rows)-1] = "  " + Plain(line)
}

// minFirstColumn is what a first column keeps that gives way.
const minFirstColumn = 8

// Print writes it as wide as w is.
func (t *Table) Print(w io.Writer) error {
	most := WidthOf(w)
	widths := t.widths(most)
	last := len(widths) - 1
	before := 2 * last // the last column
	for _, n := range widths[:max(last, 0)] {
		before += n
	}
	var b strings.Builder
	for n, row := range t.rows {
		var line strings.Builder
		for i, c := range row {
			switch {
			case i == 0 && Columns(c) > widths[0]:
				line.WriteString(c + "\n")
				c = ""
			case i == last && t.Folded:
				c = strings.Join(Fold(c, widths[i]), "\n"+strings.Repeat(" ", before))
			case i == last:
				c = Cut(c, widths[i])
			}
			if i > 0 {
				line.WriteString("  ")
			}
			if i < last {
				c = pad(c, widths[i])
			}
			line.WriteString(c)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		if below := t.below[n]; below != "" {
			b.WriteString(Cut(below, most) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// measure is how wide each column would like to be, and a line.
func (t *Table) measure() (widths []int, line int) {
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Columns(c))
		}
	}
	line = 2 * (len(widths) - 1)
	for _, n := range widths {
		line += n
	}
	return widths, line
}

// leaveOut drops the columns that say nothing of any row.
func (t *Table) leaveOut() {
	for i := len(t.rows[0]) - 1; i > 0; i-- {
		if !slices.ContainsFunc(t.rows[1:], func(row []string) bool { return row[i] != "-" }) {
			for n := range t.rows {
				t.rows[n] = slices.Delete(t.rows[n], i, i+1)
			}
		}
	}
}

// widths are those of the columns, once those that may give way have.
func (t *Table) widths(most int) (widths []int) {
	widths, line := t.measure()
	if t.Narrow && line > most && len(t.rows) > 1 {
		t.leaveOut()
		widths, line = t.measure()
	}
	give := func(i, least, most int) {
		if line > most {
			left := max(min(widths[i], least), widths[i]-(line-most))
			line -= widths[i] - left
			widths[i] = left
		}
	}
	switch last := len(widths) - 1; {
	case t.Folded:
		give(last, MinLastColumn, min(most, Width))
	case t.Wordy:
		give(last, MinLastColumn, most)
	}
	if t.Narrow {
		give(0, minFirstColumn, most)
	}
	return widths
}

// Listed is a line of a list that is printed as it comes: who has a block, and its id, behind a lead. The id is never cut, it
// is what people copy: the name gives way to it, and what that does not make room for has the next line to itself.
func Listed(width int, lead, name, id string, usual int) string {
	name, id = Plain(name), Plain(id)
	usual = max(min(usual, usual-Width+width), minFirstColumn) // on a narrow terminal ids begin below each other as well
	room := width - Columns(lead) - 2 - 2 - Columns(id)
	if room < minFirstColumn {
		return lead + "  " + Cut(name, width-Columns(lead)-2) + "\n  " + id
	}
	return lead + "  " + pad(Cut(name, room), min(room, usual)) + "  " + id
}

// Sections prints each table after a blank line, and nothing of one that has only a heading.
func Sections(w io.Writer, tables ...*Table) error {
	for _, t := range tables {
		if len(t.rows) < 2 {
			continue
		}
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
		if err := t.Print(w); err != nil {
			return err
		}
	}
	return nil
}
