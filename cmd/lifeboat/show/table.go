// Package show prints the output of the verbs: tables and words for people, JSON for programs, and with --watch a picture that is redrawn
// each second. On a terminal it cuts and folds lines to the width; a file or a pipe gets all of them. It replaces the control characters
// in text that came off the wire, since a terminal would obey them. It knows nothing of nodes and blocks.
//
// The files: table; words formats numbers, times and names; columns measures and folds text; terminal finds the width; watch redraws;
// format and json are for -o.
package show

import (
	"io"
	"slices"
	"strings"
)

// Table lines up columns. If a line is too wide for the terminal, a Narrow table, which must have a heading, leaves out the columns that
// are "-" in every row; then a Wordy table cuts its last column; then a Narrow one narrows its first, and puts a longer name there on a
// line of its own, uncut, since people copy names. A Folded table folds its last column.
type Table struct {
	Narrow, Wordy, Folded bool
	rows                  [][]string
	below                 map[int]string // by row: a line below it, across the columns
}

// Row adds a line, and makes its cells Plain: text off the wire must not move the cursor.
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = Plain(c)
	}
	t.rows = append(t.rows, cells)
}

// List adds a line for each of some texts, with a label before the first.
func (t *Table) List(label string, texts ...string) {
	for _, text := range texts {
		t.Row(label, text)
		label = ""
	}
}

// Below adds an indented line about the last row.
func (t *Table) Below(line string) {
	if t.below == nil {
		t.below = map[int]string{}
	}
	t.below[len(t.rows)-1] = "  " + Plain(line)
}

// minFirstColumn is the least width to which a first column is narrowed.
const minFirstColumn = 8

// Print writes the table at most as wide as w.
func (t *Table) Print(w io.Writer) error {
	most := WidthOf(w)
	widths := t.widths(most)
	last := len(widths) - 1
	before := 2 * last // columns before the last column of the table
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

// measure returns the natural widths of the columns and of a line.
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

// leaveOut drops the columns that are "-" in every row.
func (t *Table) leaveOut() {
	for i := len(t.rows[0]) - 1; i > 0; i-- {
		if !slices.ContainsFunc(t.rows[1:], func(row []string) bool { return row[i] != "-" }) {
			for n := range t.rows {
				t.rows[n] = slices.Delete(t.rows[n], i, i+1)
			}
		}
	}
}

// widths returns the columns' widths for lines of at most most columns; see Table for which columns are narrowed.
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

// Listed formats one line of a list that is printed as it comes: a lead, the name of a node, and the id of a block. The id is never cut,
// since people copy it: the name is cut, and if that makes too little room the id goes on a line of its own. usual is the name's width.
func Listed(width int, lead, name, id string, usual int) string {
	name, id = Plain(name), Plain(id)
	usual = max(min(usual, usual-Width+width), minFirstColumn) // on a narrow terminal ids begin below each other as well
	room := width - Columns(lead) - 2 - 2 - Columns(id)
	if room < minFirstColumn {
		return lead + "  " + Cut(name, width-Columns(lead)-2) + "\n  " + id
	}
	return lead + "  " + pad(Cut(name, room), min(room, usual)) + "  " + id
}

// Sections prints each table after a blank line, and skips tables that have only a heading.
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
