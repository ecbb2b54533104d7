package inventory

import (
	"testing"
	"time"
)

func TestPlacesBeyondThoseRemembered(t *testing.T) {
	p, here, there := NewPlaces(), site{"/store", "d", 1, 2}, site{"/store", "e", 1, 2}
	first, second := time.Now(), time.Now().Add(1)
	p.add(here, first, false)
	if p.lacks(here, first, true) || !p.lacks(there, first, false) || !p.lacks(here, second, false) {
		t.Error("a directory is known where it was, to the look that went through it")
	}
	for i := range uint64(mostPlaces) {
		p.add(site{"/store", "more", 1, 10 + i}, first, false)
	}
	beyond := site{"/store", "beyond", 1, 3}
	if p.add(beyond, first, false); len(p.of) != mostPlaces || p.lacks(beyond, first, false) || !p.lacks(beyond, first, true) {
		t.Errorf("of %d, one that was perhaps forgotten counts as new only where it may have been moved", len(p.of))
	}
	if p.add(beyond, second, true); p.lacks(beyond, second, true) {
		t.Error("one that was looked at twice is new")
	}
}
