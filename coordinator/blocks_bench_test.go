package coordinator

import (
	"cmp"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"
	"unique"

	"google.golang.org/protobuf/proto"

	"github.com/lifeboat/lifeboat/api"
)

// A drain of 200,000 blocks, as it is heard from the node that takes them, and its manifest: in runs, and block by block.
func BenchmarkDrainIsHeard(b *testing.B) {
	const blocks, each = 200_000, 512
	marshal := func(m proto.Message) []byte {
		data, err := proto.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		return data
	}
	said := map[string][2][][]byte{} // reports, and messages of the manifest
	for first := 0; first < blocks; first += each {
		landed, entries := &api.ReportBlocksRequest{Node: "b", Incarnation: "i"}, &api.GoodbyeRequest{}
		run := &api.BlockRun{}
		for i := first; i < min(blocks, first+each); i++ {
			id := fmt.Sprintf("cache/-/d%03d/part-%06d", i/1000, i)
			landed.Landed = append(landed.Landed, &api.HeldBlock{Id: id, Bytes: 4 << 10, From: "a"})
			entries.Entries = append(entries.Entries, &api.ManifestEntry{Id: id, Bytes: 4 << 10, Outcome: "moved", Peer: "b"})
			if i == first {
				run = api.NewBlockRun(id, 4<<10)
			} else {
				run.Add(id, 4<<10)
			}
		}
		runs := &api.ReportBlocksRequest{Node: "b", Incarnation: "i", Runs: []*api.HeldRun{{From: "a", Blocks: run}}}
		manifest := &api.GoodbyeRequest{Runs: []*api.ManifestRun{{Outcome: "moved", Peer: "b", Blocks: run}}}
		one, many := said["one by one"], said["runs"]
		said["one by one"] = [2][][]byte{append(one[0], marshal(landed)), append(one[1], marshal(entries))}
		said["runs"] = [2][][]byte{append(many[0], marshal(runs)), append(many[1], marshal(manifest))}
	}
	m, err := openManifests(b.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	for form, messages := range said {
		b.Run(form, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				known := newBlocks()
				var words []word
				for _, data := range messages[0] {
					r := new(api.ReportBlocksRequest)
					if err := cmp.Or(proto.Unmarshal(data, r), checkReport(r)); err != nil {
						b.Fatal(err)
					}
					words = wordsOf(words[:0], "b", r, nil)
					if _, err := known.hear("b", words); err != nil {
						b.Fatal(err)
					}
				}
				w, err := m.begin("a", &api.ManifestSummary{Node: "a"})
				if err != nil {
					b.Fatal(err)
				}
				for _, data := range messages[1] {
					r := new(api.GoodbyeRequest)
					if err := cmp.Or(proto.Unmarshal(data, r), checkManifest(r)); err != nil {
						b.Fatal(err)
					}
					for e := range entriesOf(r) {
						if err := w.add(e); err != nil {
							b.Fatal(err)
						}
					}
				}
				w.abort()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
		})
	}
}

// What a landed block costs, in time and in memory that stays, and what it costs to be told otherwise.
func BenchmarkHeld(b *testing.B) {
	const n, each = 200_000, 512
	words := make([]word, n)
	for i := range words {
		words[i] = word{key: keyOf(fmt.Sprintf("cache/-/d%03d/part-%06d", i/1000, i)), what: landed{4 << 10, unique.Make("a")}}
	}
	gone := make([]word, n)
	for i, w := range words {
		gone[(i*7919)%n] = word{key: w.key, gone: true, why: "node-0 removed it"} // not in the order in which they came
	}
	say := func(known *blocks, node string, words []word) {
		for ; len(words) > 0; words = words[min(each, len(words)):] {
			if _, err := known.hear(node, words[:min(each, len(words))]); err != nil {
				b.Fatal(err)
			}
		}
	}
	full := func() *blocks {
		all := newBlocks()
		say(all, "node-0", words)
		return all
	}
	for _, c := range []struct {
		name   string
		before func(known *blocks)
		act    func(known *blocks)
		left   int
	}{
		{"put", func(*blocks) {}, func(known *blocks) { say(known, "node-0", words) }, n},
		{"gone", func(known *blocks) { say(known, "node-0", words) }, func(known *blocks) { say(known, "node-0", gone) }, 0},
		{"all but few gone", func(known *blocks) { say(known, "node-0", words) }, func(known *blocks) { say(known, "node-0", gone[:n-n/100]) }, n / 100},
		{"forget", func(known *blocks) { say(known, "node-0", words) }, func(known *blocks) { known.forget("node-0") }, 0},
		{"second holder", func(known *blocks) { say(known, "node-1", words) }, func(known *blocks) { say(known, "node-0", words) }, 2 * n},
		{"full report", func(known *blocks) { known.replace("node-0", "", full()) }, func(known *blocks) { known.replace("node-0", "", full()) }, n},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took time.Duration
			var kept float64
			for range b.N {
				var m0, m1 runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m0)
				known := newBlocks()
				c.before(known)
				start := time.Now()
				c.act(known)
				took += time.Since(start)
				runtime.GC()
				runtime.ReadMemStats(&m1)
				kept += float64(int64(m1.HeapAlloc) - int64(m0.HeapAlloc))
				runtime.KeepAlive(known)
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N)/n, "ns/block")
			b.ReportMetric(kept/float64(b.N)/float64(max(c.left, 1)), "B/left")
			b.ReportMetric(kept/float64(b.N)/1e6, "MB")
		})
	}
}
