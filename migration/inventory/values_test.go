package inventory

import (
	"strings"
	"testing"
	"time"
)

func TestValuesFileThatIsWrongCountsAsFarAsItIsRight(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"{\"id\":\"a\",\"value\":\"1s\"}\n\n{\"id\":\"b\",\"value\":\"2h\"}", ""},
		{"{\"id\":\"a\",\"value\":\"1s\"}\nb 2h\n", `line 2: want {"id": FILE, "value": "90s"}, FILE being a name in that directory, got "b 2h"`},
		{"{\"id\":\"a\",\"value\":\"1s\"}\n{\"id\":\"b\",\"value\":90}\n", "line 2: want {"},
		{"{\"id\":\"a\",\"value\":\"1s\"}\n{\"id\":\"cache/-/b\",\"value\":\"2h\"}\n", "line 2: want {"},
		{"{\"id\":\"a\",\"value\":\"1s\"}\n{\"id\":\"b\",\"value\":\"-2h\"}\n", "line 2: want an id and a value"},
		{"{\"id\":\"a\",\"value\":\"1s\"}\n{\"id\":\"b\",\"value\":\"2000h\"}\n", "line 2: want"},
		{"{\"id\":\"a\",\"value\":\"1s\"}\n" + strings.Repeat("x", maxValueLine+1), "too long"},
		{"{\"id\":\"a\",\"value\":\"1s\"}\n" + strings.Repeat("\n", maxValuesBytes) + "{\"id\":\"b\",\"value\":\"1s\"}", ""},
	} {
		v := values{of: map[string]time.Duration{}}
		err := v.read(strings.NewReader(row.text))
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%.40q: got %v, want %q", row.text, err, row.want)
		}
		if v.of["a"] != time.Second {
			t.Errorf("%.40q: the first line was lost", row.text)
		}
	}
}

func FuzzValues(f *testing.F) {
	f.Add("{\"id\":\"a\",\"value\":\"1s\"}\n")
	f.Fuzz(func(t *testing.T, text string) {
		v := values{of: map[string]time.Duration{}}
		_ = v.read(strings.NewReader(text))
		for id, value := range v.of {
			if id == "" || value <= 0 || value > MostValue {
				t.Errorf("%q is worth %v", id, value)
			}
		}
	})
}
