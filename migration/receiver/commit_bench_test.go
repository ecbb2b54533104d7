package receiver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// BenchmarkRecord records 200,000 blocks whose bytes are synced: a directory of a thousand at a time, in no order, in
// batches as large as arrive together.
func BenchmarkRecord(b *testing.B) {
	const blocks, together = 200_000, 2000
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		n := newNode(b, "b", with(filesStore, "cache"))
		c := newCommitter(n.Vault, nil, func([]vault.Held) {})
		order := rand.New(rand.NewPCG(1, 2))
		all := make([]*landed, 0, blocks)
		for dir := range blocks / 1000 {
			for _, k := range order.Perm(1000) {
				name := fmt.Sprintf("d%03d/part-%06d", dir, k)
				all = append(all, &landed{lying: new(lying), Record: catalog.Record{
					Opening: wire.Opening{ID: "cache/-/" + name, Kind: "files", Layout: "files", Origin: "a", ModTime: time.Now().UnixNano(),
						Members: []wire.MemberSize{{Name: name, Bytes: 4 << 10}}},
					From: "a", Landed: time.Now(), Segment: 1 + uint32(k%4), Offset: int64(k) << 12, OpenLen: 100, Length: 4 << 10,
				}})
			}
		}
		// Four streams send neighbouring directories.
		shuffled := slices.Clone(all)
		for i := range shuffled {
			shuffled[i] = all[i/4000*4000+i%4*1000+i%4000/4]
		}
		b.StartTimer()
		before := cpuTime(b)
		for batch := range slices.Chunk(shuffled, together) {
			c.record(batch)
		}
		b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/blocks, "CPU-ns/block")
		b.StopTimer()
		stats := n.Vault.Catalog.DB().Stats().TxStats
		b.ReportMetric(float64(stats.GetPageAlloc())/blocks, "page-B/block")
		for _, l := range all {
			if l.fault != nil {
				b.Fatal(l.fault)
			}
		}
		if got := n.Vault.Count().Blocks; got != blocks {
			b.Fatalf("%d blocks, want %d", got, blocks)
		}
		b.StartTimer()
	}
}
