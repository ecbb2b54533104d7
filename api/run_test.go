package api

import (
	"slices"
	"testing"
)

// Whatever ids are put into runs come out again, in their order.
func FuzzBlockRun(f *testing.F) {
	f.Add("s/a/x", "s/a/dir/y", "s/ab/x")
	f.Add("(2 blocks)", "x", "s/a/x")
	f.Add("", "/", "//")
	f.Add("s/a/", "s/a", "s/a//")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		said, got := []string{a, b, c}, []string(nil)
		var runs []*BlockRun
		for i, id := range said {
			if last := len(runs) - 1; last < 0 || !runs[last].Add(id, int64(i)) {
				runs = append(runs, NewBlockRun(id, int64(i)))
			}
		}
		for _, r := range runs {
			if err := r.AddsUp(); err != nil {
				t.Error(err)
			}
			for id, bytes := range r.IDs() {
				if bytes != int64(len(got)) {
					t.Errorf("block %q: got %d bytes, want %d", id, bytes, len(got))
				}
				got = append(got, id)
			}
		}
		if !slices.Equal(got, said) {
			t.Errorf("got %q, want %q", got, said)
		}
	})
}
