package vault

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// A drain keeps the last few segments open, and counts as their reader: their free space is not given to others meanwhile.
func TestFewSegmentsAreOpenAtOnce(t *testing.T) {
	v := opened(t)
	var near Reader
	for i := range mostOpen + 2 {
		id := fmt.Sprintf("cache/-/x%d", i)
		put(t, v, id, 100)
		full, kept := v.Acquire(v.Dir) // the next one is another
		b, err := v.Find(inventory.BlockID(id))
		if err := errors.Join(kept, err); err != nil {
			t.Fatal(err)
		}
		defer v.Release(full, false)
		got := make([]byte, 100)
		if is, err := near.Read(v, b, 0, got); !is || err != nil || !bytes.Equal(got, content(id, 100)) {
			t.Errorf("%s: got %v, %v, %d bytes", id, is, err, len(got))
		}
		if open := len(v.reading); open != min(i+1, mostOpen) || open != len(near.open) {
			t.Errorf("after %d blocks, of a segment each, %d are said to be read and %d are open, want as many and at most %d", i+1, open, len(near.open), mostOpen)
		}
	}
	if near.Leave(); len(v.reading) != 0 {
		t.Errorf("%v are said to be read, and nobody does", v.reading)
	}
}
