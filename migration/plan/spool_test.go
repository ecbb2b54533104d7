package plan

import (
	"reflect"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// A block comes back from a plan's spool as it was.
func TestSpoolKeepsBlocks(t *testing.T) {
	blk := inventory.Block{ID: "cache/-/x", Kind: inventory.KindCache, Layout: inventory.LayoutFiles, Members: []inventory.Member{{Name: "x", Bytes: 3, ModTime: time.Unix(0, 9), Root: 1, Path: "x", ChangeTime: 8}}}
	came := blk
	came.Value, came.Origin, came.Traced, came.Spare = time.Hour, "home", true, true
	own := blk
	own.Traced = true
	for _, want := range []inventory.Block{blk, came, own} {
		got, err := parseBlock(appendBlock(nil, want), inventory.Block{Origin: "another", Traced: true}, new(inventory.Roster))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("block: got %+v, %v, want %+v", got, err, want)
		}
	}
}

func FuzzSpool(f *testing.F) {
	f.Add(appendBlock(nil, inventory.Block{ID: "cache/-/x", Members: []inventory.Member{{Name: "x"}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		blk, err := parseBlock(b, inventory.Block{}, new(inventory.Roster))
		if err != nil {
			return
		}
		if again, err := parseBlock(appendBlock(nil, blk), inventory.Block{}, new(inventory.Roster)); err != nil || !reflect.DeepEqual(again, blk) {
			t.Errorf("block %+v: %+v, %v", blk, again, err)
		}
	})
}
