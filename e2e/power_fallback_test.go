package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A drain has put many small blocks at once into a shared directory. They are there after the power of the machine with that
// disk was cut.
func TestFallbacksPowerIsCut(t *testing.T) {
	onEach(t, func(t *testing.T, fs string) {
		disk := newPowered(t, fs)
		f := newFleet(t)
		dir := filepath.Join(disk.dir, "spill")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		disk.writeAll()
		line := fmt.Sprintf("fallback: {name: spill, dir: %s}", dir)
		a, b := f.agent("host-a", noRoom, line), f.agent("host-b", noRoom, line)
		a.fill(6000, 24<<20)
		a.shuffle(20, 1<<20)
		f.up()
		a.verb("decommission", "--self", "--timeout", "90s").exits(0)
		a.underWay(500)
		amid()
		receipted := a.receipted()
		disk.cut(a.daemon, b.daemon)
		b.back()
		var put []block
		for _, x := range a.blocks {
			if receipted[x.whole] == "fallback:spill" {
				put = append(put, x)
			}
		}
		t.Logf("%d files of %d were put", len(put), len(a.blocks))
		if len(put) < 100 {
			t.Fatal("that is not amid a drain")
		}
		b.onSocket().serves(t, put)
	})
}
