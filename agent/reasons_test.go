package agent

import (
	"fmt"
	"iter"
	"testing"

	"github.com/lifeboat/lifeboat/migration/manifest"
)

func TestWhyLost(t *testing.T) {
	account := func(entries ...manifest.Entry) iter.Seq2[manifest.Entry, error] {
		return func(yield func(manifest.Entry, error) bool) {
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
	lost := func(n int, why string) (all []manifest.Entry) {
		for i := range n {
			id := fmt.Sprintf("cache/-/%s-%d", why, i)
			all = append(all, manifest.Entry{ID: id, Outcome: manifest.Lost, Reason: "send block " + id + ": " + why})
		}
		return all
	}
	several := append(append(append(append(lost(1, "d"), lost(3, "full")...), lost(1, "c")...), lost(2, "away")...), lost(1, "b")...)
	large := lost(1, "z: no peer has room")
	large[0].Bytes = 20 << 30
	for _, row := range []struct {
		entries []manifest.Entry
		want    string
	}{
		{nil, ""},
		{[]manifest.Entry{{ID: "cache/-/x", Outcome: manifest.Moved}}, ""},
		{lost(2, "full"), "2: send it: full"},
		{append(several, manifest.Entry{ID: "cache/-/x", Outcome: manifest.Skipped, Reason: "a link"}), "3: send it: full; 2: send it: away; 1: send it: b; 2: other reasons"},
		{[]manifest.Entry{{ID: "cache/-/x", Outcome: manifest.Lost, Reason: "send block cache/-/x to host-c: read cache/-/x: input/output error"}}, "1: send it to host-c: read it: input/output error"},
		{lost(reasonsRead, "full"), "10000: send it: full"},
		{lost(reasonsRead+1, "full"), "of the first 10000, 10000: send it: full"},
		{append(large, several...), "3: send it: full; 2: send it: away; 1: send it: z: no peer has room; 3: other reasons"},
	} {
		if got := whyLost(account(row.entries...)); got != row.want {
			t.Errorf("got %q, want %q", got, row.want)
		}
	}
}
