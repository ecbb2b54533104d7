package migration

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// drained is a drain that is over, of blocks f-0 to f-3 and of one that was skipped.
func drained(t *testing.T) (tr *trip, a, b *node) {
	t.Helper()
	a, b = newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
	for i := range 4 {
		name := fmt.Sprint("f-", i)
		write(t, filepath.Join(a.Dir, "cache", name), contentOf(name, 1000))
	}
	write(t, filepath.Join(a.Dir, "cache", "unfinished.tmp"), []byte("half"))
	tr = newTrip(t, a, b)
	sum, _ := tr.run(t.Context())
	if sum.Moved.Blocks != 4 || sum.Skipped.Blocks != 1 {
		t.Fatalf("got %+v, want 4 moved, 1 skipped", sum)
	}
	return tr, a, b
}

// wantAccount checks that figures and entries of a drain agree, that every block is named once, and how many fared how.
func wantAccount(t *testing.T, sum manifest.Summary, entries []manifest.Entry, moved, lost int64) {
	t.Helper()
	for o, n := range map[manifest.Outcome]int64{manifest.Moved: sum.Moved.Blocks, manifest.Lost: sum.Lost.Blocks, manifest.Skipped: sum.Skipped.Blocks} {
		if got := outcome(t, entries, o); int64(len(got)) != n {
			t.Errorf("%d entries of what is %s, want %d", len(got), o, n)
		}
	}
	if sum.Moved.Blocks != moved || sum.Lost.Blocks != lost || sum.Skipped.Blocks != 1 || sum.Moved.Bytes != moved*1000 {
		t.Errorf("got %+v, want %d moved, %d lost, 1 skipped", sum, moved, lost)
	}
}

// A drain has ended, and a block breaks at the peer that took it. Another pass of the drain sends it again and adds to the account. A block
// that the account does not have at that peer is left alone.
func TestAnotherPassCarriesWhatBroke(t *testing.T) {
	tr, _, b := drained(t)
	b.remove(t, func(h vault.Held) bool {
		return h.ID == "cache/-/f-0" || h.ID == "cache/-/f-1" || h.ID == "cache/-/f-2"
	})
	tr.cfg.Again = []Broken{{ID: "cache/-/f-0", Peer: "c", Heir: true}, {ID: "cache/-/f-1", Peer: "b"}, {ID: "cache/-/f-2", Peer: "c"}, {ID: "cache/-/unheard-of", Peer: "b"}}
	sum, entries := tr.run(t.Context())
	wantAccount(t, sum, entries, 4, 0)
	for _, name := range []string{"f-0", "f-1"} {
		if got := b.Content(t, "cache/-/"+name); !bytes.Equal(got, contentOf(name, 1000)) {
			t.Errorf("%s broke and was not carried again", name)
		}
	}
	if status, _, _ := b.Get(t, "cache/-/f-2", ""); status != 404 {
		t.Errorf("what is elsewhere by the account was carried again: status %d", status)
	}
}

// No peer takes a broken block, or the block is not here any more: it is named as lost, and nothing else changes in the account.
func TestWhatCannotBeCarriedAgainIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(t *testing.T, tr *trip, a *node) context.Context
		reason string
	}{
		"no time": {func(t *testing.T, _ *trip, _ *node) context.Context {
			ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
			t.Cleanup(cancel)
			return ctx
		}, "the deadline came first: what b had of it is broken"},
		"deleted meanwhile": {func(t *testing.T, _ *trip, a *node) context.Context {
			if err := a.Stores[0].Roots[0].Remove("f-1"); err != nil {
				t.Fatal(err)
			}
			return t.Context()
		}, "what b had of it is broken, and here: it is not here any more"},
	} {
		t.Run(name, func(t *testing.T) {
			tr, a, _ := drained(t)
			tr.cfg.Again = []Broken{{ID: "cache/-/f-1", Peer: "b"}}
			ctx := c.spoil(t, tr, a)
			sum, entries := tr.run(ctx)
			wantAccount(t, sum, entries, 3, 1)
			if e := outcome(t, entries, manifest.Lost)["cache/-/f-1"]; e.Reason != c.reason || e.Bytes != 1000 {
				t.Errorf("got %+v, want %q", e, c.reason)
			}
		})
	}
}

// The agent is killed after a line was voided and before its block is elsewhere: the drain that goes on sends the block.
func TestVoidedLineOutlivesAKill(t *testing.T) {
	tr, _, b := drained(t)
	b.remove(t, func(h vault.Held) bool { return h.ID == "cache/-/f-1" })
	l, err := manifest.Open(tr.cfg.Dir, []manifest.Outcome{manifest.Lost, manifest.Skipped}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := l.Newest(map[inventory.BlockID]bool{"cache/-/f-1": true})
	if err != nil || lines["cache/-/f-1"].Peer != "b" {
		t.Fatalf("got %v, %v", lines, err)
	}
	l.Void(lines["cache/-/f-1"])
	l.Written() // and dies
	if got := entriesOf(t, tr.cfg.Dir); len(got) != 5 {
		t.Errorf("%d entries meanwhile, want what a manifest may have: %v", len(got), got)
	}
	sum, entries := tr.run(t.Context())
	wantAccount(t, sum, entries, 4, 0)
	if got := b.Content(t, "cache/-/f-1"); !bytes.Equal(got, contentOf("f-1", 1000)) {
		t.Error("it was not carried again")
	}
}

// A drain takes broken blocks while it still looks for blocks. After that it gives them back to the caller.
func TestDrainThatRunsCarriesWhatBroke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newNode(t, "a", with(filesStore, "cache"))
		write(t, filepath.Join(a.Dir, "cache", "x"), []byte("x"))
		d := NewDrain(DrainConfig{Dir: filepath.Join(a.Dir, "drain"), Stores: a.Stores, Vault: a.Vault, Log: slog.New(slog.DiscardHandler)})
		d.account.ledger.Add(manifest.Entry{ID: "cache/-/x", Bytes: 1, Outcome: manifest.Moved, Peer: "b"})
		ask := []Broken{{ID: "cache/-/x", Peer: "b"}}
		for range 2 { // the coordinator asks until another peer has the block
			if rest, err := d.CarryAgain(t.Context(), ask); len(rest) > 0 || err != nil {
				t.Fatalf("left over: %v, %v", rest, err)
			}
		}
		if e, ok, _, err := takeOne(d.plan, "b", 1<<30); ok {
			t.Errorf("%s is sent to where it broke at once (%v)", e.ID, err)
		}
		e, ok, _, _ := takeOne(d.plan, "c", 1<<30)
		if !ok || e.ID != "cache/-/x" || d.account.ledger.Counts().Moved.Blocks != 0 {
			t.Errorf("got %v, %v, want it back in the plan, and %+v without it", e.ID, ok, d.account.ledger.Counts())
		}
		if e, ok, _, _ := takeOne(d.plan, "c", 1<<30); ok {
			t.Errorf("%s is planned twice", e.ID)
		}
		d.plan.Settle(1)
		d.plan.Seal()
		if rest, _ := d.CarryAgain(t.Context(), ask); len(rest) != 1 {
			t.Error("a drain that ends has taken a block")
		}
		d.account.ledger.Close()
		d.plan.Close()
	})
}

// A holder that finds a block broken sends the reader's agent on, once, to another holder that it hears of.
func TestBrokenBlockIsReadWhereItIsWhole(t *testing.T) {
	x := contentOf("x", 1000)
	a, b := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b")
	write(t, filepath.Join(a.Dir, "cache/x"), x)
	a.drain(t, within(t, 20*time.Second), b)
	flip(t, filepath.Join(b.Dir, "vault/segments"), x[:100], 1)
	f := &fleet{nodes: map[string]http.Handler{"a": a.Reader()}}
	fetcher := func(loc reading.Location) *reading.Fetcher {
		fetch := &reading.Fetcher{Dial: f.dial, Locate: func(context.Context, inventory.BlockID, bool) (reading.Location, error) { return loc, nil }}
		t.Cleanup(fetch.Close)
		return fetch
	}
	atB := b.Reader()
	atB.Fetch = fetcher(reading.Location{Candidates: holders("a")})
	f.nodes["b"] = atB
	rd := &reading.Reader{Vault: newNode(t, "c").Vault, Fetch: fetcher(reading.Location{Holders: holders("b")}), Log: slog.New(slog.DiscardHandler)}
	status, body, h := get(t, rd, "cache/-/x", "")
	if status != 200 || !bytes.Equal(body, x) || h.Get("Lifeboat-Node") != "a" {
		t.Errorf("status %d, %d bytes from %q, want them from a", status, len(body), h.Get("Lifeboat-Node"))
	}
	if got := strings.Join(f.whom(), " "); got != "b a a" && got != "b a" { // b, which has it, and then a
		t.Errorf("asked %s", got)
	}
	f.nodes["a"] = http.NotFoundHandler()
	rd.Fetch.Close()
	atB.Fetch.Close()
	if status, _, _ := get(t, rd, "cache/-/x", ""); status != 503 {
		t.Errorf("nobody has it whole: status %d, want 503", status)
	}
}

// One line counts for each block, and none for a block that was lost in the end. The figures are those of the lines, even if the names of
// lost blocks are only in memory.
func TestAccountHasEachBlockOnce(t *testing.T) {
	t.Run("in files", func(t *testing.T) { accountHasEachBlockOnce(t, t.TempDir()) })
	t.Run("with no file for what was lost", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Symlink(filepath.Join(dir, "nowhere", "lost"), manifest.Path(dir, manifest.Lost)); err != nil {
			t.Fatal(err)
		}
		accountHasEachBlockOnce(t, dir)
	})
}

func accountHasEachBlockOnce(t *testing.T, dir string) {
	l, opened := manifest.Open(dir, nil, false, nil)
	moved := func(id string, bytes int64, peer string) manifest.Entry {
		return manifest.Entry{ID: id, Bytes: bytes, Outcome: manifest.Moved, Peer: peer}
	}
	l.Add(moved("same", 1, "b"), moved("changed", 2, "b"), moved("broken", 4, "b"), moved("broken and back", 8, "b"), moved("changed and lost", 16, "b"))
	l.OnceMore()
	l.Void(moved("broken", 4, "b"))
	l.Void(moved("broken and back", 8, "b"))
	l.Add(moved("broken and back", 8, "c"), moved("changed", 32, "c"))
	l.Add(manifest.Entry{ID: "changed and lost", Bytes: 64, Outcome: manifest.Lost, Reason: "no room"}, manifest.Entry{ID: "broken", Bytes: 4, Outcome: manifest.Lost, Reason: "gone"})
	for i := range 1000 {
		l.Add(moved(fmt.Sprint("other-", i), 1000, "b"))
	}
	sum, err := l.Close()
	if (err == nil) != (opened == nil) {
		t.Fatalf("open: %v, close: %v", opened, err)
	}
	if want := (inventory.Count{Blocks: 1003, Bytes: 1_000_041}); sum.Moved != want || sum.Lost != (inventory.Count{Blocks: 2, Bytes: 68}) {
		t.Errorf("moved %+v, want %+v; lost %+v", sum.Moved, want, sum.Lost)
	}
	got := map[string]manifest.Entry{}
	var count inventory.Count
	for e, err := range (&Drain{cargo: cargo{account: &account{ledger: l}}}).Entries() {
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := got[e.ID]; twice {
			t.Errorf("%s is told twice", e.ID)
		}
		if got[e.ID] = e; e.Outcome == manifest.Moved {
			count = count.Plus(inventory.Count{Blocks: 1, Bytes: e.Bytes})
		}
	}
	if count != sum.Moved {
		t.Errorf("the lines are %+v, the numbers %+v", count, sum.Moved)
	}
	for _, want := range []manifest.Entry{moved("same", 1, "b"), moved("changed", 32, "c"), moved("broken and back", 8, "c")} {
		if got[want.ID] != want {
			t.Errorf("got %+v, want %+v", got[want.ID], want)
		}
	}
	for _, id := range []string{"changed and lost", "broken"} {
		if got[id].Outcome != manifest.Lost {
			t.Errorf("%s: got %+v, want it lost", id, got[id])
		}
	}
}

// A run takes back the lines of blocks whose peer is gone, and dies before it has sent the blocks again. The next run asks about that peer
// anew, and takes no line back a second time: a coordinator refuses an account that has moved less than nothing.
func TestWhatWasTakenBackIsNotTakenBackAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newNode(t, "a", with(filesStore, "cache"))
		for _, name := range []string{"x", "y"} {
			write(t, filepath.Join(a.Dir, "cache", name), []byte("1"))
		}
		cfg := DrainConfig{Dir: filepath.Join(a.Dir, "drain"), Stores: a.Stores, Vault: a.Vault, Log: slog.New(slog.DiscardHandler)}
		missing := func(_ context.Context, _ time.Duration, blocks []inventory.Block) (all []int, why string, err error) {
			for at := range blocks {
				all = append(all, at)
			}
			return all, "b is gone", nil
		}
		moved := func(d *Drain, name, peer string) {
			b, err := a.Stores[0].Find(inventory.BlockID("cache/-/" + name))
			if err != nil {
				t.Fatal(err)
			}
			d.account.ledger.AddMoved(peer, blocksOf([]plan.Entry{{Block: b}}))
			d.account.history.landed("b", []plan.Entry{{Block: b}})
		}
		want := func(d *Drain, when string, blocks int64) {
			t.Helper()
			if heard, err := d.CarryLapsed(t.Context(), []string{"b"}, markOf(t, d), missing); !heard || err != nil {
				t.Errorf("%s: heard %v, %v", when, heard, err)
			}
			if got := d.account.ledger.Counts().Moved.Blocks; got != blocks {
				t.Errorf("%s: %d blocks are moved, want %d", when, got, blocks)
			}
		}
		d := NewDrain(cfg)
		moved(d, "x", "b")
		moved(d, "y", "c")
		want(d, "x is taken back", 1)
		want(d, "and once", 1)
		if err := d.account.ledger.Written(); err != nil { // and it dies
			t.Fatal(err)
		}
		next := NewDrain(cfg)
		want(next, "it is taken back already", 1)
		moved(next, "x", "b")
		want(next, "b was back, and is gone again", 1)
		for _, d := range []*Drain{d, next} {
			d.account.ledger.Close()
			d.plan.Close()
		}
	})
}

// A drain that is done shows the figures of its account. A block that changed after an earlier run moved it counts as moved once.
func TestDrainedIsShownAsAccountedFor(t *testing.T) {
	_, a, _ := drained(t)
	next := newTrip(t, a, newNode(t, "b"))
	for i := range 4 {
		write(t, filepath.Join(a.Dir, "cache", fmt.Sprint("f-", i)), contentOf("newer", 1000))
	}
	var once sync.Once
	shown := make(chan Progress, 1)
	next.cfg.Forget = func(context.Context, reading.Holder, inventory.BlockID, string) error {
		once.Do(func() {
			go func() {
				for next.drain.Progress().Phase != PhaseDrained {
					runtime.Gosched()
				}
				shown <- next.drain.Progress()
			}()
		})
		return nil
	}
	sum, _ := next.run(t.Context())
	if p := <-shown; p.Moved != sum.Moved || p.Found != sum.Moved || sum.Moved.Blocks != 4 {
		t.Errorf("shown %+v moved of %+v, want %+v", p.Moved, p.Found, sum.Moved)
	}
}

// A broken block lies here on a disk that does not answer. A drain that runs leaves it to whoever asks again; another pass waits for the disk
// as a drain does, and only then names the block as lost.
func TestWhatBrokeIsAwaitedOnASilentDisk(t *testing.T) {
	for name, c := range map[string]struct {
		thaws time.Duration // 0: never
		lost  int64
	}{"it answers in time": {10 * time.Second, 0}, "it does not": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			a, f := onDisks(t, "a", []inventory.StoreConfig{with(filesStore, "s0")}, "v")
			write(t, filepath.Join(a.Dir, "s0", "x"), contentOf("x", 1000))
			b, other := newNode(t, "b"), newNode(t, "c")
			synctest.Test(t, func(t *testing.T) {
				f.News = make(chan struct{})
				a.drain(t, within(t, time.Minute), b)
				tr, ask := newTrip(t, a, other), []Broken{{ID: "cache/-/x", Peer: "b"}}
				disk := a.Stores[0].Paths[0]
				f.Set(f.Bad, disk, true)
				d := NewDrain(tr.cfg)
				if rest, err := d.CarryAgain(t.Context(), ask); len(rest) != 1 || err != nil || d.account.ledger.Counts().Moved.Blocks != 1 || d.account.ledger.Counts().Lost.Blocks > 0 {
					t.Errorf("a drain that runs: left over %v, %v, account %+v", rest, err, d.account.ledger.Counts())
				}
				d.account.ledger.Close()
				d.plan.Close()
				if c.thaws > 0 {
					time.AfterFunc(c.thaws, func() { f.Set(f.Bad, disk, false) })
				}
				tr.cfg.Again = ask
				began := time.Now()
				sum, entries := tr.run(within(t, 10*time.Minute))
				if took := time.Since(began); sum.Lost.Blocks != c.lost || sum.Moved.Blocks != 1-c.lost || took > thaw+10*time.Second {
					t.Errorf("after %v got %+v: %v", took, sum, entries)
				}
				if e := outcome(t, entries, manifest.Lost)["cache/-/x"]; c.lost > 0 && e.Reason != "what b had of it is broken, and here: disk "+disk+" does not answer" {
					t.Errorf("got %+v", e)
				}
			})
		})
	}
}
