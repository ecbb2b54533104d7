package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/api"
)

func TestValuesFromLines(t *testing.T) {
	for _, row := range []struct {
		text string
		want string // id and value of each, or a word of the error
	}{
		{"# what they cost\ncache/-/a.bin 2h\n\n  cache/-/with space\t1m30s\ncache/-/c 0", "[cache/-/a.bin 2h0m0s] [cache/-/with space 1m30s] [cache/-/c 0s]"},
		{"cache/-/a 2h\n\ncache/-/b 2 hours\n", `line 3: cache/-/b 2 hours: "hours" is no duration: want one like 90s or 2h30m, or 0`},
		{"cache/-/a 2h\ncache/-/b\n", `line 2: "cache/-/b": want BLOCK DURATION`},
		{"cache/-/a 2h\n" + strings.Repeat("x", longestLine+1), "line 2: bufio.Scanner: token too long"},
		{"# nothing\n", "no line names a block"},
	} {
		values, err := valuesOf(strings.NewReader(row.text))
		var got []string
		for _, v := range values {
			got = append(got, fmt.Sprint([]any{v.GetId(), v.GetValue().AsDuration()}))
		}
		if err != nil && got == nil {
			got = []string{err.Error()}
		}
		if s := strings.Join(got, " "); !strings.Contains(s, row.want) {
			t.Errorf("%.40q: got %s, want %s", row.text, s, row.want)
		}
	}
}

// Values that do not fit into one call are all checked before any is taken.
func TestManyValuesAreTakenWholeOrNotAtAll(t *testing.T) {
	f := newFleet(t, true)
	var text strings.Builder
	for i := range valuesPerCall {
		fmt.Fprintf(&text, "cache/-/%d 1s\n", i)
	}
	values := func(last string) []*api.BlockValue {
		all, err := valuesOf(strings.NewReader(text.String() + last))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	to := reach{socket: f.socket}
	asked := func() string {
		text, err := os.ReadFile(filepath.Join(f.dir, "asked.json"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	err := to.setValues(t.Context(), values("other/-/b 1s"))
	if err == nil || !strings.Contains(err.Error(), "value 1 of 1: other/-/b") || !strings.Contains(asked(), `"check":true`) {
		t.Errorf("got %v, want it refused, and none taken before", err)
	}
	if err := to.setValues(t.Context(), values("cache/-/b 1s")); err != nil || strings.Contains(asked(), "check") {
		t.Errorf("got %v, asked for %.80s, want them taken", err, asked())
	}
}

// Reading values can be interrupted, even while none comes.
func TestReadingValuesIsInterrupted(t *testing.T) {
	silent, w := io.Pipe()
	defer w.Close()
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	if _, err := valuesOf(typed(ctx, silent)); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	if values, err := valuesOf(typed(t.Context(), strings.NewReader("cache/-/a 90s\n"))); err != nil || len(values) != 1 {
		t.Errorf("got %v, %v", values, err)
	}
}
