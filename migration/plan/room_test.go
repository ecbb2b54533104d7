package plan

import (
	"testing"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Blocks that can only go to the vault use up the vault's room. They are refused when that is used up, and other blocks are not.
func TestRoomIsUsedWhereABlockGoes(t *testing.T) {
	cache, shuffle := &inventory.Block{ID: "cache/-/a", Members: []inventory.Member{{Bytes: 100}}}, &inventory.Block{ID: "spark/b/x", Members: []inventory.Member{{Bytes: 1000}}}
	r := Room{Most: 5000, Vault: 300, Places: []string{"spark"}}
	r.Add(shuffle, -1000)
	r.Add(cache, -100)
	if r.Left("spark") != 3900 || r.Left("cache") != 200 {
		t.Errorf("got %+v, want 3900 left, 200 in the vault", r)
	}
	r.Refuses(cache)
	if r.Left("spark") != 3900 || r.Left("cache") != 99 {
		t.Errorf("got %+v after the vault was full, want spark's as before", r)
	}
	r.Refuses(shuffle)
	if r.Left("spark") != 999 || r.Left("cache") != 99 {
		t.Errorf("got %+v after all was full", r)
	}
}
