package agent

import (
	"log/slog"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/nodetest"
)

// A coordinator takes a report that ends to be complete. While the catalog hangs there is no complete report.
func TestCatalogThatHangsIsNotReportedAsEmpty(t *testing.T) {
	n := nodetest.New(t, "a")
	f := n.OnDisks(t, "d0")
	a := &Agent{vault: n.Vault, log: slog.New(slog.DiscardHandler)}
	n.Vault.Watch(f)
	thaw := nodetest.HangMeta(n.Vault.Catalog)
	defer thaw()
	changed := await.Beside(func() { n.Vault.Catalog.Forget("cache/-/none") })
	<-time.After(diskio.Suspect / 2) // amid that change, which is a long one by now
	f.Set(f.Bad, n.Vault.Dir, true)
	var why error
	for _, why = range a.held() {
	}
	if !diskio.IsSilent(why) {
		t.Errorf("the list ended with %v, want to hear of the disk", why)
	}
	thaw()
	<-changed
	for _, err := range a.held() {
		t.Error(err)
	}
}
