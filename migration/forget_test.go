package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/reading"
)

// asks has a node's receiver answer DELETE for a block, as the agent lets a node ask.

// A version of a block is forgotten at the word of the node that it was born on, however it came and wherever it rests.
func TestForgetIsForTheNodeThatABlockWasBornOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		placed := with(inventory.StoreConfig{Name: "cache", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Land: inventory.LandPlace}, "cache")
		a := newNode(t, "a", with(filesStore, "cache"), with(sparkStore, "d0"))
		b, c := newNode(t, "b", placed, with(sparkStore, "d0", "d1")), newNode(t, "c")
		write(t, filepath.Join(a.Dir, "cache/x"), contentOf("x", 5000))
		writeMapOutput(t, []string{filepath.Join(a.Dir, "d0/blockmgr-x")}, 1, 2, 1000, 2000)
		_, entries := a.drain(t, within(t, time.Minute), b)
		b.drain(t, within(t, time.Minute), c)
		for _, n := range []*node{b, c} {
			for _, e := range entries {
				id, other := inventory.BlockID(e.ID), strings.Replace(e.Tag(), "-", "-1", 1)
				for _, ask := range []struct {
					id      inventory.BlockID
					by, tag string
					status  int
				}{
					{id, "b", e.Tag(), 403}, {id, "stranger", e.Tag(), 403}, {id, "a", other, 412}, {id, "a", "", 400}, {id, "a", "*", 412},
					{id + "x", "a", e.Tag(), 404}, {"../x", "a", e.Tag(), 400}, {id, "a", e.Tag(), 204}, {id, "a", e.Tag(), 404},
				} {
					if got := n.asks(ask.id, ask.by, ask.tag); got != ask.status {
						t.Errorf("%s asks %s to forget %s %s: got %d, want %d", ask.by, n.Name, ask.id, ask.tag, got, ask.status)
					}
				}
				if n.Has(id) {
					t.Errorf("%s still serves %s", n.Name, id)
				}
			}
			if len(n.Gone) != len(entries) {
				t.Errorf("%s told that %v are gone, want %d", n.Name, n.Gone, len(entries))
			}
		}
	})
}

// forgetful lets a drain tell nodes what to forget. It asks where a node can be reached if the drain does not know that.
func (tr *trip) forgetful(others ...*node) {
	f := &fleet{nodes: map[string]http.Handler{}}
	for _, n := range slices.AppendSeq(others, maps.Values(tr.to)) {
		f.nodes[n.Name] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete && n.Refuse != "too old" {
				n.receiver.ServeForget(w, r, tr.from.Name)
				return
			}
			n.Reader().ServeHTTP(w, r)
		})
	}
	fetch := &reading.Fetcher{Dial: f.dial}
	tr.t.Cleanup(fetch.Close)
	tr.cfg.Forget = fetch.Forget
}

// A block changed between two passes of a drain and went to another peer: its first peer forgets it, and so does the peer of a
// deleted block. If the block goes to the same peer again, the new version replaces the old one.
func TestPeersForgetWhatIsOutOfDate(t *testing.T) {
	for _, land := range []string{inventory.LandVault, inventory.LandPlace} {
		t.Run(land, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				landing := filesStore
				landing.Land = land
				a, want := cached(t, 10, 5000)
				b, c := newNode(t, "b", with(landing, "cache")), newNode(t, "c", with(landing, "cache"))
				newTrip(t, a, b).run(within(t, time.Minute))
				change := func(name, content string) {
					write(t, filepath.Join(a.Dir, "cache", name), []byte(content))
					want["cache/-/"+name] = []byte(content)
				}
				change("f-0000", "newer")
				if err := os.Remove(filepath.Join(a.Dir, "cache/f-0001")); err != nil {
					t.Fatal(err)
				}
				delete(want, "cache/-/f-0001")
				tr := newTrip(t, a, c)
				tr.forgetful(b)
				sum, entries := tr.run(within(t, time.Minute))
				wantThere(t, want, entries, b, c)
				for _, id := range []string{"cache/-/f-0000", "cache/-/f-0001"} {
					if b.Has(inventory.BlockID(id)) {
						t.Errorf("b still serves %s", id)
					}
				}
				if got := outcome(t, entries, manifest.Skipped); sum.Moved.Blocks != 9 || sum.Skipped.Blocks != 1 || !strings.Contains(got["cache/-/f-0001"].Reason, "deleted") {
					t.Errorf("got %+v %v, want 9 moved and what was deleted skipped", sum, got)
				}
				change("f-0000", "newest")
				tr = newTrip(t, a, c)
				tr.forgetful(b)
				_, entries = tr.run(within(t, time.Minute))
				wantThere(t, want, entries, b, c)
				if len(c.Gone) != 0 {
					t.Errorf("c forgot %v, which was newer", c.Gone)
				}
			})
		})
	}
}

// An engine that ends deletes its files. That is no reason to forget the copies that were saved.
func TestPeersKeepWhatAnEngineCleansUp(t *testing.T) {
	for name, clean := range map[string]func(dir string) error{
		"most of its files": func(dir string) error {
			var errs []error
			for i := range 6 {
				errs = append(errs, os.Remove(filepath.Join(dir, fmt.Sprintf("f-%04d", i))))
			}
			return errors.Join(errs...)
		},
		"a directory":   func(dir string) error { return os.RemoveAll(filepath.Join(dir, "sub")) },
		"shuffle files": func(dir string) error { return os.Remove(filepath.Join(dir, "../shuffle/x")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shuffle := inventory.StoreConfig{Name: "shuffle", Kind: inventory.KindShuffle, Layout: inventory.LayoutFiles, Land: inventory.LandVault}
				a, b := newNode(t, "a", with(filesStore, "cache"), with(shuffle, "shuffle")), newNode(t, "b")
				for i := range 10 {
					write(t, filepath.Join(a.Dir, "cache", fmt.Sprintf("f-%04d", i)), contentOf("f", 1000))
				}
				write(t, filepath.Join(a.Dir, "cache/sub/y"), contentOf("y", 1000))
				for _, name := range []string{"x", "y", "z"} {
					write(t, filepath.Join(a.Dir, "shuffle", name), contentOf(name, 1000))
				}
				newTrip(t, a, b).run(within(t, time.Minute))
				if err := clean(filepath.Join(a.Dir, "cache")); err != nil {
					t.Fatal(err)
				}
				tr, said := newTrip(t, a, b), new(bytes.Buffer)
				tr.cfg.Log = slog.New(slog.NewTextHandler(said, nil))
				tr.forgetful()
				for range 2 { // passes
					if sum, _ := tr.run(within(t, time.Minute)); sum.Moved.Blocks != 14 || len(b.Gone) != 0 {
						t.Errorf("got %+v and %v forgotten, want 14 moved", sum, b.Gone)
					}
				}
				if n := strings.Count(said.String(), "most of what was moved is deleted here"); n > 1 || n == 0 && name == "most of its files" {
					t.Errorf("got %d lines of it, want one:\n%s", n, said)
				}
			})
		})
	}
}

// A peer that forgets nothing, because it cannot or because it hangs, does not keep the drain from ending.
func TestPeerThatForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := cached(t, 10, 5000)
		b, c := newNode(t, "b"), newNode(t, "c")
		newTrip(t, a, b).run(within(t, time.Minute))
		for _, name := range []string{"f-0000", "f-0001"} {
			write(t, filepath.Join(a.Dir, "cache", name), []byte("newer"))
		}
		b.Refuse = "too old"
		var log bytes.Buffer
		tr := newTrip(t, a, c)
		tr.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		tr.forgetful(b)
		if sum, _ := tr.run(within(t, time.Minute)); sum.Moved.Blocks != 10 || strings.Count(log.String(), "upgrade it") != 2 {
			t.Errorf("got %+v, and the log\n%s", sum, &log)
		}
		write(t, filepath.Join(a.Dir, "cache/f-0002"), []byte("newer"))
		tr = newTrip(t, a, c)
		tr.cfg.Forget = func(ctx context.Context, _ reading.Holder, _ inventory.BlockID, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}
		began := time.Now()
		tr.run(within(t, time.Minute))
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// Deleted files are looked for only where files may be gone: in a directory that changed since the look before; and everywhere,
// when a drain that goes on does not meet all blocks that it had moved.
func TestDeletedFilesAreLookedForWhereSomethingWent(t *testing.T) {
	a, _ := cached(t, 10, 1000)
	write(t, filepath.Join(a.Dir, "cache/sub/x"), contentOf("x", 1000))
	b := newNode(t, "b")
	tr := newTrip(t, a, b)
	tr.run(within(t, time.Minute))
	goOn := func() *Drain {
		d := NewDrain(tr.cfg)
		t.Cleanup(func() { d.plan.Close() })
		d.survey.scan(t.Context(), 0)
		return d
	}
	d := goOn()
	if d.survey.stirred.any() {
		t.Error("all is here, and something is looked for")
	}
	dir := filepath.Join(a.Dir, "cache")
	d.survey.looks.since[dir] = time.Now().Add(time.Hour)
	if d.survey.scan(t.Context(), 1); d.survey.stirred.any() {
		t.Errorf("nothing changed, and something is looked for: %v", d.survey.stirred.dirs)
	}
	d.survey.looks.since[dir] = time.Now().Add(-time.Hour)
	d.survey.scan(t.Context(), 2)
	for id, want := range map[string]bool{"cache/-/f-0001": true, "cache/-/sub/x": true, "cache/-/other/x": false} {
		if got := d.survey.stirred.has(id); got != want {
			t.Errorf("%s is looked for: got %v, want %v", id, got, want)
		}
	}
	if err := os.Remove(filepath.Join(dir, "f-0001")); err != nil {
		t.Fatal(err)
	}
	if d := goOn(); !d.survey.stirred.has("cache/-/f-0001") {
		t.Error("what is not here any more is not looked for")
	}
}

// A notice is withdrawn after blocks were moved, and the node goes on. When it leaves for good, peers forget the copies from the
// first drain that are out of date, wherever the new version is.
func TestPeersForgetWhatAWithdrawnDrainLeftThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 10, 5000)
		b, c := newNode(t, "b"), newNode(t, "c")
		before := newTrip(t, a, b)
		before.run(within(t, time.Minute))
		write(t, filepath.Join(a.Dir, "cache/f-0000"), []byte("newer"))
		want["cache/-/f-0000"] = []byte("newer")
		if err := os.Remove(filepath.Join(a.Dir, "cache/f-0001")); err != nil {
			t.Fatal(err)
		}
		delete(want, "cache/-/f-0001")
		tr := newTrip(t, a, c)
		tr.cfg.Dir, tr.cfg.Earlier = filepath.Join(a.Dir, "another-incident"), []string{before.cfg.Dir, filepath.Join(a.Dir, "never")}
		tr.forgetful(b)
		sum, entries := tr.run(within(t, time.Minute))
		wantThere(t, want, entries, c)
		slices.Sort(b.Gone)
		if sum.Skipped.Blocks != 0 || !slices.Equal(b.Gone, []inventory.BlockID{"cache/-/f-0000", "cache/-/f-0001"}) || len(c.Gone) != 0 {
			t.Errorf("got %+v, b forgot %v, c %v", sum, b.Gone, c.Gone)
		}
	})
}

// A peer that has no copy any more may have handed it on, so all other nodes are told to forget it, unless its version is today's.
func TestHeirsAreToldWhatToForget(t *testing.T) {
	here, away, old, today := "b:7412", errors.New("no route"), "7@1", "7@2"
	for _, c := range []struct {
		name         string
		first, heirs error
		at           string // where the coordinator says that it is
		today        string // version in the account's line that counts
		calls        string // for two copies at one peer: p is a call of that peer, h one of all other nodes
		told, left   int
	}{
		{"it has it", nil, nil, here, today, "phph", 2, 0},
		{"it has it, and who else has it is away", nil, away, here, today, "phph", 0, 2},
		{"it has it no more", fs.ErrNotExist, nil, here, today, "phph", 2, 0},
		{"another version is there", catalog.ErrAnother, nil, here, today, "phph", 0, 0},
		{"it was not born here", catalog.ErrNotOwned, nil, here, today, "pp", 0, 0},
		{"it is away", away, nil, here, today, "phh", 0, 2},
		{"nobody says who has it", fs.ErrNotExist, reading.ErrUnlocated, here, today, "php", 0, 2},
		{"an heir does not answer", fs.ErrNotExist, away, here, today, "phph", 0, 2},
		{"it is today's too", fs.ErrNotExist, nil, here, old, "pp", 2, 0},
		{"it is gone", nil, nil, "", today, "hh", 0, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls := ""
			cfg := DrainConfig{
				Log:             slog.New(slog.DiscardHandler),
				Where:           func(context.Context, string) (string, error) { return c.at, nil },
				Forget:          func(context.Context, reading.Holder, inventory.BlockID, string) error { calls += "p"; return c.first },
				ForgetElsewhere: func(context.Context, string, inventory.BlockID, string) error { calls += "h"; return c.heirs },
			}
			w := newWithdrawal(cfg, nil, lastHeard(nil), nil)
			l, err := manifest.Open(t.TempDir(), nil, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"cache/-/x", "cache/-/y"} {
				l.Add(manifest.Entry{ID: id, Outcome: manifest.Moved, Peer: "b", Version: old}, manifest.Entry{ID: id, Outcome: manifest.Moved, Peer: "c", Version: c.today})
			}
			l.OnceMore()
			if w.last, err = l.LastLines(); err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"cache/-/x", "cache/-/y"} {
				w.tell(t.Context(), stale{Entry: manifest.Entry{ID: id, Outcome: manifest.Moved, Peer: "b", Version: old}})
			}
			if calls != c.calls || w.told != c.told || w.left != c.left {
				t.Errorf("got %q, %d told and %d left, want %q, %d and %d", calls, w.told, w.left, c.calls, c.told, c.left)
			}
		})
	}
}

// finds counts the files that are looked for.
type finds struct {
	inventory.Layout
	n *int
}

func (f finds) Find(s *inventory.Store, id inventory.BlockID, at func(*string)) (inventory.Block, error) {
	*f.n++
	return f.Layout.Find(s, id, at)
}

// The peer that took all blocks is gone. Until it is back, no file is looked at to find out what it should forget; then it is
// told.
func TestNothingIsLookedAtForWhoIsGone(t *testing.T) {
	_, a, _ := drained(t)
	next := newTrip(t, a, newNode(t, "c"))
	next.cfg.Lapsed = (&asked{gone: func(inventory.BlockID) bool { return true }}).lapsed
	next.run(t.Context())
	write(t, filepath.Join(a.Dir, "cache", "f-1"), []byte("newer"))
	looked, at, told := 0, "", []inventory.BlockID{}
	a.Stores[0].Shape = finds{a.Stores[0].Shape, &looked}
	next.cfg.Where = func(context.Context, string) (string, error) { return at, nil }
	next.cfg.Forget = func(_ context.Context, _ reading.Holder, id inventory.BlockID, _ string) error {
		told = append(told, id)
		return nil
	}
	away, err := ForgetRest(t.Context(), next.cfg)
	if err != nil || !slices.Equal(away, []string{"b"}) || looked > 0 || len(told) > 0 {
		t.Errorf("while it is gone: got %v, %v, looked at %d files, told it of %v", away, err, looked, told)
	}
	at = "b:1"
	away, err = ForgetRest(t.Context(), next.cfg)
	if err != nil || len(away) > 0 || looked != 4 || !slices.Equal(told, []inventory.BlockID{"cache/-/f-1"}) {
		t.Errorf("once it is back: got %v, %v, looked at %d files, told it of %v", away, err, looked, told)
	}
}

// What peers could not be told in time they are told at the next try.
func TestWhatThereWasNoTimeToTellIsToldLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const blocks = 3 * forgetLanes
		a, _ := cached(t, blocks, 500)
		newTrip(t, a, newNode(t, "b")).run(within(t, time.Minute))
		next := newTrip(t, a, newNode(t, "c"))
		next.cfg.Lapsed = (&asked{gone: func(inventory.BlockID) bool { return true }}).lapsed
		next.run(within(t, time.Minute))
		for i := range blocks {
			write(t, filepath.Join(a.Dir, "cache", fmt.Sprintf("f-%04d", i)), []byte("newer"))
		}
		var told sync.Map
		count := func() (n int) {
			told.Range(func(any, any) bool { n++; return true })
			return n
		}
		next.cfg.Peers = func() []Peer { return []Peer{{Node: "b", Address: "b:1"}} }
		next.cfg.Forget = func(_ context.Context, _ reading.Holder, id inventory.BlockID, _ string) error {
			time.Sleep(time.Second)
			told.Store(id, true)
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if away, err := ForgetRest(ctx, next.cfg); err == nil {
			t.Errorf("got no error, %v away, and %d told of %d", away, count(), blocks)
		}
		time.Sleep(10 * time.Second)
		if _, err := ForgetRest(t.Context(), next.cfg); err != nil || count() != blocks {
			t.Errorf("the second time: got %v, and %d told of %d", err, count(), blocks)
		}
	})
}

// A drain that is called off tells peers later what to forget, and logs nothing about it. When time is up, peers keep what they
// have.
func TestForgettingThatIsCalledOffIsNoTrouble(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		lines int
	}{"withdrawn": {errors.New("the notice was withdrawn"), 0}, "stopped": {nil, 0}, "time is up": {context.DeadlineExceeded, 2}} {
		t.Run(name, func(t *testing.T) {
			_, a, _ := drained(t)
			next := newTrip(t, a, newNode(t, "b"))
			write(t, filepath.Join(a.Dir, "cache", "f-1"), []byte("newer"))
			synctest.Test(t, func(t *testing.T) {
				var said strings.Builder
				next.cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
				ctx, end := context.WithCancelCause(t.Context())
				next.cfg.Forget = func(ctx context.Context, _ reading.Holder, _ inventory.BlockID, _ string) error {
					end(c.cause)
					<-ctx.Done()
					return ctx.Err()
				}
				next.run(ctx)
				if n := strings.Count(said.String(), "context canceled"); n != c.lines {
					t.Errorf("told %d times, want %d: %s", n, c.lines, &said)
				}
			})
		})
	}
}

// No coordinator says where peers are. They are told what to forget where they were last heard of.
func TestPeersAreToldWhatToForgetWithoutACoordinator(t *testing.T) {
	_, a, _ := drained(t)
	next := newTrip(t, a, newNode(t, "c"))
	next.cfg.Lapsed = (&asked{gone: func(inventory.BlockID) bool { return true }}).lapsed
	next.run(t.Context())
	write(t, filepath.Join(a.Dir, "cache", "f-1"), []byte("newer"))
	told := []inventory.BlockID{}
	next.cfg.Peers = func() []Peer { return []Peer{{Node: "b", Address: "b:1"}} }
	next.cfg.Where = func(context.Context, string) (string, error) { return "", errors.New("no coordinator answers") }
	next.cfg.Forget = func(_ context.Context, h reading.Holder, id inventory.BlockID, _ string) error {
		told = append(told, inventory.BlockID(h.Address)+" "+id)
		return nil
	}
	away, err := ForgetRest(t.Context(), next.cfg)
	if err != nil || len(away) > 0 || !slices.Equal(told, []inventory.BlockID{"b:1 cache/-/f-1"}) {
		t.Errorf("got %v, %v, and told %v", away, err, told)
	}
}
