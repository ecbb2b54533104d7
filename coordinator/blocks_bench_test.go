package coordinator

import (
	"cmp"
	"fmt"
	"log/slog"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/blockmap"
)

// The receiver's reports and the manifest of a drain of 200,000 blocks: in runs, and block by block.
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
				known := blockmap.New()
				var words []blockmap.Word
				for _, data := range messages[0] {
					r := new(api.ReportBlocksRequest)
					if err := cmp.Or(proto.Unmarshal(data, r), checkReport(r)); err != nil {
						b.Fatal(err)
					}
					words = wordsOf(words[:0], "b", r, nil)
					if _, err := known.Hear("b", words); err != nil {
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
