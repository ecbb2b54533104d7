package plan

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

func TestWorthOfABlock(t *testing.T) {
	w := newWorths([]*inventory.Store{
		{StoreConfig: inventory.StoreConfig{Name: "cache", Value: time.Minute, Hints: []inventory.Hint{{Match: "models/*", Value: time.Hour}, {Match: "*.tmp2", Value: time.Millisecond}}}},
		{StoreConfig: inventory.StoreConfig{Name: "spark", Hints: []inventory.Hint{{Match: "shuffle_7_*", Value: 10 * time.Minute}}}},
	}, nil)
	for _, row := range []struct {
		id, kind string
		said     time.Duration
		want     time.Duration
	}{
		{"cache/-/x", inventory.KindCache, 0, time.Minute},
		{"cache/-/models/llm", inventory.KindCache, 0, time.Hour},
		{"cache/-/other/models", inventory.KindCache, 0, time.Minute},
		{"cache/-/a/b/c.tmp2", inventory.KindCache, 0, time.Millisecond},
		{"cache/-/models/llm", inventory.KindCache, time.Second, time.Second}, // whoever wrote it knows best
		{"spark/app-1-1/shuffle_7_0_0", inventory.KindShuffle, 0, 10 * time.Minute},
		{"spark/app-1-1/shuffle_3_0_0", inventory.KindShuffle, 0, worthShuffle},
		{"spark/app-1-1/shuffle_2_0_0", inventory.KindShuffle, 0, worthOldShuffle},
		{"spark/app-1-1/shuffle_0_0_0", inventory.KindShuffle, 0, worthPastShuffle},
		{"spark/app-2-1/shuffle_0_0_0", inventory.KindShuffle, 0, worthShuffle}, // another application's newest
		{"spark/app-1-1/rdd_0_0", inventory.KindCache, 0, worthCached},
		{"spark/app-1-1/rdd_0_1", inventory.KindShuffle, 0, worthCached}, // an executor has both in its directories
		{"other/-/shuffle_99999999999_0_0", inventory.KindShuffle, 0, worthShuffle},
	} {
		b := inventory.Block{ID: inventory.BlockID(row.id), Kind: row.kind, Value: row.said}
		if b.ID.Store() == "spark" {
			b.Layout = inventory.LayoutSpark
		}
		b.Value = w.said(b)
		if got := w.of(b); got != row.want {
			t.Errorf("%s: got %v, want %v", row.id, got, row.want)
		}
	}
}
