package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Map outputs that lie in three of twelve directories each have twelve racks, and not one for each three. A map output with a file in a
// directory that does not answer, or is crowded, is not handed out, wherever its first file lies; it is once the directory is open.
func TestPlanOfBlocksInSeveralDirectories(t *testing.T) {
	const (
		dirs = 12
		all  = dirs * dirs * dirs
	)
	name := func(i int) string { return fmt.Sprintf("/disk%02d", i) }
	p := New(Config{Dir: t.TempDir()})
	defer p.Close()
	p.cfg.Where = func(b inventory.Block) (where []string) {
		for _, m := range b.Members {
			where = append(where, name(m.Root))
		}
		return where
	}
	within := 0 // neither in /disk03 nor in /disk07
	for i := range all {
		b := block(i, 1000)
		b.Members = []inventory.Member{{Name: "a", Bytes: 900, Root: i % dirs}, {Name: "b", Bytes: 50, Root: i / dirs % dirs}, {Name: "c", Bytes: 50, Root: i / dirs / dirs}}
		if where := p.cfg.Where(b); !slices.Contains(where, name(3)) && !slices.Contains(where, name(7)) {
			within++
		}
		if err := p.Add(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	p.Seal()
	if len(p.order) != dirs {
		t.Errorf("%d spools for %d directories", len(p.order), dirs)
	}
	met := map[inventory.BlockID]bool{}
	take := func(crowded map[string]bool) (n int) {
		for {
			batch, _, err := p.Take(nil, 100, unlimited, "b", RoomOf(unlimited), unlimited, crowded)
			for _, e := range batch {
				if met[e.ID] {
					t.Fatalf("%s was handed out twice", e.ID)
				}
				met[e.ID] = true
			}
			if n += len(batch); len(batch) == 0 || err != nil {
				p.Settle(n)
				return n
			}
		}
	}
	p.Bar(map[string]string{name(3): "it hangs"})
	if got := take(map[string]bool{name(7): true}); got != within {
		t.Errorf("%d handed out beside a directory that hangs and one that is crowded, want %d", got, within)
	}
	if take(nil) == 0 {
		t.Error("nothing handed out of the crowded one")
	}
	if !p.empty() {
		t.Error("it takes what lies in the one that hangs for something to be had")
	}
	p.Bar(nil)
	if take(nil); len(met) != all || !p.Settled() {
		t.Errorf("%d of %d handed out in the end", len(met), all)
	}
}

// While as many blocks wait in memory as may, a block of the class that has no upper end is handed out all the same.
func TestLargeBlockIsHandedOutWhileManyWait(t *testing.T) {
	p := New(Config{Dir: t.TempDir()})
	defer p.Close()
	for i := range maxReturned {
		p.outstanding++
		p.GiveBack(Entry{Block: block(i, 1000)}, time.Hour, "busy")
	}
	if err := p.Add(t.Context(), block(maxReturned, 300<<20)); err != nil {
		t.Fatal(err)
	}
	if e, ok, _, err := p.takeOne("b", 1<<30); !ok || e.Bytes() != 300<<20 {
		t.Errorf("got %v, %v, %v", e.ID, ok, err)
	}
}
