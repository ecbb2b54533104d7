package migration

import (
	"testing"
	"testing/synctest"
	"time"
)

// What was carried here a moment ago lets blocks of this node go first that are worth no less than a part of it. What has
// been here for long is as good as the node's own.
func TestWhatJustLandedLeavesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlan(t.TempDir())
		add := func(name string, value time.Duration, landed time.Time) {
			m := Member{Name: name, Bytes: 1 << 20}
			if !landed.IsZero() {
				m.root, m.ctim = inVault, landed.UnixNano()
			}
			if err := p.add(t.Context(), Block{ID: BlockID("cache/-/" + name), Kind: KindCache, Layout: LayoutFiles, Members: []Member{m}, value: value}); err != nil {
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
		p.seal()
		for _, want := range []string{"landed-now-precious", "landed-before", "own", "landed-now", "own-cheap"} {
			e, err := p.next(t.Context(), "peer", 1<<40)
			if err != nil || e.ID.Name() != want {
				t.Fatalf("next is %s, %v, want %s", e.ID, err, want)
			}
			if want == "landed-now" && e.value != time.Minute {
				t.Errorf("it would be handed on as worth %v, want %v", e.value, time.Minute)
			}
			p.settle(1)
		}
	})
}
