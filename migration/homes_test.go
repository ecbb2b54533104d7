package migration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/reading"
)

// handed is a node that took ten blocks from their home, and is to leave for the nodes to.
func handed(t *testing.T, to ...*node) (home *node, next *trip) {
	t.Helper()
	home, _ = cached(t, 10, 100)
	b := newNode(t, "b", with(filesStore, "cache"))
	newTrip(t, home, b).run(within(t, time.Minute))
	next = newTrip(t, b, to...)
	return home, next
}

// When time is up, blocks that their home still has unchanged are skipped, and so are blocks that have changed there, which nobody needs.
// Blocks that their home has no more are lost.
func TestSparesAreSkippedWhenTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home, next := handed(t)
		write(t, filepath.Join(home.Dir, "cache", "f-0001"), []byte("newer"))
		if err := os.Remove(filepath.Join(home.Dir, "cache", "f-0002")); err != nil {
			t.Fatal(err)
		}
		next.cfg.AtHome = func(_ context.Context, h reading.Holder, about []reading.Version) (reading.AtHome, error) {
			if h.Node != "a" {
				t.Errorf("%s is asked", h.Node)
			}
			is := home.Reader().AtHome(about)
			is.Has = append(is.Has, -1, len(about)) // a home out of its mind
			return is, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, entries := next.run(ctx)
		for id := range outcome(t, entries, manifest.Lost) {
			if id != "cache/-/f-0002" {
				t.Errorf("%s is lost", id)
			}
		}
		skipped := outcome(t, entries, manifest.Skipped)
		if len(skipped) != 9 || !strings.HasPrefix(skipped["cache/-/f-0000"].Reason, "a, which it came from, has it: ") ||
			skipped["cache/-/f-0001"].Reason != "it has changed on a, which it came from" {
			t.Errorf("got %v, want nine skipped, and where they are", skipped)
		}
	})
}

// A node that was away, and leaves, does not hand on a block whose home is gone if another node has a newer version.
func TestOthersAreAskedWhereHomesAreGone(t *testing.T) {
	c, d := newNode(t, "c", with(filesStore, "cache")), newNode(t, "d", with(filesStore, "cache"))
	home, next := handed(t, c)
	write(t, filepath.Join(home.Dir, "cache", "f-0001"), []byte("newer"))
	home.drain(t, within(t, time.Minute), d)
	next.cfg.Where = func(context.Context, string) (string, error) { return "", nil }
	next.cfg.AtHome = func(_ context.Context, h reading.Holder, about []reading.Version) (reading.AtHome, error) {
		if h.Node != "d" {
			return reading.AtHome{}, errors.New("no route")
		}
		return d.Reader().AtHome(about), nil
	}
	var asked sync.Map // in one question or, on a slow machine, in several
	next.cfg.WhoElse = func(_ context.Context, blocks []inventory.BlockID) ([]reading.Holder, bool, error) {
		for _, id := range blocks {
			asked.Store(id, true)
		}
		return holders("d", "e"), true, nil
	}
	sum, entries := next.run(within(t, time.Minute))
	n := 0
	for range asked.Range {
		n++
	}
	if n != 10 {
		t.Errorf("asked about %d blocks, want all", n)
	}
	skipped := outcome(t, entries, manifest.Skipped)
	if sum.Moved.Blocks != 9 || len(skipped) != 1 || skipped["cache/-/f-0001"].Reason != "it has changed on a, which it came from" {
		t.Errorf("got %+v, skipped %v, want all moved but what is newer elsewhere", sum, skipped)
	}
}

// If no answer says which other nodes have blocks, that question is asked once. If one of those nodes does not answer, it is asked once,
// and the others go on being asked.
func TestOthersThatDoNotSayAreAskedOnce(t *testing.T) {
	no := errors.New("no route")
	for name, c := range map[string]struct {
		whoElse, answer error
		asked           map[string]int
	}{
		"no coordinator": {whoElse: no, asked: map[string]int{"coordinator": 1}},
		"one holder":     {answer: no, asked: map[string]int{"coordinator": 10, "d": 1, "e": 10}},
	} {
		t.Run(name, func(t *testing.T) {
			_, next := handed(t)
			asked := map[string]int{}
			next.cfg.Where = func(context.Context, string) (string, error) { return "", nil }
			next.cfg.AtHome = func(_ context.Context, h reading.Holder, _ []reading.Version) (reading.AtHome, error) {
				asked[h.Node]++
				return reading.AtHome{}, map[string]error{"d": c.answer}[h.Node]
			}
			next.cfg.WhoElse = func(context.Context, []inventory.BlockID) ([]reading.Holder, bool, error) {
				if asked["coordinator"]++; c.whoElse != nil {
					return nil, false, c.whoElse
				}
				return holders("d", "e"), true, nil
			}
			d := NewDrain(next.cfg)
			for it, err := range carried(next.cfg.Vault, nil) {
				if err != nil {
					t.Fatal(err)
				}
				d.homes.askEach(t.Context(), []inventory.Block{it.Block})
			}
			if !maps.Equal(asked, c.asked) {
				t.Errorf("asked %v times, want %v", asked, c.asked)
			}
			d.account.ledger.Close()
			d.plan.Close()
		})
	}
}

// A home that does not answer, or is gone, is asked once, and its blocks are sent like all others.
func TestSilentHomesHoldNobodyUp(t *testing.T) {
	for name, answer := range map[string]error{"does not answer": errors.New("no route"), "is gone": nil} {
		t.Run(name, func(t *testing.T) {
			c := newNode(t, "c", with(filesStore, "cache"))
			_, next := handed(t, c)
			asked := 0
			if answer == nil {
				next.cfg.Where = func(context.Context, string) (string, error) { return "", nil }
			}
			next.cfg.AtHome = func(context.Context, reading.Holder, []reading.Version) (reading.AtHome, error) {
				asked++
				return reading.AtHome{Has: []int{0}}, answer
			}
			if sum, _ := next.run(within(t, time.Minute)); sum.Moved.Blocks != 10 {
				t.Errorf("got %+v, want all moved", sum)
			}
			if want := map[bool]int{true: 1}[answer != nil]; asked != want {
				t.Errorf("asked %d times, want %d", asked, want)
			}
		})
	}
}

// If the network is cut, each home would be waited for in turn. After a few silent homes no more are asked.
func TestHomesAreNotAskedOnAndOn(t *testing.T) {
	asked := 0
	h := &homes{cargo: cargo{log: slog.New(slog.DiscardHandler)}, asks: true, at: map[string]string{}, where: newTrip(t, newNode(t, "b")).cfg.Where, atHome: func(context.Context, reading.Holder, []reading.Version) (reading.AtHome, error) {
		asked++
		return reading.AtHome{}, errors.New("no route")
	}}
	for i := range 100 {
		h.askHome(t.Context(), fmt.Sprint("n", i), nil)
	}
	if asked != reading.MostSilent {
		t.Errorf("%d were asked, want %d", asked, reading.MostSilent)
	}
}

func TestServeHome(t *testing.T) {
	a, _ := cached(t, 2, 100)
	tag := func(id inventory.BlockID) string {
		b, err := a.Stores[0].Find(id)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(b.Tag(), `"`)
	}
	one := func(id, tag string) string { return fmt.Sprintf(`{"id":%q,"tag":%q}`, id, tag+`"`) }
	x, y := one("cache/-/f-0000", tag("cache/-/f-0000")), one("cache/-/f-0001", tag("cache/-/f-0001"))
	for _, c := range []struct {
		name, blocks string
		leaves, sick bool
		status       int
		body         string
	}{
		{"both", x + "," + y, false, false, 200, `{"has":[0,1]}`},
		{"one in another version", one("cache/-/f-0000", "7-8") + "," + y, false, false, 200, `{"has":[1],"changed":[0]}`},
		{"one that it never had", x + "," + one("cache/-/z", "7-8") + "," + one("else/-/z", "7-8"), false, false, 200, `{"has":[0],"gone":[1]}` + "\n"},
		{"none", "", false, false, 200, `{"has":[]}`},
		{"it leaves", x + "," + one("cache/-/f-0001", "7-8"), true, false, 200, `{"has":[],"changed":[1],"leaves":true}`},
		{"its disk fails", x + "," + one("cache/-/f-0001", "7-8"), false, true, 200, `{"has":[]}`},
		{"a name that climbs", one("cache/-/../../etc/passwd", "1-2"), false, false, 400, "etc/passwd"},
		{"too many", strings.Repeat(x+",", reading.MostAsked) + x, false, false, 400, "at most 1024"},
		{"no JSON", "{", false, false, 400, "invalid character"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := a.Reader()
			disks := newFakeDisks(1<<40, a.Stores[0].Paths...)
			r.Disks = disks
			if c.sick {
				disks.Bad[a.Stores[0].Paths[0]] = true
			}
			w := httptest.NewRecorder()
			r.ServeHome(w, httptest.NewRequest(http.MethodPost, "/home", strings.NewReader(`{"blocks":[`+c.blocks+`]}`)), c.leaves)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) {
				t.Errorf("got %d %s, want %d %s", w.Code, w.Body, c.status, c.body)
			}
		})
	}
	unmounted := newNode(t, "a", with(filesStore, "cache")).Reader().AtHome([]reading.Version{{ID: "cache/-/z"}})
	if len(unmounted.Gone) > 0 {
		t.Errorf("of a directory in which there is nothing at all: got %+v, want it not to say that it has no more", unmounted)
	}
}

// A home gets a notice while its blocks wait for their turn. Those for which there is no time are named as lost.
func TestSparesAreLostWhenTheirHomeGoesToo(t *testing.T) {
	for name, goes := range map[string]error{"leaves": nil, "does not answer any more": errors.New("no route")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				home, next := handed(t)
				asked := 0
				next.cfg.AtHome = func(_ context.Context, _ reading.Holder, about []reading.Version) (reading.AtHome, error) {
					if asked++; asked == 1 {
						return home.Reader().AtHome(about), nil
					}
					return reading.AtHome{}, goes
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				sum, entries := next.run(ctx)
				lost := outcome(t, entries, manifest.Lost)
				if sum.Lost.Blocks != 10 || !strings.HasPrefix(lost["cache/-/f-0000"].Reason, "the deadline came first: a, which it came from, had it, and leaves too") {
					t.Errorf("got %+v, %v, want ten lost, and why", sum, lost)
				}
			})
		})
	}
}

// lagging is a store that cannot be read until goOn is closed.
type lagging struct {
	inventory.Layout
	goOn chan struct{}
}

func (l lagging) Scan(ctx context.Context, s *inventory.Store, part int, before inventory.Past, yield func(inventory.Item, error) bool) bool {
	<-l.goOn
	return l.Layout.Scan(ctx, s, part, before, yield)
}

// A disk takes a minute to list its files. Meanwhile lanes send blocks from other nodes that only this node has, but no spares: those would
// keep the node's own blocks waiting.
func TestSparesWaitForWhatTheNodeHasItself(t *testing.T) {
	for name, c := range map[string]struct {
		gone  bool
		early int64
	}{"spares": {false, 0}, "of nodes that are gone": {true, 10}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := newNode(t, "c", with(filesStore, "cache"))
				home, next := handed(t, to)
				b := next.from
				write(t, filepath.Join(b.Dir, "cache", "own"), []byte("its own"))
				lags := lagging{b.Stores[0].Shape, make(chan struct{})}
				b.Stores[0].Shape = lags
				next.cfg.AtHome = func(_ context.Context, _ reading.Holder, about []reading.Version) (reading.AtHome, error) {
					return home.Reader().AtHome(about), nil
				}
				next.cfg.Settle = func(context.Context) { time.Sleep(time.Second) }
				if c.gone {
					next.cfg.Where = func(context.Context, string) (string, error) { return "", nil }
				}
				time.AfterFunc(time.Minute, func() {
					if got := to.Vault.Count().Blocks; got != c.early {
						t.Errorf("before its own are known %d blocks have left, want %d", got, c.early)
					}
					close(lags.goOn)
				})
				if sum, _ := next.run(t.Context()); sum.Moved.Blocks != 11 {
					t.Errorf("got %+v, want all moved", sum)
				}
			})
		})
	}
}

// A drain looks again after the homes of blocks have answered. Until then those blocks are not in the plan, and an empty plan does not mean
// that the drain is done.
func TestDrainLooksAgainAfterHomesAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNode(t, "c", with(filesStore, "cache"))
		_, next := handed(t, c)
		next.cfg.AtHome = func(context.Context, reading.Holder, []reading.Version) (reading.AtHome, error) {
			time.Sleep(time.Second / 2) // it has looked twice by then
			write(t, filepath.Join(next.from.Dir, "cache", "late"), []byte("late"))
			return reading.AtHome{}, nil
		}
		_, entries := next.run(within(t, time.Minute))
		if moved := outcome(t, entries, manifest.Moved); moved["cache/-/late"].Peer != "c" {
			t.Errorf("got %v, want what was written meanwhile, too", slices.Sorted(maps.Keys(moved)))
		}
	})
}

// A pass learns only when it has met all blocks which of them no node holds any more. It still asks the homes of those, and ends.
func TestHomesOfWhatIsCarriedAgainAreAsked(t *testing.T) {
	for _, once := range []bool{true, false} {
		t.Run(fmt.Sprint("once=", once), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := newNode(t, "c", with(filesStore, "cache")), newNode(t, "d", with(filesStore, "cache"))
				_, next := handed(t, c)
				next.run(within(t, time.Minute))
				again := newTrip(t, next.from, d)
				again.cfg.Once = once
				again.cfg.AtHome = func(_ context.Context, h reading.Holder, about []reading.Version) (reading.AtHome, error) {
					return reading.AtHome{}, nil
				}
				again.cfg.Lapsed = (&asked{gone: func(inventory.BlockID) bool { return true }}).lapsed
				began := time.Now()
				sum, entries := again.run(within(t, time.Minute))
				if n := takenBy(t, entries); sum.Moved.Blocks != 10 || n["d"] != 10 {
					t.Errorf("got %+v, %v, want all carried again", sum, n)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// lateDisks take their time to answer about a directory.
type lateDisks struct {
	diskio.Disks
	dir string
}

func (s lateDisks) Readable(path string) bool {
	if path == s.dir {
		time.Sleep(10 * time.Millisecond)
	}
	return s.Disks.Readable(path)
}

// Blocks that landed in their place are met by the look at their store, which may take longer than the look at the vault.
func TestHomesOfWhatLandedInPlaceAreAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := newNode(t, "a", with(sparkStore, "s0"))
		for m := range 3 {
			writeMapOutput(t, []string{filepath.Join(home.Dir, "s0/blockmgr-1")}, 0, m, 1000)
		}
		b, c := newNode(t, "b", with(sparkStore, "s0")), newNode(t, "c", with(sparkStore, "s0"))
		newTrip(t, home, b).run(within(t, time.Minute))
		next := newTrip(t, b, c)
		next.cfg.Once, next.cfg.Disks = true, lateDisks{diskio.OrWell(nil), b.Stores[0].Paths[0]}
		next.cfg.AtHome = func(context.Context, reading.Holder, []reading.Version) (reading.AtHome, error) {
			return reading.AtHome{}, nil
		}
		if sum, _ := next.run(within(t, time.Minute)); sum.Moved.Blocks != 3 {
			t.Errorf("got %+v, want all handed on", sum)
		}
	})
}

// Time is up in a pass that another follows, while spares wait for their turn. The last pass meets them when no time is left, and asks their
// home all the same: they are no loss.
func TestSparesWhenTimeIsUpInAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home, next := handed(t)
		next.cfg.Once = true
		next.cfg.AtHome = func(_ context.Context, h reading.Holder, about []reading.Version) (reading.AtHome, error) {
			return home.Reader().AtHome(about), nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		next.run(ctx)
		last := newTrip(t, next.from)
		last.cfg.AtHome = next.cfg.AtHome
		last.cfg.Late, last.cfg.Unwritten = next.drain.TimeUp(), next.drain.Unwritten()
		_, entries := last.run(ctx)
		if lost, skipped := outcome(t, entries, manifest.Lost), outcome(t, entries, manifest.Skipped); len(lost) != 0 || len(skipped) != 10 {
			t.Errorf("%d lost, %d skipped, want all skipped: their home has them", len(lost), len(skipped))
		}
	})
}
