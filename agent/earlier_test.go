package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
)

// lookBack goes through the accounts of withdrawn drains whose blocks peers may still have; a drain goes by all of them.
func TestRecentAccounts(t *testing.T) {
	c := &course{keep: 24 * time.Hour, incidents: new(incidents)}
	var err error
	if c.incidents.Keeper, err = preemption.OpenKeeper[work](preemption.KeeperConfig{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	open, _, err := c.incidents.Join(preemption.Notice{Source: preemption.SourceManual, ID: "x", Kind: preemption.KindTerminate, SeenAt: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	for id, age := range map[string]time.Duration{open.Incident.ID: 0, "new": time.Hour, "kept": 24 * time.Hour, "over": 26 * time.Hour} {
		ended := time.Now().Add(-age)
		if err := os.MkdirAll(c.incidents.Dir(id), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(c.incidents.Dir(id), ended, ended); err != nil {
			t.Fatal(err)
		}
	}
	want := func(got []string, names ...string) {
		t.Helper()
		for i, dir := range got {
			got[i] = filepath.Base(dir)
		}
		if !slices.Equal(got, names) {
			t.Errorf("got %v, want %v", got, names)
		}
	}
	want(c.recent(), "kept", "new")
	want(c.incidents.earlier(open.Incident.ID, time.Time{}), "over", "kept", "new")
	c.keep = 0
	want(c.recent(), "over", "kept", "new")
}
