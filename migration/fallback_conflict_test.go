package migration

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFallbackKeepsOneOfTwoContentsUnderOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLarder()
		a, _ := cached(t, 1, 100)
		b := newNode(t, "b", with(filesStore, "cache"))
		write(t, filepath.Join(b.dir, "cache/f-0000"), contentOf("another", 100))
		for _, n := range []*node{a, b} {
			tr := newTrip(t, n)
			tr.cfg.Fallback = s.as(FallbackBlocks)
			_, entries := tr.run(within(t, time.Minute))
			if n == b {
				wantLost(t, map[string][]byte{"cache/-/f-0000": nil}, entries, "another block of this id is here, of other content, from a")
			}
		}
		if got := fromFallback(t, s.as(FallbackBlocks), "cache/-/f-0000"); !bytes.Equal(got, contentOf("f-0000", 100)) {
			t.Error("the first content is gone")
		}
		// A newer version from where it was born is welcome.
		write(t, filepath.Join(a.dir, "cache/f-0000"), contentOf("newer", 120))
		tr := newTrip(t, a)
		tr.cfg.Dir = filepath.Join(a.dir, "another-incident")
		tr.cfg.Fallback = s.as(FallbackBlocks)
		_, entries := tr.run(within(t, time.Minute))
		wantInFallback(t, tr.cfg.Fallback, map[string][]byte{"cache/-/f-0000": contentOf("newer", 120)}, entries)
	})
}

// What a peer hands on of a node that has put a newer version there since does not take its place.
func TestFallbackKeepsTheNewerVersionOfWhatIsHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLarder()
		a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
		newer := contentOf("newer", 100)
		write(t, filepath.Join(a.dir, "cache/x"), contentOf("old", 100))
		a.drain(t, within(t, time.Minute), b)
		write(t, filepath.Join(a.dir, "cache/x"), newer)
		later := time.Now().Add(time.Hour)
		if err := os.Chtimes(filepath.Join(a.dir, "cache/x"), later, later); err != nil {
			t.Fatal(err)
		}
		for _, n := range []*node{a, b} {
			tr := newTrip(t, n)
			tr.cfg.Dir = filepath.Join(n.dir, "into-the-fallback")
			tr.cfg.Fallback = s.as(FallbackBlocks)
			if sum, entries := tr.run(within(t, time.Minute)); sum.Moved.Blocks != 1 || sum.Lost.Blocks != 0 {
				t.Errorf("%s: got %+v %v", n.name, sum, entries)
			}
		}
		if got := fromFallback(t, s.as(FallbackBlocks), "cache/-/x"); !bytes.Equal(got, newer) {
			t.Errorf("the fallback has %.20q, want the newer version", got)
		}
		// Half of one is none.
		for name := range s.things {
			if strings.HasPrefix(name, "lifeboat-blocks/a/") {
				delete(s.things, name)
			}
		}
		tr := newTrip(t, b)
		tr.cfg.Dir = filepath.Join(b.dir, "another-incident")
		tr.cfg.Fallback = s.as(FallbackBlocks)
		if sum, entries := tr.run(within(t, time.Minute)); sum.Moved.Blocks != 1 {
			t.Errorf("got %+v %v", sum, entries)
		}
		if got := fromFallback(t, s.as(FallbackBlocks), "cache/-/x"); !bytes.Equal(got, contentOf("old", 100)) {
			t.Errorf("the fallback has %.20q, want what there is", got)
		}
	})
}
