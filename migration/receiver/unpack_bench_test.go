package receiver

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkUnpacking makes files of small blocks, and reports what each costs this process.
func BenchmarkUnpacking(b *testing.B) {
	const blocks, size = 10_000, 4 << 10
	var spent time.Duration
	for range b.N {
		b.StopTimer()
		n := newNode(b, "b", with(placeStore, "cache"))
		n.packs = true
		frames := make([][]byte, blocks)
		for i := range frames {
			id := fmt.Sprintf("cache/-/d%02x/f-%06d", i%64, i)
			frames[i] = blockFrames(uint32(i+1), id, contentOf(id, size))
		}
		landAll(b, n, frames...)
		before := cpuTime(b)
		b.StartTimer()
		n.unpack()
		spent += cpuTime(b) - before
		if w := n.receiver.Unpacking().Waiting; w.Blocks != 0 {
			b.Fatalf("%d blocks wait", w.Blocks)
		}
	}
	b.ReportMetric(float64(spent.Microseconds())/float64(b.N*blocks), "cpu-us/block")
}
