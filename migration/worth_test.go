package migration

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

func TestWorthOfABlock(t *testing.T) {
	w := newWorths([]*inventory.Store{
		{StoreConfig: inventory.StoreConfig{Name: "cache", Value: time.Minute, Hints: []inventory.Hint{{Match: "models/*", Value: time.Hour}, {Match: "*.tmp2", Value: time.Millisecond}}}},
		{StoreConfig: inventory.StoreConfig{Name: "spark", Hints: []inventory.Hint{{Match: "shuffle_7_*", Value: 10 * time.Minute}}}},
	})
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

// An engine's own word is in a file beside its blocks. It goes with the blocks, so that the next node knows it too.
func TestValuesBesideBlocksTravelWithThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 20, 10_000)
		b, c := newNode(t, "b"), newNode(t, "c")
		dir := a.stores[0].Paths[0]
		last := slices.Sorted(maps.Keys(want))[len(want)-1]
		line := fmt.Sprintf("{\"id\":%q,\"value\":\"2h\"}\n", filepath.Base(last))
		write(t, filepath.Join(dir, filepath.Dir(strings.TrimPrefix(last, "cache/-/")), inventory.ValuesFile), []byte(line))
		_, entries := a.drain(t, within(t, time.Minute), b)
		wantThere(t, want, entries, b)
		if len(entries) != len(want) {
			t.Errorf("%d blocks in the account, want %d: the values are no block", len(entries), len(want))
		}
		_, entries = b.drain(t, within(t, time.Minute), c)
		wantThere(t, want, entries, c)
		for it, err := range Inventory(t.Context(), c.stores, c.vault) {
			value := time.Duration(0)
			if string(it.ID) == last {
				value = 2 * time.Hour
			}
			if err != nil || it.Value != value {
				t.Errorf("after two hops %s is worth %v, %v, want %v", it.ID, it.Value, err, value)
			}
		}
	})
}

// A scan goes on although a directory's values cannot be read.
func TestValuesThatAreADirectory(t *testing.T) {
	a, want := cached(t, 3, 10)
	if err := os.MkdirAll(filepath.Join(a.stores[0].Paths[0], inventory.ValuesFile), 0o755); err != nil {
		t.Fatal(err)
	}
	found := 0
	for it := range a.stores[0].Scan(t.Context()) {
		if want[string(it.ID)] != nil {
			found++
		}
	}
	if found != len(want) {
		t.Errorf("found %d blocks of %d", found, len(want))
	}
}
