package coordinator

import (
	"context"
	"time"

	"github.com/lifeboat/lifeboat/coordinator/registry"
)

const (
	// reapPace is how often leases and deadlines are checked, and so how late their end may be noticed.
	reapPace = 250 * time.Millisecond

	// reapBatch bounds the nodes in one entry of the log, for when a whole zone falls silent.
	reapBatch = 1000
)

// reap ends what has run out by the clock, such as leases and deadlines, until ctx ends.
func (f *fleet) reap(ctx context.Context) error {
	defer f.silence.bursts.tell(true)
	last := time.Now()
	return every(ctx, reapPace, func() {
		f.silence.bursts.tell(false)
		if _, err := f.ledger.lead(); err != nil {
			last = time.Now()
			f.ledger.steady.look(last)
			return
		}
		now := time.Now()
		f.keepTime(now)
		f.reapOnce(now, now.Sub(last))
		last = now
		ends, near := f.hosts.maintenanceEnds(now), f.maintenance.near(now)
		if ends || near { // or a window is over
			f.roster.change()
			f.bars.heedMaintenance(nil, true, nil)
		}
	})
}

// reapOnce checks all once. gap is the time since the last check: if it is long, this process or machine stood still and heard no node,
// which says nothing about the nodes.
func (f *fleet) reapOnce(now time.Time, gap time.Duration) {
	if gap > max(f.cfg.suspectAfter()/3, 2*reapPace) { // a lease may be so short that every look seems late
		f.log.Warn("the coordinator stood still: every lease begins anew", "took", gap)
		f.leases.regrant(now)
		f.lives.beats.regrant(now)
	}
	f.decideAll(registry.Command{Do: registry.DoLose}, f.silence.judge(now))
	f.watch(now)
	for o, names := range f.maintenance.leaveInTime(now) {
		f.decideAll(registry.Command{Do: registry.DoDecommission, Order: o}, names)
	}
	f.lives.lapse(now)
}
