package show

import (
	"strings"
	"unicode"
)

// wide has the characters that take two columns of a terminal: East Asian ones and emoji (Markus Kuhn's wcwidth(3), from Unicode's
// EastAsianWidth.txt).
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1}, {Lo: 0x2e80, Hi: 0x303e, Stride: 1}, {Lo: 0x3041, Hi: 0xa4cf, Stride: 1},
		{Lo: 0xac00, Hi: 0xd7a3, Stride: 1}, {Lo: 0xf900, Hi: 0xfaff, Stride: 1}, {Lo: 0xfe30, Hi: 0xfe6f, Stride: 1},
		{Lo: 0xff00, Hi: 0xff60, Stride: 1}, {Lo: 0xffe0, Hi: 0xffe6, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x1f300, Hi: 0x1f64f, Stride: 1}, {Lo: 0x1f680, Hi: 0x1f6ff, Stride: 1}, {Lo: 0x1f900, Hi: 0x1f9ff, Stride: 1},
		{Lo: 0x20000, Hi: 0x3fffd, Stride: 1},
	},
}

func widthOf(r rune) int {
	switch {
	case r < 0x300: // most text; none of the cases below
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf): // combining accents, and joiners
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// Columns returns how many columns of a terminal a text takes.
func Columns(s string) (n int) {
	for _, r := range s {
		n += widthOf(r)
	}
	return n
}

// pad appends spaces to s until it is width columns wide.
func pad(s string, width int) string { return s + strings.Repeat(" ", max(0, width-Columns(s))) }

// Cut returns s, or as much of it as fits into width columns with an ellipsis at its end.
func Cut(s string, width int) string {
	if Columns(s) <= width {
		return s
	}
	room := width - 1
	for i, r := range s {
		if room -= widthOf(r); room < 0 {
			return s[:i] + "…"
		}
	}
	return s
}

// Fold breaks a sentence into lines of at most width columns: between words, or between two wide characters, since East Asian text has no
// spaces. A longer word is not broken: it may be a path that people copy.
func Fold(s string, width int) (lines []string) {
	line, at, glue := "", 0, "" // glue: the space before the next piece, if any
	for word := range strings.FieldsSeq(s) {
		for piece := range pieces(word) {
			w := Columns(piece)
			if line != "" && at+len(glue)+w > width {
				lines, line, at, glue = append(lines, line), "", 0, ""
			}
			line, at, glue = line+glue+piece, at+len(glue)+w, ""
		}
		glue = " "
	}
	return append(lines, line)
}

// pieces yields the parts of a word between which a line may end.
func pieces(word string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		from, before := 0, 0
		for i, r := range word {
			w := widthOf(r)
			if before == 2 && w == 2 {
				if !yield(word[from:i]) {
					return
				}
				from = i
			}
			if w > 0 {
				before = w
			}
		}
		yield(word[from:])
	}
}
