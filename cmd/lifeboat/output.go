package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

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

// someNamed wants at least one argument, and says of what.
func someNamed(verb, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s: name the %s", verb, what)
		}
		return nil
	}
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

const (
	tableWidth    = 100           // what fits on a terminal beside other things, and into a mail
	leastWidth    = 60            // on a terminal that is narrower lines wrap
	anyWidth      = math.MaxInt32 // what is read by no person, or by one with a pager
	minLastColumn = 24
)

// lineWidth is how wide a line of w may be. Nothing is cut but for a terminal.
func lineWidth(w io.Writer) int {
	if p, ok := w.(*picture); ok {
		return p.width
	}
	if !isTerminal(w) {
		return anyWidth
	}
	width, _, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil || width < 1 {
		return tableWidth
	}
	return max(width, leastWidth)
}

// roomFor is how wide a list may be in a table on w, where it may have n columns of tableWidth.
func roomFor(w io.Writer, n int) int { return n + max(0, lineWidth(w)-tableWidth) }

// picture is what is printed later, on something so wide.
type picture struct {
	bytes.Buffer
	width int
}

// table lines up columns. Where a line would be too wide for a terminal, the last column of a wordy table gives way, then the
// first of a narrow one: that is what people copy, and is not cut but has a line to itself. The last column of a folded one goes on
// below.
type table struct {
	narrow, wordy, folded bool
	rows                  [][]string
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = plain(c)
	}
	t.rows = append(t.rows, cells)
}

const minFirstColumn = 8

func (t *table) print(w io.Writer) error {
	widths := t.widths(lineWidth(w))
	last := len(widths) - 1
	before := 2 * last // the last column
	for _, n := range widths[:max(last, 0)] {
		before += n
	}
	var b strings.Builder
	for _, row := range t.rows {
		var line strings.Builder
		for i, c := range row {
			switch {
			case i == 0 && columns(c) > widths[0]:
				line.WriteString(c + "\n")
				c = ""
			case i == last && t.folded:
				c = strings.Join(fold(c, widths[i]), "\n"+strings.Repeat(" ", before))
			case i == last:
				c = cut(c, widths[i])
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
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// widths are those of the columns, once those that may give way have.
func (t *table) widths(most int) (widths []int) {
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], columns(c))
		}
	}
	line := 2 * (len(widths) - 1)
	for _, n := range widths {
		line += n
	}
	give := func(i, least, most int) {
		if line > most {
			left := max(min(widths[i], least), widths[i]-(line-most))
			line -= widths[i] - left
			widths[i] = left
		}
	}
	switch last := len(widths) - 1; {
	case t.folded:
		give(last, minLastColumn, min(most, tableWidth))
	case t.wordy:
		give(last, minLastColumn, most)
	}
	if t.narrow {
		give(0, minFirstColumn, most)
	}
	return widths
}

// listed is a line of a list that is printed as it comes: who has a block, and its id, behind a lead. The id is never cut, it
// is what people copy: the name gives way to it, and what that does not make room for has the next line to itself.
func listed(width int, lead, name, id string, usual int) string {
	name, id = plain(name), plain(id)
	usual = max(min(usual, usual-tableWidth+width), minFirstColumn) // on a narrow terminal ids begin below each other as well
	room := width - columns(lead) - 2 - 2 - columns(id)
	if room < minFirstColumn {
		return lead + "  " + cut(name, width-columns(lead)-2) + "\n  " + id
	}
	return lead + "  " + pad(cut(name, room), min(room, usual)) + "  " + id
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

// kept keeps the first error of writing: not every verb looks at each line that it prints, and none at those of its help.
type kept struct {
	io.Writer
	err error
}

func (k *kept) Write(p []byte) (int, error) {
	n, err := k.Writer.Write(p)
	k.err = cmp.Or(k.err, err)
	return n, err
}
