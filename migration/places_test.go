package migration

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/plan"
)

// Engines write files into a directory and commit by renaming it. A drain finds directories that get another place while it runs: renamed,
// moved into the store, or put in the place of another directory of that name.
func TestDirectoriesThatAreMovedDuringADrain(t *testing.T) {
	for _, indexes := range []bool{false, true} {
		t.Run(fmt.Sprintf("index=%v", indexes), func(t *testing.T) {
			a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
			for _, name := range []string{"cache/d1/x", "cache/d1/e/x", "cache/old/x", "cache/top", "outside/deep/y"} {
				write(t, filepath.Join(a.Dir, name), contentOf(name, 1000))
			}
			outlast(t)
			tr := newTrip(t, a, b)
			if indexes {
				tr.cfg.Index = indexed(t, a)
			}
			var once sync.Once
			tr.wrap = func(c net.Conn) net.Conn {
				once.Do(func() {
					for _, r := range [][2]string{{"cache/d1", "cache/d2"}, {"outside", "cache/d3"}, {"cache/old", "gone"}, {"cache/d2/e", "cache/old"}} {
						if err := os.Rename(filepath.Join(a.Dir, r[0]), filepath.Join(a.Dir, r[1])); err != nil {
							t.Error(err)
						}
					}
				})
				return c
			}
			sum, entries := tr.run(within(t, time.Minute))
			wantThere(t, map[string][]byte{
				"cache/-/top":       contentOf("cache/top", 1000),
				"cache/-/d2/x":      contentOf("cache/d1/x", 1000),
				"cache/-/d3/deep/y": contentOf("outside/deep/y", 1000),
				"cache/-/old/x":     contentOf("cache/d1/e/x", 1000),
			}, entries, b)
			if sum.Lost.Blocks != 0 {
				t.Errorf("got %+v", sum)
			}
		})
	}
}

// The machine's clock is set back during a drain, so files that are written from then on seem older than the looks before. They are found
// all the same, once.
func TestWhatIsWrittenAfterTheClockWasSetBackIsFound(t *testing.T) {
	a := newNode(t, "a", with(filesStore, "cache"))
	d := NewDrain(newTrip(t, a).cfg)
	if back := setBack(d.account.began); back.Abs() > inventory.ClockGrain/2 {
		t.Skipf("the clock was set by %v", back)
	}
	if n := d.survey.scan(t.Context(), 0); n != 0 {
		t.Fatalf("found %d", n)
	}
	dir := a.Stores[0].Paths[0]
	d.survey.looks.since[dir] = d.survey.looks.since[dir].Add(time.Hour) // as if the clock had been ahead then
	d.account.began = d.account.began.Add(time.Hour)
	write(t, filepath.Join(dir, "x"), nil)
	d.survey.looks.heedClock(time.Hour)
	since := d.survey.looks.since[dir]
	if n := d.survey.scan(t.Context(), 1); n != 1 {
		t.Errorf("found %d, want what was written since", n)
	}
	d.survey.looks.since[dir] = since
	if n := d.survey.scan(t.Context(), 1); n != 0 {
		t.Errorf("found %d again", n)
	}
}

// The machine's clock is set back during a drain, so the look after it cannot tell what was written shortly before the drain from what was
// written since. What was moved by then counts as moved, and is not sent again, but for what its peer has lost; what the deadline leaves
// behind is named once.
func TestWhatIsMetAgainAfterTheClockWasSetBackIsAccountedForOnce(t *testing.T) {
	a := newNode(t, "a", with(filesStore, "cache"))
	for _, name := range []string{"moved", "late", "left", "lapsed"} {
		write(t, filepath.Join(a.Stores[0].Paths[0], name), []byte(name))
	}
	d := NewDrain(newTrip(t, a).cfg)
	dir := a.Stores[0].Paths[0]
	d.account.began = d.account.began.Add(time.Minute) // as if the files were older than the drain
	if n := d.survey.scan(t.Context(), 0); n != 4 {
		t.Fatalf("found %d, want 4", n)
	}
	d.survey.looks.since[dir] = d.survey.looks.since[dir].Add(time.Minute)
	blocks := map[string]inventory.Block{}
	for it, err := range a.Stores[0].Scan(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		blocks[it.ID.Name()] = it.Block
	}
	move := func(name string) { d.account.moved("b", []plan.Entry{{Block: blocks[name]}}) }
	move("moved")
	move("lapsed")
	d.survey.looks.heedClock(time.Hour)
	if n := d.survey.scan(t.Context(), 1); n != 2 {
		t.Errorf("found %d, want those of before that were not moved", n)
	}
	d.account.ledger.OnceMore()
	move("late") // it is in the plan twice
	d.survey.claims.planAnew(t.Context(), blocks["lapsed"], -1)
	if d.account.history.outdated(blocks["lapsed"]) { // as before the account is read again, or where it cannot be
		t.Error("what is planned anew counts as moved")
	}
	ended, end := context.WithCancelCause(t.Context())
	end(context.DeadlineExceeded)
	d.nameLost(ended)
	sum, err := d.account.close()
	if err != nil {
		t.Fatal(err)
	}
	if sum.Moved.Blocks != 2 || sum.Lost.Blocks != 2 {
		t.Errorf("got %d moved and %d lost, want 2 and 2", sum.Moved.Blocks, sum.Lost.Blocks)
	}
}

// The clock jumps ahead during a drain, as on a machine that was suspended, and is set right after a look used it. Since the drain began it
// was not set back, but files that are written from then on seem older than that look. They are found all the same.
func TestWhatIsWrittenAfterAClockThatWasAheadWasSetRightIsNews(t *testing.T) {
	l := newLooks(slog.New(slog.DiscardHandler))
	began, dirs := time.Now(), []string{"/d"}
	for _, at := range []struct{ off, after time.Duration }{{0, 0}, {-time.Hour, time.Hour + time.Second}, {-time.Hour / 2, 0}, {0, 0}} {
		if l.heedClock(at.off); at.after > 0 {
			l.read(dirs, began.Add(at.after))
		}
	}
	if news, _ := l.news(dirs, began.Add(10*time.Second), began, false); !news {
		t.Error("what was written since the last look is no news")
	}
	if news, _ := l.news(dirs, began.Add(-time.Minute), began, false); news {
		t.Error("what was written before the drain is news")
	}
}
