package api

import "testing"

func TestPlacesInOrder(t *testing.T) {
	order := []Place{{}, {Term: 1, Index: 1}, {Term: 1, Index: 1, Soft: 1}, {Term: 1, Index: 2}, {Term: 2, Index: 2, Soft: 1}, {Term: 2, Index: 3}, {Term: 2, Index: 3, Soft: 1}}
	for i, p := range order {
		for j, q := range order {
			if got, want := p.Compare(q), min(max(i-j, -1), 1); got != want {
				t.Errorf("%s with %s: got %d, want %d", p, q, got, want)
			}
		}
	}
	bare := Place{Index: 2}
	for _, c := range []struct {
		to   Place
		want int
	}{{Place{Term: 5, Index: 1}, 1}, {Place{Term: 5, Index: 2}, 0}, {Place{Term: 5, Index: 2, Soft: 9}, -1}, {Place{Term: 5, Index: 3}, -1}} {
		if got := bare.Compare(c.to); got != c.want {
			t.Errorf("%s with %s: got %d, want %d", bare, c.to, got, c.want)
		}
	}
}

func FuzzParsePlace(f *testing.F) {
	for _, text := range []string{"0", "12", "3.1204", "3.1204.7", "0.5", "0.5.1", "", ".", "1.", "-1", "01", "1.2.3.4", "18446744073709551616", "1e3", "+1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePlace(text)
		if err != nil {
			if len(err.Error()) > 400 {
				t.Errorf("got %d bytes of complaint", len(err.Error()))
			}
			return
		}
		again, err := ParsePlace(p.String())
		if err != nil || again != p {
			t.Errorf("%q: got %+v and then %+v, %v", text, p, again, err)
		}
	})
}
