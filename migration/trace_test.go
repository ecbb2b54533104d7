package migration

import (
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/nodetest"
)

// While the catalog hangs, it cannot say where a block was born. It is asked again later: until then the block does not
// count as one of this node's own.
func TestOriginIsAskedAgainOfACatalogThatHung(t *testing.T) {
	b, f := onDisks(t, "b", nil, "d0")
	wantDurable(t, landAll(t, b, blockFrames(1, "cache/-/x", contentOf("x", 1000))))
	blk, err := b.Vault.Find(inventory.BlockID("cache/-/x"))
	if err != nil {
		t.Fatal(err)
	}
	blk.Traced = false
	d := NewDrain(newTrip(t, b).cfg)
	thaw := nodetest.HangMeta(b.Vault.Catalog)
	defer thaw()
	changed := await.Beside(func() { b.Vault.Catalog.Forget("cache/-/none") })
	<-time.After(diskio.Suspect / 2) // amid that change, which is a long one by now
	f.Set(f.Bad, b.Vault.Dir, true)
	d.source.origin(&blk)
	thaw()
	<-changed
	f.Set(f.Bad, b.Vault.Dir, false)
	if origin := d.source.origin(&blk); origin != "a" {
		t.Errorf("it was born on %q, want a", origin)
	}
}
