package migration

import (
	"testing"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// What can only go to the vault uses up its room, and is refused for want of that, and not of what others have.
func TestRoomIsUsedWhereABlockGoes(t *testing.T) {
	cache, shuffle := &inventory.Block{ID: "cache/-/a", Members: []inventory.Member{{Bytes: 100}}}, &inventory.Block{ID: "spark/b/x", Members: []inventory.Member{{Bytes: 1000}}}
	r := room{most: 5000, vault: 300, places: []string{"spark"}}
	r.add(shuffle, -1000)
	r.add(cache, -100)
	if r.left("spark") != 3900 || r.left("cache") != 200 {
		t.Errorf("got %+v, want 3900 left, 200 in the vault", r)
	}
	r.refuses(cache)
	if r.left("spark") != 3900 || r.left("cache") != 99 {
		t.Errorf("got %+v after the vault was full, want spark's as before", r)
	}
	r.refuses(shuffle)
	if r.left("spark") != 999 || r.left("cache") != 99 {
		t.Errorf("got %+v after all was full", r)
	}
}
