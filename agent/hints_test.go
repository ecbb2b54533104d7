package agent

import (
	"strings"
	"testing"
	"time"
)

// The values of a store's blocks are checked before they are used.
func TestHintsAreChecked(t *testing.T) {
	good := Store{Value: time.Minute, Hints: []Hint{{"shuffle_[0-9]_*", time.Hour}}}
	for _, row := range []struct {
		change func(*Store)
		want   string
	}{
		{func(*Store) {}, ""},
		{func(s *Store) { s.Value = -1 }, "stores[0].value"},
		{func(s *Store) { s.Value = 721 * time.Hour }, "stores[0].value"},
		{func(s *Store) { s.Hints[0].Match = "a[" }, "stores[0].hints[0].match"},
		{func(s *Store) { s.Hints[0].Match = "" }, "stores[0].hints[0].match"},
		{func(s *Store) { s.Hints[0].Value = 0 }, "stores[0].hints[0].value"},
		{func(s *Store) { s.Hints = make([]Hint, maxHints+1) }, "stores[0].hints"},
	} {
		s := good
		s.Hints = append([]Hint(nil), good.Hints...)
		row.change(&s)
		var got []string
		s.validateWorth(func(key string, _ any, _, _ string) { got = append(got, key) }, "stores[0]")
		if row.want == "" && len(got) > 0 || row.want != "" && (len(got) == 0 || !strings.HasPrefix(got[0], row.want)) {
			t.Errorf("got faults at %v, want at %q", got, row.want)
		}
	}
}
