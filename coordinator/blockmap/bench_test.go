package blockmap

import (
	"fmt"
	"runtime"
	"testing"
	"time"
	"unique"
)

// BenchmarkHeld measures what a landed block costs, in time and in memory that stays, and what its removal costs.
func BenchmarkHeld(b *testing.B) {
	const n, each = 200_000, 512
	words := make([]Word, n)
	for i := range words {
		words[i] = Word{Key: KeyOf(fmt.Sprintf("cache/-/d%03d/part-%06d", i/1000, i)), What: Landed{Bytes: 4 << 10, From: unique.Make("a")}}
	}
	gone := make([]Word, n)
	for i, w := range words {
		gone[(i*7919)%n] = Word{Key: w.Key, Gone: true, Why: "node-0 removed it"} // not in the order in which they came
	}
	say := func(known *Map, node string, words []Word) {
		for ; len(words) > 0; words = words[min(each, len(words)):] {
			if _, err := known.Hear(node, words[:min(each, len(words))]); err != nil {
				b.Fatal(err)
			}
		}
	}
	full := func() *Map {
		all := New()
		say(all, "node-0", words)
		return all
	}
	for _, c := range []struct {
		name   string
		before func(known *Map)
		act    func(known *Map)
		left   int
	}{
		{"put", func(*Map) {}, func(known *Map) { say(known, "node-0", words) }, n},
		{"gone", func(known *Map) { say(known, "node-0", words) }, func(known *Map) { say(known, "node-0", gone) }, 0},
		{"all but few gone", func(known *Map) { say(known, "node-0", words) }, func(known *Map) { say(known, "node-0", gone[:n-n/100]) }, n / 100},
		{"forget", func(known *Map) { say(known, "node-0", words) }, func(known *Map) { known.Forget("node-0") }, 0},
		{"second holder", func(known *Map) { say(known, "node-1", words) }, func(known *Map) { say(known, "node-0", words) }, 2 * n},
		{"full report", func(known *Map) { known.Replace("node-0", "", full()) }, func(known *Map) { known.Replace("node-0", "", full()) }, n},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took time.Duration
			var kept float64
			for range b.N {
				var m0, m1 runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m0)
				known := New()
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
