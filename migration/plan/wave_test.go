package plan

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// A block that was carried here a moment ago leaves after this node's own blocks that are worth more than a part of its worth. A
// block that has been here for long counts like the node's own.
func TestWhatJustLandedLeavesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Dir: t.TempDir()})
		add := func(name string, value time.Duration, landed time.Time) {
			m := inventory.Member{Name: name, Bytes: 1 << 20}
			if !landed.IsZero() {
				m.Root, m.ChangeTime = inventory.InVault, landed.UnixNano()
			}
			if err := p.Add(t.Context(), inventory.Block{ID: inventory.BlockID("cache/-/" + name), Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []inventory.Member{m}, Value: value}); err != nil {
				t.Fatal(err)
			}
		}
		long := time.Now()
		time.Sleep(oneWave)
		add("landed-now", time.Minute, time.Now())
		add("landed-now-precious", 10*againShare*time.Minute, time.Now())
		add("own", time.Minute, time.Time{})
		add("own-cheap", time.Minute/againShare/4, time.Time{})
		add("landed-before", 2*time.Minute, long)
		p.Seal()
		for _, want := range []string{"landed-now-precious", "landed-before", "own", "landed-now", "own-cheap"} {
			e, err := p.next(t.Context(), "peer", 1<<40)
			if err != nil || e.ID.Name() != want {
				t.Fatalf("next is %s, %v, want %s", e.ID, err, want)
			}
			if want == "landed-now" && e.Value != time.Minute {
				t.Errorf("it would be handed on as worth %v, want %v", e.Value, time.Minute)
			}
			p.Settle(1)
		}
	})
}
