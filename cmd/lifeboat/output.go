package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// format is -o: a table for people or JSON for programs.
type format string

const (
	formatTable format = "table"
	formatJSON  format = "json"
)

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "FORMAT" }

func (f *format) Set(s string) error {
	switch v := format(s); v {
	case formatTable, formatJSON:
		*f = v
		return nil
	}
	return fmt.Errorf("want table or json")
}

func (f *format) flag(cmd *cobra.Command) {
	*f = formatTable
	cmd.Flags().VarP(f, "output", "o", "table or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]cobra.Completion{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// writeJSON prints one document.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// compact is v on one line.
func compact(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// jsonList prints a JSON array an item a line, as the items come: a node may carry a million blocks.
type jsonList struct {
	w     io.Writer
	items int
}

func (l *jsonList) add(v any) error {
	line, err := compact(v)
	if err != nil {
		return err
	}
	before := ",\n"
	if l.items == 0 {
		before = "[\n"
	}
	l.items++
	_, err = io.WriteString(l.w, before+line)
	return err
}

// end closes the array. What follows it on the line is the caller's.
func (l *jsonList) end() error {
	after := "\n]"
	if l.items == 0 {
		after = "[]"
	}
	_, err := io.WriteString(l.w, after)
	return err
}

// tableWidth is what fits on a terminal beside other things, and into a mail.
const tableWidth = 100

// table lines up columns. Where a line would be wider than tableWidth, the last column of a wordy table gives way, then the
// first of a narrow one; programs that need the whole of it read JSON. The last column of a folded one goes on below.
type table struct {
	narrow, wordy, folded bool
	short                 func(s string, width int) string // how the first column gives way; nil: cut
	rows                  [][]string
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = plain(c)
	}
	t.rows = append(t.rows, cells)
}

const (
	minFirstColumn = 8
	minLastColumn  = 24
)

func (t *table) print(w io.Writer) error {
	short := t.short
	if short == nil {
		short = cut
	}
	widths := t.widths()
	last := len(widths) - 1
	var b strings.Builder
	for _, row := range t.rows {
		var line strings.Builder
		for i, c := range row {
			switch {
			case i == 0:
				c = short(c, widths[0])
			case i == last && t.folded:
				c = strings.Join(fold(c, widths[i]), "\n"+strings.Repeat(" ", columns(line.String())+2))
			case i == last:
				c = cut(c, widths[i])
			}
			if i > 0 {
				line.WriteString("  ")
			}
			line.WriteString(c)
			if i < last {
				line.WriteString(strings.Repeat(" ", widths[i]-columns(c)))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// widths are those of the columns, once those that may give way have.
func (t *table) widths() (widths []int) {
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], columns(c))
		}
	}
	over := 2*(len(widths)-1) - tableWidth
	for _, n := range widths {
		over += n
	}
	give := func(i, least int) {
		if over > 0 {
			left := max(min(widths[i], least), widths[i]-over)
			over -= widths[i] - left
			widths[i] = left
		}
	}
	if t.wordy || t.folded {
		give(len(widths)-1, minLastColumn)
	}
	if t.narrow {
		give(0, minFirstColumn)
	}
	return widths
}

// listed is a line of a list that is printed as it comes: who has a block, and its id, behind a lead. The id is never cut, it
// is what people copy: the name gives way to it, and what that does not make room for has the next line to itself.
func listed(lead, name, id string, widest int) string {
	name, id = plain(name), plain(id)
	room := tableWidth - columns(lead) - 2 - 2 - columns(id)
	if room < minFirstColumn {
		return lead + "  " + cut(name, tableWidth-columns(lead)-2) + "\n  " + id
	}
	width := max(minFirstColumn, min(room, widest))
	return fmt.Sprintf("%s  %-*s  %s", lead, width, cut(name, width), id)
}

// columns is how wide a text is.
func columns(s string) int { return utf8.RuneCountInString(s) }

func cut(s string, width int) string {
	if r := []rune(s); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return s
}

// cutFront leaves the end of a text.
func cutFront(s string, width int) string {
	if r := []rune(s); len(r) > width {
		return "…" + string(r[len(r)-width+1:])
	}
	return s
}

// isTerminal tells whether a person looks at w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminalWidth is how many columns w shows, 0 when it is no terminal.
func terminalWidth(w io.Writer) int {
	width, _ := terminalSize(w)
	return width
}

// terminalSize is how many columns and lines w shows, 0 when it is no terminal.
func terminalSize(w io.Writer) (width, height int) {
	if !isTerminal(w) {
		return 0, 0
	}
	width, height, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24 // what a terminal that does not say has had since the VT100
	}
	return width, height
}
