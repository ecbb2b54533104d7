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

// lookBack has peers remove copies that have become out of date here since a withdrawn drain or an evacuation moved them,
// until ctx ends.
func (c *course) lookBack(ctx context.Context) error {
	cfg := c.drainConfig("", c.incidents.Dir(""), 0)
	accounts := func() []string { return append(c.recent(), c.evacuations.over(c.keptSince())...) }
	return migration.LookBack(ctx, cfg, accounts, c.incidents.carries)
}

// recent lists the accounts of ended incidents whose blocks peers may still have.
func (c *course) recent() []string {
	open, _ := c.incidents.Open()
	return c.incidents.earlier(open.Incident.ID, c.keptSince())
}

// keptSince is the earliest time at which a peer may have taken a block that it still has, if its receive.keep is the same
// as this node's. The extra hour is how often peers look for blocks to drop. Zero: they keep blocks for ever.
func (c *course) keptSince() time.Time {
	if keep := c.keep; keep > 0 {
		return time.Now().Add(-keep - time.Hour)
	}
	return time.Time{}
}

// adopt has an incident begin with the account of the newest outlived incident and those of evacuations of this node's
// disks: an order that was taken back and comes again finds its blocks at peers. It does nothing while the coordinator does
// not answer, since then nobody can say whether the peers still have them, and in a rehearsal, which is to show what a drain
// does. It reports whether there was such an account.
func (c *course) adopt(incident, dir string) bool {
	if c.fleet.alone() || c.incidents.rehearses() || c.refuge.has(incident) {
		return false
	}
	last, at := "", time.Time{}
	for _, earlier := range c.recent() {
		if info, err := os.Stat(earlier); err == nil && info.ModTime().After(at) {
			last, at = earlier, info.ModTime()
		}
	}
	earlier := c.evacuations.moved(c.keptSince())
	if last != "" {
		earlier = append(earlier, last)
	}
	adopted, err := migration.Adopt(dir, earlier...)
	switch {
	case err != nil:
		c.log.Warn("what an earlier drain moved is sent again", "incident", incident, "err", err)
	case adopted.Blocks > 0:
		c.log.Info("what an earlier drain moved is not sent again where it is still held", "incident", incident, "blocks", adopted.Blocks, "bytes", adopted.Bytes)
	}
	return adopted.Blocks > 0
}

// rehearses reports whether nothing but a rehearsal makes this node leave.
func (in *incidents) rehearses() bool {
	i := in.current()
	all := i.InForce()
	return len(all) > 0 && !slices.ContainsFunc(all, func(n preemption.Notice) bool { return n.Source != preemption.SourceRehearsal })
}

// earlier lists the accounts of the incidents that ended after before, other than the given one.
func (in *incidents) earlier(incident string, before time.Time) (dirs []string) {
	all, _ := durable.Dirs(in.Dir("")) // a directory that cannot be listed must not stop a drain
	for _, d := range all {
		if d.Name() != incident && d.ModTime().After(before) {
			dirs = append(dirs, in.Dir(d.Name()))
		}
	}
	return dirs
}
