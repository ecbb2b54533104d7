package agent

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration"
	"github.com/lifeboat/lifeboat/preemption"
)

// lookBack has peers forget what drains moved that were withdrawn, and what evacuations did, as far as it changed here since, until ctx ends.
func (a *Agent) lookBack(ctx context.Context) error {
	cfg := a.drainConfig("", a.incidents.Dir(""), 0)
	accounts := func() []string { return append(a.recent(), a.evacuations.over(a.keptSince())...) }
	return migration.LookBack(ctx, cfg, accounts, a.carries)
}

// recent are the accounts of blocks that peers may still have.
func (a *Agent) recent() []string {
	open, _ := a.incidents.Open()
	return a.earlier(open.Incident.ID, a.keptSince())
}

// keptSince is since when what peers took is kept, if they keep what lands there for as long as this node does, and an hour more at
// most: that is how often they look for what was kept long enough. Zero: it is kept for ever.
func (a *Agent) keptSince() time.Time {
	if keep := a.cfg.Receive.Keep; keep > 0 {
		return time.Now().Add(-keep - time.Hour)
	}
	return time.Time{}
}

// adopt has an incident begin with what the last one moved that this node has outlived, and with what evacuations of its disks did: what was
// ordered away, taken back, and is ordered away again has its blocks with peers. Nobody believes that where the coordinator cannot say
// whether it is so, and a rehearsal shows what a drain does.
func (a *Agent) adopt(incident, dir string) {
	if a.alone() || a.rehearses() || a.refuge.has(incident) {
		return
	}
	last, at := "", time.Time{}
	for _, earlier := range a.recent() {
		if info, err := os.Stat(earlier); err == nil && info.ModTime().After(at) {
			last, at = earlier, info.ModTime()
		}
	}
	earlier := a.evacuations.moved(a.keptSince())
	if last != "" {
		earlier = append(earlier, last)
	}
	switch adopted, err := migration.Adopt(dir, earlier...); {
	case err != nil:
		a.log.Warn("what an earlier drain moved is sent again", "incident", incident, "err", err)
	case adopted.Blocks > 0:
		a.log.Info("what an earlier drain moved is not sent again where it is still held", "incident", incident, "blocks", adopted.Blocks, "bytes", adopted.Bytes)
	}
}

// rehearses says whether nothing but a rehearsal makes this node leave.
func (a *Agent) rehearses() bool {
	i := a.incident()
	all := i.InForce()
	return len(all) > 0 && !slices.ContainsFunc(all, func(n preemption.Notice) bool { return n.Source != preemption.SourceRehearsal })
}

// earlier are the accounts of incidents that this node has outlived, but for those that ended before.
func (a *Agent) earlier(incident string, before time.Time) (dirs []string) {
	all, _ := durable.Dirs(a.incidents.Dir("")) // what cannot be listed keeps nobody from leaving
	for _, d := range all {
		if d.Name() != incident && d.ModTime().After(before) {
			dirs = append(dirs, a.incidents.Dir(d.Name()))
		}
	}
	return dirs
}
