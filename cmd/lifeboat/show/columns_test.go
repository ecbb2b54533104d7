package show

import (
	"strings"
	"testing"
)

// An East Asian character or an emoji takes two columns, and a combining accent none.
func TestWideTextIsMeasured(t *testing.T) {
	for text, want := range map[string]int{"": 0, "host-a": 6, "é": 1, "e\u0301": 1, "カーネル": 8, "한국": 4, "😀!": 3, "…—": 2} {
		if got := Columns(text); got != want {
			t.Errorf("%q is %d columns wide, want %d", text, got, want)
		}
	}
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"カーネル", 8, "カーネル"}, {"カーネル", 7, "カーネ…"}, {"カーネル", 6, "カー…"}, {"abcdef", 4, "abc…"},
	} {
		if got := Cut(c.text, c.width); got != c.want {
			t.Errorf("%q in %d columns: got %q, want %q", c.text, c.width, got, c.want)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"カーネル更新のため", "カーネル更|新のため"},
		{"a kernel カーネル更新", "a kernel|カーネル更|新"},
		{"/a/path/that/is/long is gone", "/a/path/that/is/long|is gone"},
		{"one two three", "one two|three"},
		{"", ""},
	} {
		if got := strings.Join(Fold(c.text, 10), "|"); got != c.want {
			t.Errorf("%q: got %q, want %q", c.text, got, c.want)
		}
	}
	if got := pad("カー", 6) + pad("long enough", 6); got != "カー  long enough" {
		t.Errorf("got %q", got)
	}
	if got := Plain("a\u202eb\u2028c\x1b[2J\u009d 日本 e\u0301"); got != "a?b?c?[2J? 日本 e\u0301" {
		t.Errorf("got %q", got)
	}
}
