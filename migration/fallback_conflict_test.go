package migration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

func TestFallbackKeepsOneOfTwoContentsUnderOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLarder()
		a, _ := cached(t, 1, 100)
		b := newNode(t, "b", with(filesStore, "cache"))
		write(t, filepath.Join(b.Dir, "cache/f-0000"), contentOf("another", 100))
		for _, n := range []*node{a, b} {
			tr := newTrip(t, n)
			tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
			_, entries := tr.run(within(t, time.Minute))
			if n == b {
				wantLost(t, map[string][]byte{"cache/-/f-0000": nil}, entries, "another block of this id is here, of other content, from a")
			}
		}
		if got := fromFallback(t, s.as(lastresort.LayoutBlocks), "cache/-/f-0000"); !bytes.Equal(got, contentOf("f-0000", 100)) {
			t.Error("the first content is gone")
		}
		// A newer version from the block's home replaces it.
		write(t, filepath.Join(a.Dir, "cache/f-0000"), contentOf("newer", 120))
		tr := newTrip(t, a)
		tr.cfg.Dir = filepath.Join(a.Dir, "another-incident")
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		_, entries := tr.run(within(t, time.Minute))
		wantInFallback(t, tr.cfg.Fallback, map[string][]byte{"cache/-/f-0000": contentOf("newer", 120)}, entries)
	})
}

// A peer hands on an old version of a block. It does not replace the newer one that the block's home has put into the fallback since.
func TestFallbackKeepsTheNewerVersionOfWhatIsHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLarder()
		a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
		newer := contentOf("newer", 100)
		write(t, filepath.Join(a.Dir, "cache/x"), contentOf("old", 100))
		a.drain(t, within(t, time.Minute), b)
		write(t, filepath.Join(a.Dir, "cache/x"), newer)
		later := time.Now().Add(time.Hour)
		if err := os.Chtimes(filepath.Join(a.Dir, "cache/x"), later, later); err != nil {
			t.Fatal(err)
		}
		for _, n := range []*node{a, b} {
			tr := newTrip(t, n)
			tr.cfg.Dir = filepath.Join(n.Dir, "into-the-fallback")
			tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
			if sum, entries := tr.run(within(t, time.Minute)); sum.Moved.Blocks != 1 || sum.Lost.Blocks != 0 {
				t.Errorf("%s: got %+v %v", n.Name, sum, entries)
			}
		}
		if got := fromFallback(t, s.as(lastresort.LayoutBlocks), "cache/-/x"); !bytes.Equal(got, newer) {
			t.Errorf("the fallback has %.20q, want the newer version", got)
		}
		// Half of one is none.
		for name := range s.things {
			if strings.HasPrefix(name, "lifeboat-blocks/a/") {
				delete(s.things, name)
			}
		}
		tr := newTrip(t, b)
		tr.cfg.Dir = filepath.Join(b.Dir, "another-incident")
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		if sum, entries := tr.run(within(t, time.Minute)); sum.Moved.Blocks != 1 {
			t.Errorf("got %+v %v", sum, entries)
		}
		if got := fromFallback(t, s.as(lastresort.LayoutBlocks), "cache/-/x"); !bytes.Equal(got, contentOf("old", 100)) {
			t.Errorf("the fallback has %.20q, want what there is", got)
		}
	})
}

// All nodes leave at once: the home of a block, with a newer version, and a peer that hands on an older one. Whichever puts its bytes first,
// what the fallback has in the end is the newer version, whole.
func TestFallbackHasTheNewerVersionWhenBothArePutAtOnce(t *testing.T) {
	for _, size := range []int{100, 120} { // the older one has 100
		for late := -150 * time.Millisecond; late <= 150*time.Millisecond; late += 50 * time.Millisecond {
			t.Run(fmt.Sprintf("%d bytes, the peer %v later", size, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newLarder()
					s.latency = 100 * time.Millisecond
					a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
					newer := contentOf("newer", size)
					write(t, filepath.Join(a.Dir, "cache/x"), contentOf("old", 100))
					a.drain(t, within(t, time.Minute), b)
					time.Sleep(time.Hour)
					write(t, filepath.Join(a.Dir, "cache/x"), newer)
					var leaving sync.WaitGroup
					for n, after := range map[*node]time.Duration{a: -late, b: late} {
						leaving.Go(func() {
							time.Sleep(after)
							tr := newTrip(t, n)
							tr.cfg.Dir = filepath.Join(n.Dir, "into-the-fallback")
							tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
							if sum, entries := tr.run(within(t, time.Minute)); sum.Moved.Blocks != 1 || sum.Lost.Blocks != 0 {
								t.Errorf("%s: got %+v %v", n.Name, sum, entries)
							}
						})
					}
					leaving.Wait()
					if got := fromFallback(t, s.as(lastresort.LayoutBlocks), "cache/-/x"); !bytes.Equal(got, newer) {
						t.Errorf("the fallback has %.20q, want the newer version", got)
					}
				})
			})
		}
	}
}

// A node that was killed as it handed on a block has left its bytes in the fallback, without a record. It puts them again.
func TestFallbackTakesWhatAKilledNodeHadBegunToHandOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLarder()
		a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
		write(t, filepath.Join(a.Dir, "cache/x"), contentOf("x", 100))
		a.drain(t, within(t, time.Minute), b)
		s.things["lifeboat-blocks/a/cache/-/x"] = contentOf("half of it", 50)
		tr := newTrip(t, b)
		tr.cfg.Fallback = s.as(lastresort.LayoutBlocks)
		_, entries := tr.run(within(t, 10*time.Second))
		wantInFallback(t, tr.cfg.Fallback, map[string][]byte{"cache/-/x": contentOf("x", 100)}, entries)
	})
}

// Spark's own copies of map outputs have no checksums. Whichever of our copy and Spark's is in the fallback first stands for the other; a
// map output with other bytes stands for neither.
func TestFallbackTakesMapOutputWithoutChecksumsForTheSame(t *testing.T) {
	for _, first := range []string{"a", "b"} {
		for _, layout := range []string{lastresort.LayoutBlocks, lastresort.LayoutSpark} {
			t.Run(first+" first, "+layout, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newLarder()
					want := map[string][]byte{}
					leave := []*node{newNode(t, "a", with(sparkStore, "d0")), newNode(t, "b", with(sparkStore, "d0"))}
					for _, n := range leave {
						managers := []string{filepath.Join(n.Dir, "d0/application_1_1/blockmgr-x")}
						for no := range 2 {
							for name, content := range writeMapOutput(t, managers, 1, no, 100, 50) {
								if want["spark/application_1_1/"+name] = content; n.Name == "b" && strings.Contains(name, ".checksum.") {
									if err := os.Remove(spot(managers, name)); err != nil {
										t.Fatal(err)
									}
								}
							}
						}
						if n.Name == "b" {
							write(t, spot(managers, "shuffle_1_1_0.data"), contentOf("other", 150))
						}
					}
					if first == "b" {
						slices.Reverse(leave)
					}
					var last []manifest.Entry
					for _, n := range leave {
						tr := newTrip(t, n)
						tr.cfg.Fallback = s.as(layout)
						_, last = tr.run(within(t, time.Minute))
					}
					for _, e := range last {
						if want := map[string]manifest.Outcome{"spark/application_1_1/shuffle_1_0_0": manifest.Moved, "spark/application_1_1/shuffle_1_1_0": manifest.Lost}[e.ID]; e.Outcome != want {
							t.Errorf("%s: got %s (%s), want %s", e.ID, e.Outcome, e.Reason, want)
						}
					}
					for _, name := range []string{"shuffle_1_0_0.data", "shuffle_1_0_0.index"} {
						id := "spark/application_1_1/" + name
						if got := fromFallback(t, s.as(layout), id); !bytes.Equal(got, want[id]) {
							t.Errorf("%s: the fallback has %d bytes of it that are other ones than %d", id, len(got), len(want[id]))
						}
					}
				})
			})
		}
	}
}
