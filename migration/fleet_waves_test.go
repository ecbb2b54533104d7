package migration

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// twoWaves takes away pool 0 within ten seconds, and a part of pool 1 when half of the first notice is over.
func twoWaves(f *simFleet) {
	second := 0
	for _, n := range f.nodes {
		switch n.pool {
		case f.poolName(0):
			f.leave(n, time.Duration(f.rng.Int64N(int64(10*time.Second))))
		case f.poolName(1):
			if second++; second%f.oneIn == 0 {
				f.leave(n, f.notice/2+time.Duration(f.rng.Int64N(int64(10*time.Second))))
			}
		}
	}
}

// someOfAll takes away a third of pool 0 within ten seconds.
func someOfAll(f *simFleet) {
	for i, n := range f.nodes {
		if n.pool == f.poolName(0) && i%3 == 0 {
			f.leave(n, time.Duration(f.rng.Int64N(int64(10*time.Second))))
		}
	}
}

// recorded is a trace of testdata/spot: lines of "seconds pool instances" say how many of 16 instances there are from then
// on. Each instance stands for four nodes, and the notices of one line come within half a minute. Pools that the trace
// does not name stay.
func recorded(t *testing.T, name string) func(*simFleet) {
	file, err := os.ReadFile(filepath.Join("testdata", "spot", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return func(f *simFleet) {
		pools, there := map[string]int{}, map[string]int{}
		lines := bufio.NewScanner(strings.NewReader(string(file)))
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "#") {
				continue
			}
			var seconds, count int
			var pool string
			if _, err := fmt.Sscan(lines.Text(), &seconds, &pool, &count); err != nil {
				t.Fatalf("%s: %q: %v", name, lines.Text(), err)
			}
			if _, ok := pools[pool]; !ok {
				pools[pool], there[pool] = len(pools), 16
			}
			of := slices.DeleteFunc(slices.Clone(f.nodes), func(n *simNode) bool {
				return n.pool != f.poolName(pools[pool]) || !n.noticed.IsZero()
			})
			for _, n := range of[:min(len(of), 4*max(0, there[pool]-count))] {
				f.leave(n, time.Duration(seconds)*time.Second+time.Duration(f.rng.Int64N(int64(30*time.Second))))
			}
			there[pool] = count
		}
	}
}
