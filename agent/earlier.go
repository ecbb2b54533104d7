package agent

import (
	"context"
	"os"
	"time"

	"github.com/lifeboat/lifeboat/migration"
)

// lookBack has peers forget what drains moved that were withdrawn, as far as it changed here since, until ctx ends.
func (a *Agent) lookBack(ctx context.Context) error {
	cfg := a.drainConfig("", a.incidents.Dir(""), 0)
	return migration.LookBack(ctx, cfg, a.recent, a.carries)
}

// recent are the accounts of blocks that peers may still have, if they keep what lands there for as long as this node does,
// and an hour more at most: that is how often they look for what was kept long enough.
func (a *Agent) recent() []string {
	open, _ := a.incidents.Open()
	since := time.Time{}
	if keep := a.cfg.Receive.Keep; keep > 0 {
		since = time.Now().Add(-keep - time.Hour)
	}
	return a.earlier(open.Incident.ID, since)
}

// earlier are the accounts of incidents that this node has outlived, but for those that ended before.
func (a *Agent) earlier(incident string, before time.Time) (dirs []string) {
	entries, _ := os.ReadDir(a.incidents.Dir("")) // what cannot be listed keeps nobody from leaving
	for _, e := range entries {
		if info, err := e.Info(); err == nil && e.Name() != incident && info.ModTime().After(before) {
			dirs = append(dirs, a.incidents.Dir(e.Name()))
		}
	}
	return dirs
}
