package blockmap

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unique"

	"github.com/lifeboat/lifeboat/api"
)

// The block map agrees with the simplest model, whatever is reported in whatever order.
func TestBlocksAgreeWithModel(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		b, model := New(), map[string]map[string]bool{} // node: ids
		id := func() string { return fmt.Sprintf("s/app%d/b%d", r.IntN(3), r.IntN(8)) }
		for step := range 400 {
			node := fmt.Sprint("n", r.IntN(4))
			if model[node] == nil {
				model[node] = map[string]bool{}
			}
			switch x := id(); r.IntN(8) {
			case 0:
				full := New()
				clear(model[node])
				for range r.IntN(5) {
					x := id()
					model[node][x] = true
					if _, err := full.Hear(node, []Word{{Key: KeyOf(x), What: Landed{From: unique.Make("")}}}); err != nil {
						t.Fatal(err)
					}
				}
				b.Replace(node, "", full)
			case 1:
				clear(model[node])
				b.Forget(node)
			case 2, 3, 4:
				delete(model[node], x)
				if _, err := b.Hear(node, []Word{{Key: KeyOf(x), Gone: true}}); err != nil {
					t.Fatal(err)
				}
			default:
				model[node][x] = true
				if _, err := b.Hear(node, []Word{{Key: KeyOf(x), What: Landed{Bytes: int64(step), From: unique.Make("f")}}}); err != nil {
					t.Fatal(err)
				}
			}
			all := map[string]bool{}
			for a := range 3 {
				for i := range 8 {
					x := fmt.Sprintf("s/app%d/b%d", a, i)
					var want []string
					for _, n := range slices.Sorted(maps.Keys(model)) {
						if model[n][x] {
							want = append(want, n)
							all[x] = true
						}
					}
					if got, _ := b.Holders(KeyOf(x)); !slices.Equal(got, want) {
						t.Fatalf("seed %d, step %d: block %s: got holders %v, want %v", seed, step, x, got, want)
					}
				}
			}
			if b.Located() != len(all) {
				t.Fatalf("seed %d, step %d: got %d blocks located, want %d", seed, step, b.Located(), len(all))
			}
			if got := len(b.Of(node)); got != len(model[node]) {
				t.Fatalf("seed %d, step %d: got %d blocks of %s, want %d", seed, step, got, node, len(model[node]))
			}
		}
	}
}

func BenchmarkBlocks(b *testing.B) {
	for b.Loop() {
		const n = 1 << 20
		blocks := New()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range n {
			id := fmt.Sprintf("spark/app-20261121120000-0001/shuffle_%d_%d_0", i/10000, i%10000)
			if _, err := blocks.Hear(fmt.Sprint("node-", i%100), []Word{{Key: KeyOf(id), What: Landed{Bytes: 1 << 20, From: unique.Make("node-x")}}}); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/block")
		runtime.KeepAlive(blocks)
	}
}

// The memory of a shelf depends on what is on it and not on what has come and gone, and the holders are those of the simplest model.
func TestShelvesStaySmall(t *testing.T) {
	const ids = 5 * sheetRows
	b := New()
	model := map[string]map[string]int64{}
	say := func(node, id string, gone bool, bytes int64) {
		t.Helper()
		if model[node] == nil {
			model[node] = map[string]int64{}
		}
		if delete(model[node], id); !gone {
			model[node][id] = bytes
		}
		if _, err := b.Hear(node, []Word{{Key: KeyOf(id), What: Landed{Bytes: bytes, From: handleOf(bytes)}, Gone: gone}}); err != nil {
			t.Fatal(err)
		}
	}
	id := func(i int) string { return fmt.Sprintf("s/app%d/block-%d", i%3, i) }
	for round := range 12 {
		for i := range ids {
			for n, node := range []string{"a", "b"} {
				say(node, id(i), round%4 != 3 && i%(round+n+2) != 0, int64(round%(n+2))) // some again, with other bytes and from another
			}
		}
		for _, node := range []string{"a", "b"} {
			s, live := b.shelves[b.numbers[node]], 0
			for _, p := range s.sheets {
				if p != nil {
					live++
				}
			}
			if most := 4*s.count/sheetRows + 2; live > most || s.count != len(model[node]) || len(s.sheets) > 6*ids/sheetRows {
				t.Errorf("round %d: node %s: got %d blocks on %d sheets of %d, want %d on at most %d", round, node, s.count, live, len(s.sheets), len(model[node]), most)
			}
		}
		located := 0
		for i := range ids {
			var want []string
			for _, node := range []string{"a", "b"} {
				if _, held := model[node][id(i)]; held {
					want = append(want, node)
				}
			}
			got, what := b.Holders(KeyOf(id(i)))
			if !slices.Equal(got, want) {
				t.Fatalf("round %d: block %s: got %v, want %v", round, id(i), got, want)
			}
			if len(want) == 1 && (what.Bytes != model[want[0]][id(i)] || what.From != handleOf(what.Bytes)) {
				t.Fatalf("round %d: block %s: got %d bytes from %s, want %d", round, id(i), what.Bytes, what.From.Value(), model[want[0]][id(i)])
			}
			located += min(1, len(want))
		}
		if b.Located() != located {
			t.Errorf("round %d: got %d blocks located, want %d", round, b.Located(), located)
		}
	}
	b.Forget("a")
	b.Forget("b")
	if len(b.at) != 0 || b.Located() != 0 || len(b.Nodes()) != 0 {
		t.Errorf("got %d hashes, %d blocks and nodes %v after all was forgotten, want none", len(b.at), b.Located(), b.Nodes())
	}
}

// Among so many blocks some share a hash: they are told apart.
func TestBlocksOfOneHashAreToldApart(t *testing.T) {
	const n = 300_000 // of which about ten pairs share one of 2^32
	b, words := New(), make([]Word, n)
	for i := range words {
		words[i] = Word{Key: KeyOf(fmt.Sprintf("s/a/%d", i)), What: Landed{From: handleOf(0)}}
	}
	if _, err := b.Hear("a", words); err != nil {
		t.Fatal(err)
	}
	if len(b.at) == n || b.Located() != n || len(b.Of("a")) != n {
		t.Errorf("got %d hashes of %d blocks, %d of them listed, want %d blocks and fewer hashes", len(b.at), b.Located(), len(b.Of("a")), n)
	}
	for i := range words {
		words[i].Gone = true
	}
	if _, err := b.Hear("a", words[:n/2]); err != nil {
		t.Fatal(err)
	}
	for i, w := range words {
		if said, _ := b.Holders(w.Key); len(said) == 1 != (i >= n/2) {
			t.Fatalf("block %s: got holders %v", w.Key.ID(), said)
		}
	}
	if b.Located() != n-n/2 {
		t.Errorf("got %d blocks located, want %d", b.Located(), n-n/2)
	}
}

// Who compares what is located with what nodes had finds no block more: the accounts of their drains rest with peers, too.
func TestAccountsOfDrainsAreNotLocated(t *testing.T) {
	b, account, what := New(), KeyOf(api.AccountPrefix("host-b")+"inc-1"), Landed{From: unique.Make("host-b")}
	for _, node := range []string{"a", "c"} {
		if _, err := b.Hear(node, []Word{{Key: KeyOf("s/-/x"), What: what}, {Key: account, What: what}}); err != nil {
			t.Fatal(err)
		}
	}
	if nodes, _ := b.Holders(account); b.Located() != 1 || len(nodes) != 2 {
		t.Errorf("got %d blocks located and the account at %v, want one block, and the account at both", b.Located(), nodes)
	}
	b.Forget("a")
	if _, err := b.Hear("c", []Word{{Key: account, Gone: true}}); err != nil {
		t.Fatal(err)
	}
	if b.Located() != 1 {
		t.Errorf("got %d blocks located once the account is gone, want one", b.Located())
	}
}

func TestBlocksOfOneNodeAreBounded(t *testing.T) {
	b := New()
	b.newShelf("a").count = maxHeldBlocks
	if _, err := b.Hear("a", []Word{{Key: KeyOf("s/a/x"), What: Landed{From: handleOf(0)}}}); err == nil || !strings.Contains(err.Error(), "more than 4194304 landed blocks") {
		t.Errorf("got %v, want that there are too many", err)
	}
}

// A node cannot fill the memory with names of the greatest length, whatever it reports and removes.
func TestNamesOfOneNodeAreBounded(t *testing.T) {
	b := New()
	long := strings.Repeat("x", 1000)
	say := func(n int, gone bool) Word {
		return Word{Key: KeyOf(fmt.Sprintf("s/a/%d-%s", n, long)), What: Landed{From: handleOf(0)}, Gone: gone}
	}
	for n := range 10 * sheetRows {
		if _, err := b.Hear("a", []Word{say(n, false), say(n, true)}); err != nil {
			t.Fatal(err)
		}
	}
	s := b.shelves[b.numbers["a"]]
	if most := 2 * sheetRows * len(say(0, false).Key.ID()); s.size > most {
		t.Errorf("%d bytes of names are counted, at most %d are there", s.size, most)
	}
	s.size += maxHeldNames
	if _, err := b.Hear("a", []Word{say(0, false)}); err == nil || !strings.Contains(err.Error(), "more than 536870912 bytes") {
		t.Errorf("got %v, want that there are too many", err)
	}
}

func handleOf(n int64) unique.Handle[string] { return unique.Make(fmt.Sprint("from-", n)) }
