package main

import "testing"

// Two directories on one disk, measured one after the other, differ by what was written meanwhile: the same size is not shown twice.
func TestRoomWords(t *testing.T) {
	for _, c := range []struct {
		vault *int64
		want  string
	}{
		{nil, "70.0 GiB"},
		{new(int64(70 << 30)), "70.0 GiB"},
		{new(int64(70<<30 - 61440)), "70.0 GiB"},
		{new(int64(300 << 20)), "70.0 GiB (vault: 300 MiB)"},
	} {
		if got := roomWords(70<<30, c.vault); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
