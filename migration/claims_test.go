package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/lifeboat/lifeboat/migration/plan"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/vault"
)

// asked answers as the coordinator which blocks no node holds any more, and notes the blocks that it was asked about.
type asked struct {
	gone func(id inventory.BlockID) bool
	err  error

	mu  sync.Mutex
	ids []inventory.BlockID
	age time.Duration
}

func (a *asked) lapsed(_ context.Context, age time.Duration, blocks []inventory.Block) (missing []int, why string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.age = age
	for i, b := range blocks {
		if !slices.Contains(a.ids, b.ID) { // a block written a moment ago is met, and asked about, again by the next look
			a.ids = append(a.ids, b.ID)
		}
		if a.gone(b.ID) {
			missing = append(missing, i)
		}
	}
	return missing, "its holder is gone", a.err
}

func markOf(t *testing.T, d *Drain) Mark {
	t.Helper()
	m, err := d.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// takenBy counts the moved blocks by peer.
func takenBy(t *testing.T, entries []manifest.Entry) map[string]int {
	t.Helper()
	n := map[string]int{}
	for _, e := range outcome(t, entries, manifest.Moved) {
		n[e.Peer]++
	}
	return n
}

// A drain goes on where the one before ended. Blocks that no node holds any more are sent again, and blocks that a node holds are not.
func TestWhatNobodyHasAnyMoreIsCarriedAgain(t *testing.T) {
	for _, once := range []bool{false, true} {
		t.Run(fmt.Sprint("once=", once), func(t *testing.T) {
			_, a, b := drained(t)
			b.remove(t, func(h vault.Held) bool { return h.ID == "cache/-/f-1" })
			c := newNode(t, "c")
			var log bytes.Buffer
			who := &asked{gone: func(id inventory.BlockID) bool { return id == "cache/-/f-1" }}
			next := newTrip(t, a, c)
			next.cfg.Lapsed, next.cfg.Once, next.cfg.Log = who.lapsed, once, slog.New(slog.NewTextHandler(&log, nil))
			sum, entries := next.run(t.Context())
			wantAccount(t, sum, entries, 4, 0)
			if n := takenBy(t, entries); n["b"] != 3 || n["c"] != 1 {
				t.Errorf("got %v, want one block carried again", n)
			}
			if got := c.Content(t, "cache/-/f-1"); !bytes.Equal(got, contentOf("f-1", 1000)) {
				t.Error("it is not where it was carried")
			}
			if len(who.ids) != 4 || !strings.Contains(log.String(), `blocks=1 bytes=1000 block=cache/-/f-1 why="its holder is gone"`) {
				t.Errorf("asked about %v, and said:\n%s", who.ids, log.String())
			}
			who.ids = nil
			third := newTrip(t, a, b)
			third.cfg.Lapsed = who.lapsed
			who.gone = func(inventory.BlockID) bool { return false }
			sum, entries = third.run(t.Context())
			wantAccount(t, sum, entries, 4, 0)
			if len(who.ids) != 4 || takenBy(t, entries)["c"] != 1 {
				t.Errorf("asked about %v, and got %v", who.ids, entries)
			}
		})
	}
}

// A peer that took millions of blocks is gone. Their lines are struck out in place: lines that void them would be as many again, and would
// have to be settled at the end.
func TestWhatIsTakenBackIsStruckOut(t *testing.T) {
	for name, absent := range map[string][]string{"about all": nil, "about those who are gone": {"b"}} {
		t.Run(name, func(t *testing.T) {
			_, a, _ := drained(t)
			next := newTrip(t, a, newNode(t, "c"))
			next.cfg.Lapsed, next.cfg.Absent = (&asked{gone: func(inventory.BlockID) bool { return true }}).lapsed, absent
			sum, entries := next.run(t.Context())
			wantAccount(t, sum, entries, 4, 0)
			if n := takenBy(t, entries); n["c"] != 4 {
				t.Errorf("got %v, want all carried again", n)
			}
			lines := map[manifest.Outcome]int{}
			for line, err := range manifest.AllLines(manifest.Path(next.cfg.Dir, manifest.Moved)) {
				if err != nil {
					t.Fatal(err)
				}
				lines[line.Outcome]++
			}
			if lines[manifest.Struck] != 4 || lines[manifest.Moved] != 4 || len(lines) != 2 {
				t.Errorf("got %v, want the lines of before struck out, and those of now", lines)
			}
		})
	}
}

// A line is struck out only if it still is the line that was read; else another line voids it.
func TestWhatStandsElsewhereIsVoided(t *testing.T) {
	dir := t.TempDir()
	l, err := manifest.Open(dir, nil, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	long := "cache/-/" + strings.Repeat("long/", 300)
	moved := func(id string) manifest.Entry {
		return manifest.Entry{ID: id, Bytes: 10, Outcome: manifest.Moved, Peer: "b"}
	}
	l.Add(moved("cache/-/a"), moved(long), moved("cache/-/b"), moved("cache/-/c"))
	begins := map[string]int64{}
	for line, err := range manifest.Lines(manifest.Path(dir, manifest.Moved)) {
		if err != nil {
			t.Fatal(err)
		}
		begins[line.ID] = line.Begin
	}
	l.TakeBack(begins["cache/-/a"], moved("cache/-/a"))
	l.TakeBack(begins[long], moved(long))
	l.TakeBack(begins[long]+3, moved("cache/-/b"))
	l.TakeBack(begins["cache/-/a"], moved("cache/-/c"))
	l.Add(moved(long))
	if sum := l.Counts(); sum.Moved.Blocks != 1 {
		t.Errorf("got %+v, want all taken back, and one moved again", sum)
	}
	sum, err := l.Close()
	entries := entriesOf(t, dir)
	if err != nil || len(entries) != 1 || entries[0] != moved(long) || sum.Moved.Blocks != 1 {
		t.Errorf("got %v, %+v, %v, want what was moved again", entries, sum, err)
	}
}

// If it is known which peers are gone, the coordinator is not asked about blocks that other peers or a fallback took.
func TestOnlyWhatTheAbsentTookIsAskedAbout(t *testing.T) {
	_, a, b := drained(t)
	b.remove(t, func(h vault.Held) bool { return h.ID == "cache/-/f-1" })
	lines, err := os.ReadFile(manifest.Path(filepath.Join(a.Dir, "drain"), manifest.Moved))
	if err != nil {
		t.Fatal(err)
	}
	text := string(lines)
	for id, peer := range map[string]string{"f-1": "x", "f-2": "y", "f-3": "fallback:x"} {
		text = strings.Replace(text, `"id":"cache/-/`+id+`","bytes":1000,"outcome":"moved","peer":"b"`, `"id":"cache/-/`+id+`","bytes":1000,"outcome":"moved","peer":"`+peer+`"`, 1)
	}
	if err := os.WriteFile(manifest.Path(filepath.Join(a.Dir, "drain"), manifest.Moved), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	who := &asked{gone: func(id inventory.BlockID) bool { return id == "cache/-/f-1" }}
	next := newTrip(t, a, b)
	next.cfg.Lapsed, next.cfg.Absent = who.lapsed, []string{"x", "y"}
	if takers := slices.Sorted(slices.Values(NewDrain(next.cfg).Takers())); !slices.Equal(takers, []string{"b", "x", "y"}) {
		t.Errorf("got %v, want all that took something in earlier runs", takers)
	}
	if some, err := AnyLapsed(t.Context(), next.cfg, 0); !some || err != nil || len(who.ids) != 2 {
		t.Errorf("a look: asked about %v, got %t, %v", who.ids, some, err)
	}
	who.ids = nil
	sum, entries := next.run(t.Context())
	wantAccount(t, sum, entries, 4, 0)
	slices.Sort(who.ids)
	if n := takenBy(t, entries); !slices.Equal(who.ids, []inventory.BlockID{"cache/-/f-1", "cache/-/f-2"}) || n["b"] != 2 || n["y"] != 1 || n["fallback:x"] != 1 {
		t.Errorf("asked about %v, and got %v", who.ids, n)
	}
	who.ids = nil
	next = newTrip(t, a, b)
	next.cfg.Lapsed = who.lapsed
	next.run(t.Context())
	if len(who.ids) != 3 {
		t.Errorf("asked about %v, want all but what is in the fallback", who.ids)
	}
}

// While nobody can say which node holds the moved blocks, they count as held.
func TestNobodySaysWhetherItIsHeld(t *testing.T) {
	_, a, b := drained(t)
	var log bytes.Buffer
	next := newTrip(t, a, b)
	next.cfg.Lapsed = (&asked{gone: func(inventory.BlockID) bool { return true }, err: errors.New("the coordinator is away")}).lapsed
	next.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	sum, entries := next.run(t.Context())
	wantAccount(t, sum, entries, 4, 0)
	if !strings.Contains(log.String(), "the coordinator is away") || strings.Contains(log.String(), "again") {
		t.Errorf("said:\n%s", log.String())
	}
}

// The coordinator is not asked about a block that changed or was deleted at its source: the block is sent as it is now, or not at all.
func TestWhatChangedIsNotAskedAbout(t *testing.T) {
	_, a, b := drained(t)
	write(t, filepath.Join(a.Dir, "cache", "f-0"), contentOf("other", 1200))
	if err := os.Remove(filepath.Join(a.Dir, "cache", "f-1")); err != nil {
		t.Fatal(err)
	}
	who := &asked{gone: func(inventory.BlockID) bool { return true }}
	next := newTrip(t, a, b)
	next.cfg.Lapsed = who.lapsed
	sum, entries := next.run(t.Context())
	if len(who.ids) != 2 || sum.Lost.Blocks > 0 {
		t.Errorf("asked about %v, and got %v", who.ids, entries)
	}
	if got := b.Content(t, "cache/-/f-0"); !bytes.Equal(got, contentOf("other", 1200)) {
		t.Error("what changed was not carried as it is now")
	}
}

// A block that no node holds cannot be sent again in time: it is lost, and no longer counts as moved.
func TestWhatNobodyHasIsLostWhenTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _ := drained(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		next := newTrip(t, a) // to nobody
		next.cfg.Lapsed = (&asked{gone: func(id inventory.BlockID) bool { return id == "cache/-/f-1" }}).lapsed
		sum, entries := next.run(ctx)
		wantAccount(t, sum, entries, 3, 1)
	})
}

// A block that nobody holds, of an app that has ended meanwhile, is not carried again.
func TestWhatNobodyHasOfAnAppThatIsOver(t *testing.T) {
	a := newNode(t, "a")
	d := NewDrain(DrainConfig{Dir: filepath.Join(a.Dir, "drain"), Vault: a.Vault, Log: slog.New(slog.DiscardHandler)})
	b := inventory.Block{ID: "spark/app-1/rdd_0_0", Members: []inventory.Member{{Name: "rdd_0_0", Bytes: 10}}}
	d.account.ledger.AddMoved("b", blocksOf([]plan.Entry{{Block: b}}))
	d.endings.over.Store(&map[string]string{"app-1": "it ended"})
	d.claims.planAnew(t.Context(), b, -1)
	sum, err := d.account.ledger.Close()
	if err != nil || sum.Moved.Blocks != 0 || sum.Skipped.Blocks != 1 {
		t.Errorf("got %+v, %v, want that it is skipped", sum, err)
	}
	d.plan.Close()
}

// A running drain takes blocks whose peer is gone while it still looks for blocks. If such a block has a newer version that was moved, that
// version's line stays the one that counts.
func TestDrainThatRunsCarriesWhatIsGone(t *testing.T) {
	a := newNode(t, "a", with(filesStore, "cache"))
	for _, name := range []string{"x", "y", "z"} {
		write(t, filepath.Join(a.Dir, "cache", name), []byte(name))
	}
	d := NewDrain(DrainConfig{Dir: filepath.Join(a.Dir, "drain"), Stores: a.Stores, Vault: a.Vault, Log: slog.New(slog.DiscardHandler)})
	block := func(name string) plan.Entry {
		b, err := a.Stores[0].Find(inventory.BlockID("cache/-/" + name))
		if err != nil {
			t.Fatal(err)
		}
		return plan.Entry{Block: b}
	}
	if takers := d.Takers(); len(takers) > 0 {
		t.Errorf("got %v, want none that took anything", takers)
	}
	none := markOf(t, d)
	d.account.ledger.AddMoved("b", blocksOf([]plan.Entry{block("x"), block("y")}))
	d.account.ledger.AddMoved("c", blocksOf([]plan.Entry{block("z")}))
	write(t, filepath.Join(a.Dir, "cache", "y"), []byte("newer"))
	d.account.ledger.AddMoved("c", blocksOf([]plan.Entry{block("y")}))
	d.account.ledger.OnceMore()
	who := &asked{gone: func(inventory.BlockID) bool { return true }}
	if heard, err := d.CarryLapsed(t.Context(), []string{"b"}, none, who.lapsed); !heard || err != nil || len(who.ids) > 0 {
		t.Errorf("moved after that: got %t, %v, asked about %v", heard, err, who.ids)
	}
	if heard, err := d.CarryLapsed(t.Context(), []string{"b"}, markOf(t, d), who.lapsed); !heard || err != nil || !slices.Equal(who.ids, []inventory.BlockID{"cache/-/x"}) {
		t.Errorf("got %t, %v, asked about %v", heard, err, who.ids)
	}
	if heard, err := d.CarryLapsed(t.Context(), []string{"b"}, markOf(t, d), who.lapsed); !heard || err != nil {
		t.Errorf("said once more: got %t, %v", heard, err)
	}
	e, ok, _, _ := takeOne(d.plan, "c", 1<<30)
	if !ok || e.ID != "cache/-/x" {
		t.Errorf("got %v, %t, want it in the plan", e.ID, ok)
	}
	if e, ok, _, _ := takeOne(d.plan, "c", 1<<30); ok {
		t.Errorf("%s is in the plan", e.ID)
	}
	d.plan.Settle(1)
	d.account.ledger.AddMoved("c", blocksOf([]plan.Entry{e}))
	d.plan.Seal()
	if heard, _ := d.CarryLapsed(t.Context(), []string{"c"}, markOf(t, d), who.lapsed); heard {
		t.Error("a drain that ends has taken blocks")
	}
	if sum, err := d.account.ledger.Close(); err != nil || sum.Moved.Blocks != 3 {
		t.Errorf("got %+v, %v, want three moved", sum, err)
	}
	for id, e := range outcome(t, entriesOf(t, d.cfg.Dir), manifest.Moved) {
		if e.Peer != "c" {
			t.Errorf("%s is at %s", id, e.Peer)
		}
	}
	d.plan.Close()
}

// A block changes while the coordinator is asked about it, and its new version is planned or moved: the line of the new version counts.
func TestNewerVersionIsNotTakenBack(t *testing.T) {
	a := newNode(t, "a", with(filesStore, "cache"))
	write(t, filepath.Join(a.Dir, "cache", "x"), []byte("old"))
	d := NewDrain(DrainConfig{Dir: filepath.Join(a.Dir, "drain"), Stores: a.Stores, Vault: a.Vault, Log: slog.New(slog.DiscardHandler)})
	old, err := a.Stores[0].Find("cache/-/x")
	if err != nil {
		t.Fatal(err)
	}
	d.account.ledger.AddMoved("b", blocksOf([]plan.Entry{{Block: old}}))
	write(t, filepath.Join(a.Dir, "cache", "x"), []byte("newer"))
	now, err := a.Stores[0].Find("cache/-/x")
	if err != nil {
		t.Fatal(err)
	}
	d.account.history.becomes(old, now)
	d.account.ledger.AddMoved("c", blocksOf([]plan.Entry{{Block: now}}))
	d.account.ledger.OnceMore()
	d.claims.planAnew(t.Context(), old, -1)
	if sum, err := d.account.ledger.Close(); err != nil || sum.Moved.Blocks != 1 || sum.Moved.Bytes != 5 {
		t.Errorf("got %+v, %v, want the newer one moved", sum, err)
	}
	d.plan.Close()
}

// After a drain, AnyLapsed finds blocks that no node holds any more and that are still here. Blocks that their engine deleted meanwhile are
// of no use to anybody.
func TestAnyLapsed(t *testing.T) {
	tr, a, _ := drained(t)
	who := &asked{}
	tr.cfg.Lapsed = who.lapsed
	some := func(gone ...inventory.BlockID) bool {
		t.Helper()
		who.gone = func(id inventory.BlockID) bool { return slices.Contains(gone, id) }
		some, err := AnyLapsed(t.Context(), tr.cfg, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return some
	}
	if some() || !some("cache/-/f-1") || len(who.ids) != 4 || who.age != time.Minute {
		t.Errorf("asked about %v with an age of %s", who.ids, who.age)
	}
	if err := os.Remove(filepath.Join(a.Dir, "cache", "f-1")); err != nil {
		t.Fatal(err)
	}
	if some("cache/-/f-1") || !some("cache/-/f-1", "cache/-/f-2") {
		t.Error("what was deleted is looked for, or what is here is not")
	}
	who.err = errors.New("away")
	if _, err := AnyLapsed(t.Context(), tr.cfg, 0); err == nil {
		t.Error("nobody answered, and that is no error")
	}
	l, err := manifest.Open(tr.cfg.Dir, []manifest.Outcome{manifest.Lost, manifest.Skipped}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Add(manifest.Entry{ID: "cache/-/in-fallback", Outcome: manifest.Moved, Peer: "fallback:spill"}, manifest.Entry{ID: "cache/-/c", Outcome: manifest.Moved, Peer: "c"})
	l.Close()
	if takers, err := Takers(tr.cfg.Dir); err != nil || !slices.Equal(takers, []string{"b", "c"}) {
		t.Errorf("got %v, %v, want those who took some", takers, err)
	}
}

// A peer that left has handed on its blocks to several nodes, each a run of neighbouring lines. The few lines that are asked about include
// some of each run.
func TestFewLinesOfEachTakerMeetAllRuns(t *testing.T) {
	dir := t.TempDir()
	l, err := manifest.Open(dir, []manifest.Outcome{manifest.Lost, manifest.Skipped}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	const many, run, most = 9000, 100, 1000
	for i := range many {
		l.Add(manifest.Entry{ID: fmt.Sprintf("cache/-/%d", i), Outcome: manifest.Moved, Peer: "b"})
	}
	l.Add(manifest.Entry{ID: "cache/-/one", Outcome: manifest.Moved, Peer: "c"})
	l.Close()
	picks, err := fewOfEach(dir, most)
	if err != nil {
		t.Fatal(err)
	}
	asked, met := 0, map[int]bool{}
	for i := range many {
		if picks("b") {
			asked++
			met[i/run] = true
		}
	}
	if asked != most || len(met) != many/run || !picks("c") {
		t.Errorf("picked %d of %d lines, of %d runs of %d, want %d of all", asked, many, len(met), many/run, most)
	}
	if !picks("d") {
		t.Error("who took its first block since then is not asked about")
	}
}

// Only a part of many claims is in memory, and a full disk does not keep the node from leaving.
func TestClaimsAreSpooled(t *testing.T) {
	dir := t.TempDir()
	c := newClaims(DrainConfig{Dir: dir}, cargo{}, nil)
	const n = 5000
	for i := range n {
		c.add(inventory.Block{ID: inventory.BlockID(fmt.Sprintf("cache/-/%0200d", i)), Members: []inventory.Member{{Name: "x", Bytes: 1}}})
	}
	if is, err := os.Stat(c.spool.Path); err != nil || is.Size() == 0 {
		t.Errorf("nothing is on disk: %v", err)
	}
	c.seal()
	for i, more := 0, true; more; {
		var batch []inventory.Block
		if batch, more = c.take(); len(batch) > reading.MostAsked || !more && i != n {
			t.Fatalf("got %d after %d", len(batch), i)
		}
		for _, b := range batch {
			if b.ID != inventory.BlockID(fmt.Sprintf("cache/-/%0200d", i)) {
				t.Fatalf("got %s as number %d", b.ID, i)
			}
			i++
		}
	}
	c.close()
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	full := newClaims(DrainConfig{Dir: filepath.Join(dir, "not there")}, cargo{}, nil)
	for i := range n {
		full.add(inventory.Block{ID: inventory.BlockID(fmt.Sprintf("cache/-/%0200d", i)), Members: []inventory.Member{{Name: "x", Bytes: 1}}})
	}
	if full.spool.Left.Blocks >= n {
		t.Error("memory grows with the blocks where the disk takes none")
	}
}

// A block that nobody holds any more lies here, on a disk that does not answer now. That is not taken for a block that is here no more: who
// asked is told so, and asks again.
func TestBlocksThatNobodyHoldsMayBeOnASilentDisk(t *testing.T) {
	a, f := onDisks(t, "a", []inventory.StoreConfig{with(filesStore, "s0", "s1")}, "v")
	write(t, filepath.Join(a.Dir, "s0", "x"), []byte("x"))
	write(t, filepath.Join(a.Dir, "s1", "y"), []byte("y"))
	d := NewDrain(DrainConfig{Dir: filepath.Join(a.Dir, "drain"), Stores: a.Stores, Vault: a.Vault, Disks: f, Log: slog.New(slog.DiscardHandler)})
	for _, name := range []string{"x", "y"} {
		b, err := a.Stores[0].Find(inventory.BlockID("cache/-/" + name))
		if err != nil {
			t.Fatal(err)
		}
		d.account.ledger.AddMoved("b", blocksOf([]plan.Entry{{Block: b}}))
	}
	f.Set(f.Bad, a.Stores[0].Paths[0], true)
	who := &asked{gone: func(id inventory.BlockID) bool { return true }}
	if heard, err := d.CarryLapsed(t.Context(), []string{"b"}, markOf(t, d), who.lapsed); heard || !diskio.IsSilent(err) {
		t.Errorf("got %t, %v, want that it is not known of all", heard, err)
	}
	if e, ok, _, _ := takeOne(d.plan, "c", 1<<30); !ok || e.ID != "cache/-/y" {
		t.Errorf("got %v, %t, want the block of the disk that answers carried", e.ID, ok)
	}
	who.gone = func(id inventory.BlockID) bool { return id == "cache/-/x" }
	over := DrainConfig{Dir: d.cfg.Dir, Stores: a.Stores, Vault: a.Vault, Lapsed: who.lapsed, Log: d.cfg.Log}
	if some, err := AnyLapsed(t.Context(), over, 0); some || !diskio.IsSilent(err) {
		t.Errorf("got %t, %v, want that it is not known", some, err)
	}
	f.Set(f.Bad, a.Stores[0].Paths[0], false)
	if heard, err := d.CarryLapsed(t.Context(), []string{"b"}, markOf(t, d), who.lapsed); !heard || err != nil {
		t.Errorf("once it answers: got %t, %v", heard, err)
	}
	if e, ok, _, _ := takeOne(d.plan, "c", 1<<30); !ok || e.ID != "cache/-/x" {
		t.Errorf("got %v, %t, want the other one carried", e.ID, ok)
	}
	d.account.ledger.Close()
	d.plan.Close()
}

// A directory or a link in a store has the name of a block that landed here. The block is in the vault all the same.
func TestBlockIsFoundAgainBesideWhatHasItsName(t *testing.T) {
	for what, occupy := range map[string]func(p string) error{
		"a directory": func(p string) error { return os.MkdirAll(p, 0o755) },
		"a link": func(p string) error {
			return errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.Symlink("elsewhere", p))
		},
	} {
		b, all := packed(t, 1, 1000)
		src := newSource(DrainConfig{Node: b.Name, Stores: b.Stores, Vault: b.Vault, Disks: diskio.OrWell(nil)})
		for name := range all {
			id := inventory.BlockID(name)
			if err := occupy(filepath.Join(b.Dir, "cache", id.Name())); err != nil {
				t.Fatal(err)
			}
			if _, err := src.findAgain(id); err != nil {
				t.Errorf("%s has its name: %v", what, err)
			}
		}
	}
}
