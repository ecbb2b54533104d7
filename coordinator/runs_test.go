package coordinator

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unique"

	"google.golang.org/protobuf/proto"

	"github.com/lifeboat/lifeboat/api"
)

// A manifest is the same file whether its entries came one by one or in runs.
func TestManifestOfRunsIsTheSameFile(t *testing.T) {
	inTown(t, func(v *town) {
		entries := []*api.ManifestEntry{
			{Id: "(12 blocks)", Bytes: 12, Outcome: "lost", Reason: "the disk hangs"},
			{Id: "(what lies in /data)", Outcome: "lost", Reason: "the disk hangs"},
			{Id: "spark/app/x", Outcome: "lost", Reason: "deadline"},
			{Id: "spark/app/<é>", Bytes: 1, Outcome: "skipped", Reason: "not a block"},
		}
		for i := range 3 * maxBlocks / 2 {
			entries = append(entries, &api.ManifestEntry{Id: fmt.Sprintf("spark/app-%d/d/x%d", i%7000/1000, i), Bytes: int64(i), Outcome: "moved", Peer: fmt.Sprint("b", i/100%3)})
		}
		var files [2][]byte
		for i, name := range []string{"a", "b"} {
			n := v.agent(name)
			n.register()
			said := []*api.GoodbyeRequest{{Summary: &api.ManifestSummary{Node: name, Incarnation: n.incarnation, Incident: "inc"}}}
			for batch := range slices.Chunk(entries, maxBlocks) {
				r := &api.GoodbyeRequest{Entries: batch}
				if i == 1 {
					r = &api.GoodbyeRequest{Entries: batch[:2], Runs: runsOf(batch[2:])} // an entry may stand by itself all the same
				}
				said = append(said, r)
			}
			if err := says(n, said...); err != nil {
				v.Fatal(err)
			}
			dir := filepath.Join(v.cfg.DataDir, "manifests")
			kept, err := filepath.Glob(filepath.Join(dir, name+"-*"))
			if err != nil || len(kept) != 1 {
				v.Fatalf("got files %v, %v, want one", kept, err)
			}
			data, err := os.ReadFile(kept[0])
			if err != nil {
				v.Fatal(err)
			}
			_, files[i], _ = bytes.Cut(data, []byte("\n"))
		}
		if bytes.Count(files[0], []byte("\n")) != len(entries) || !bytes.Equal(files[0], files[1]) {
			v.Errorf("got %d lines from entries and %d from runs, want the same %d", bytes.Count(files[0], []byte("\n")), bytes.Count(files[1], []byte("\n")), len(entries))
		}
		v.located("spark/app/x", "lost")
	})
}

func runsOf(entries []*api.ManifestEntry) (runs []*api.ManifestRun) {
	for _, e := range entries {
		if last := len(runs) - 1; last >= 0 && runs[last].Peer == e.Peer && runs[last].Outcome == e.Outcome && runs[last].Reason == e.Reason && runs[last].Blocks.Add(e.Id, e.Bytes) {
			continue
		}
		runs = append(runs, &api.ManifestRun{Outcome: e.Outcome, Peer: e.Peer, Reason: e.Reason, Blocks: api.NewBlockRun(e.Id, e.Bytes)})
	}
	return runs
}

// What landed is found whether it was told block by block or in runs, and what is gone in the same message is gone.
func TestRunsAreLocated(t *testing.T) {
	inTown(t, func(v *town) {
		b := v.agent("b")
		b.register()
		b.beat()
		run := api.NewBlockRun("spark/app/x", 1)
		if !run.Add("spark/app/dir/y", 2) || run.Add("spark/app2/z", 3) || run.Add("spark/app", 3) {
			v.Fatal("a run takes the blocks of its scope and no others")
		}
		r := &api.ReportBlocksRequest{
			Node: "b", Incarnation: b.incarnation, Full: true,
			Landed: []*api.HeldBlock{{Id: "spark/app/alone", Bytes: 4, From: "a"}},
			Runs:   []*api.HeldRun{{From: "a", Blocks: run}, {From: "c", Blocks: api.NewBlockRun("spark/app/gone", 1)}},
			Gone:   []string{"spark/app/gone"},
		}
		if err := reports(b, r); err != nil {
			v.Fatal(err)
		}
		for _, id := range []string{"spark/app/x", "spark/app/dir/y", "spark/app/alone"} {
			v.located(id, "held", "b")
		}
		v.located("spark/app/gone", "unknown")
		v.lists("b", "spark/app/alone held [b] a", "spark/app/dir/y held [b] a", "spark/app/x held [b] a")
	})
}

// Whatever bytes a node says goodbye with: they are refused, or the file can be read again.
func FuzzGoodbye(f *testing.F) {
	seed := func(r *api.GoodbyeRequest) {
		data, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	seed(&api.GoodbyeRequest{Entries: []*api.ManifestEntry{{Id: "s/a/x", Outcome: "moved", Peer: "b"}}, Runs: []*api.ManifestRun{{Outcome: "lost", Reason: "é", Blocks: api.NewBlockRun("(2 blocks)", 2)}}})
	for _, run := range badRuns() {
		seed(&api.GoodbyeRequest{Runs: []*api.ManifestRun{{Outcome: "moved", Blocks: run}}})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := new(api.GoodbyeRequest)
		if proto.Unmarshal(data, r) != nil || checkManifest(r) != nil {
			return
		}
		n := 0
		for e := range entriesOf(r) {
			n++
			if err := checkEntry(e); err != nil {
				t.Error(err)
			}
			if line := entryFrom(e).AppendLine(nil); len(line) > maxLine {
				t.Errorf("got a line of %d bytes, want at most %d", len(line), maxLine)
			}
		}
		want := len(r.Entries)
		for _, run := range r.Runs {
			want += len(run.Blocks.Lengths)
		}
		if n != want {
			t.Errorf("got %d entries, want %d", n, want)
		}
	})
}

// What a shelf takes depends on what is on it and not on what has come and gone, and who holds what is the same as in the
// plainest table there is.
func TestShelvesStaySmall(t *testing.T) {
	const ids = 5 * sheetRows
	b := newBlocks()
	model := map[string]map[string]int64{}
	say := func(node, id string, gone bool, bytes int64) {
		t.Helper()
		if model[node] == nil {
			model[node] = map[string]int64{}
		}
		if delete(model[node], id); !gone {
			model[node][id] = bytes
		}
		if _, err := b.hear(node, []word{{key: keyOf(id), what: landed{bytes, handleOf(bytes)}, gone: gone}}); err != nil {
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
			got, what := b.holders(keyOf(id(i)))
			if !slices.Equal(got, want) {
				t.Fatalf("round %d: block %s: got %v, want %v", round, id(i), got, want)
			}
			if len(want) == 1 && (what.bytes != model[want[0]][id(i)] || what.from != handleOf(what.bytes)) {
				t.Fatalf("round %d: block %s: got %d bytes from %s, want %d", round, id(i), what.bytes, what.from.Value(), model[want[0]][id(i)])
			}
			located += min(1, len(want))
		}
		if b.located() != located {
			t.Errorf("round %d: got %d blocks located, want %d", round, b.located(), located)
		}
	}
	b.forget("a")
	b.forget("b")
	if len(b.at) != 0 || b.located() != 0 || len(b.nodes()) != 0 {
		t.Errorf("got %d hashes, %d blocks and nodes %v after all was forgotten, want none", len(b.at), b.located(), b.nodes())
	}
}

// Among so many blocks some share a hash: they are told apart.
func TestBlocksOfOneHashAreToldApart(t *testing.T) {
	const n = 300_000 // of which about ten pairs share one of 2^32
	b, words := newBlocks(), make([]word, n)
	for i := range words {
		words[i] = word{key: keyOf(fmt.Sprintf("s/a/%d", i)), what: landed{from: handleOf(0)}}
	}
	if _, err := b.hear("a", words); err != nil {
		t.Fatal(err)
	}
	if len(b.at) == n || b.located() != n || len(b.of("a")) != n {
		t.Errorf("got %d hashes of %d blocks, %d of them listed, want %d blocks and fewer hashes", len(b.at), b.located(), len(b.of("a")), n)
	}
	for i := range words {
		words[i].gone = true
	}
	if _, err := b.hear("a", words[:n/2]); err != nil {
		t.Fatal(err)
	}
	for i, w := range words {
		if said, _ := b.holders(w.key); len(said) == 1 != (i >= n/2) {
			t.Fatalf("block %s: got holders %v", w.key.id(), said)
		}
	}
	if b.located() != n-n/2 {
		t.Errorf("got %d blocks located, want %d", b.located(), n-n/2)
	}
}

func TestBlocksOfOneNodeAreBounded(t *testing.T) {
	b := newBlocks()
	b.newShelf("a").count = maxHeldBlocks
	if _, err := b.hear("a", []word{{key: keyOf("s/a/x"), what: landed{from: handleOf(0)}}}); err == nil || !strings.Contains(err.Error(), "more than 4194304 landed blocks") {
		t.Errorf("got %v, want that there are too many", err)
	}
}

// A node may not fill the memory with names that are as long as names may be, whatever comes and goes.
func TestNamesOfOneNodeAreBounded(t *testing.T) {
	b := newBlocks()
	long := strings.Repeat("x", 1000)
	say := func(n int, gone bool) word {
		return word{key: keyOf(fmt.Sprintf("s/a/%d-%s", n, long)), what: landed{from: handleOf(0)}, gone: gone}
	}
	for n := range 10 * sheetRows {
		if _, err := b.hear("a", []word{say(n, false), say(n, true)}); err != nil {
			t.Fatal(err)
		}
	}
	s := b.shelves[b.numbers["a"]]
	if most := 2 * sheetRows * len(say(0, false).key.id()); s.size > most {
		t.Errorf("%d bytes of names are counted, at most %d are there", s.size, most)
	}
	s.size += maxHeldNames
	if _, err := b.hear("a", []word{say(0, false)}); err == nil || !strings.Contains(err.Error(), "more than 536870912 bytes") {
		t.Errorf("got %v, want that there are too many", err)
	}
}

func handleOf(n int64) unique.Handle[string] { return unique.Make(fmt.Sprint("from-", n)) }
