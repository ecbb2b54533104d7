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
)

func TestWorthOfABlock(t *testing.T) {
	w := newWorths([]*Store{
		{StoreConfig: StoreConfig{Name: "cache", Value: time.Minute, Hints: []Hint{{"models/*", time.Hour}, {"*.tmp2", time.Millisecond}}}},
		{StoreConfig: StoreConfig{Name: "spark", Hints: []Hint{{"shuffle_7_*", 10 * time.Minute}}}},
	})
	for _, row := range []struct {
		id, kind string
		said     time.Duration
		want     time.Duration
	}{
		{"cache/-/x", KindCache, 0, time.Minute},
		{"cache/-/models/llm", KindCache, 0, time.Hour},
		{"cache/-/other/models", KindCache, 0, time.Minute},
		{"cache/-/a/b/c.tmp2", KindCache, 0, time.Millisecond},
		{"cache/-/models/llm", KindCache, time.Second, time.Second}, // whoever wrote it knows best
		{"spark/app-1-1/shuffle_7_0_0", KindShuffle, 0, 10 * time.Minute},
		{"spark/app-1-1/shuffle_3_0_0", KindShuffle, 0, worthShuffle},
		{"spark/app-1-1/shuffle_2_0_0", KindShuffle, 0, worthOldShuffle},
		{"spark/app-1-1/shuffle_0_0_0", KindShuffle, 0, worthPastShuffle},
		{"spark/app-2-1/shuffle_0_0_0", KindShuffle, 0, worthShuffle}, // another application's newest
		{"spark/app-1-1/rdd_0_0", KindCache, 0, worthCached},
		{"other/-/shuffle_99999999999_0_0", KindShuffle, 0, worthShuffle},
	} {
		b := Block{ID: BlockID(row.id), Kind: row.kind, value: row.said}
		b.value = w.said(b)
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
		write(t, filepath.Join(dir, filepath.Dir(strings.TrimPrefix(last, "cache/-/")), ValuesFile), []byte(line))
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
			if err != nil || it.value != value {
				t.Errorf("after two hops %s is worth %v, %v, want %v", it.ID, it.value, err, value)
			}
		}
	})
}

func TestValuesFileThatIsWrongCountsAsFarAsItIsRight(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"{\"id\":\"a\",\"value\":\"1s\"}\n\n{\"id\":\"b\",\"value\":\"2h\"}", ""},
		{"{\"id\":\"a\",\"value\":\"1s\"}\nb 2h\n", "line 2"},
		{"{\"id\":\"a\",\"value\":\"1s\"}\n{\"id\":\"b\",\"value\":\"-2h\"}\n", "line 2: want an id and a value"},
		{"{\"id\":\"a\",\"value\":\"1s\"}\n{\"id\":\"b\",\"value\":\"2000h\"}\n", "line 2: want"},
		{"{\"id\":\"a\",\"value\":\"1s\"}\n" + strings.Repeat("x", maxValueLine+1), "too long"},
		{"{\"id\":\"a\",\"value\":\"1s\"}\n" + strings.Repeat("\n", maxValuesBytes) + "{\"id\":\"b\",\"value\":\"1s\"}", ""},
	} {
		v := values{of: map[string]time.Duration{}}
		err := v.read(strings.NewReader(row.text))
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%.40q: got %v, want %q", row.text, err, row.want)
		}
		if v.of["a"] != time.Second {
			t.Errorf("%.40q: the first line was lost", row.text)
		}
	}
}

func FuzzValues(f *testing.F) {
	f.Add("{\"id\":\"a\",\"value\":\"1s\"}\n")
	f.Fuzz(func(t *testing.T, text string) {
		v := values{of: map[string]time.Duration{}}
		_ = v.read(strings.NewReader(text))
		for id, value := range v.of {
			if id == "" || value <= 0 || value > MostValue {
				t.Errorf("%q is worth %v", id, value)
			}
		}
	})
}

// A scan goes on although a directory's values cannot be read.
func TestValuesThatAreADirectory(t *testing.T) {
	a, want := cached(t, 3, 10)
	if err := os.MkdirAll(filepath.Join(a.stores[0].Paths[0], ValuesFile), 0o755); err != nil {
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
