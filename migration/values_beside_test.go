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

// An engine's own word is in a file beside its blocks. It goes with the blocks, so that the next node knows it too.
func TestValuesBesideBlocksTravelWithThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, want := cached(t, 20, 10_000)
		b, c := newNode(t, "b"), newNode(t, "c")
		dir := a.Stores[0].Paths[0]
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
		for it, err := range Inventory(t.Context(), c.Stores, c.Vault) {
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
	if err := os.MkdirAll(filepath.Join(a.Stores[0].Paths[0], inventory.ValuesFile), 0o755); err != nil {
		t.Fatal(err)
	}
	found := 0
	for it := range a.Stores[0].Scan(t.Context()) {
		if want[string(it.ID)] != nil {
			found++
		}
	}
	if found != len(want) {
		t.Errorf("found %d blocks of %d", found, len(want))
	}
}
