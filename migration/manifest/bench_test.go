package manifest

import (
	"fmt"
	"runtime"
	"testing"
)

// What it costs a drain to take back a block at a peer that is gone and to move it elsewhere: with the first line struck out where it stands,
// and with one that voids it and all lines settled at the end.
func BenchmarkTakeBack(b *testing.B) {
	const blocks = 200_000
	for name, back := range map[string]func(l *Ledger, begin int64, e Entry){
		"struck": (*Ledger).TakeBack,
		"voided": func(l *Ledger, _ int64, e Entry) { l.Void(e) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				l, err := Open(b.TempDir(), nil, false, nil)
				if err != nil {
					b.Fatal(err)
				}
				moved := func(i int, peer string) Entry {
					return Entry{ID: fmt.Sprintf("cache/-/big/%05d/part-%04d", i/1000, i%1000), Bytes: 4096, Outcome: Moved, Peer: peer, Version: "@1795677966706331163"}
				}
				begins := make([]int64, 0, blocks)
				for i := range blocks {
					l.Add(moved(i, "host-b"))
				}
				for line, err := range Lines(Path(l.dir, Moved)) {
					if err != nil {
						b.Fatal(err)
					}
					begins = append(begins, line.Begin)
				}
				runtime.GC()
				b.StartTimer()
				for i, begin := range begins {
					back(l, begin, moved(i, "host-b"))
					l.Add(moved(i, "host-c"))
				}
				if sum, err := l.Close(); err != nil || sum.Moved.Blocks != blocks {
					b.Fatalf("got %+v, %v", sum, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/blocks, "us/block")
		})
	}
}
