package show

import (
	"encoding/json"
	"io"
	"strings"
)

// WriteJSON prints v as an indented document.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Compact returns the JSON of v on one line.
func Compact(v any) (string, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// JSONList prints a JSON array item by item, a line each, and keeps none: a node may hold a million blocks.
type JSONList struct {
	W     io.Writer
	items int
}

func (l *JSONList) Add(v any) error {
	line, err := Compact(v)
	if err != nil {
		return err
	}
	before := ",\n"
	if l.items == 0 {
		before = "[\n"
	}
	l.items++
	_, err = io.WriteString(l.W, before+line)
	return err
}

// End closes the array, and adds what follows it: the end of a document around it, or of the line.
func (l *JSONList) End(after string) error {
	end := "\n]"
	if l.items == 0 {
		end = "[]"
	}
	_, err := io.WriteString(l.W, end+after)
	return err
}
