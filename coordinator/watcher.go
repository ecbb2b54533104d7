package coordinator

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// watch ends what the clock ends: decommissions whose time is up, restarts that take too long, and the memory of nodes that
// are gone. Each is decided by itself, on what the log says: a node that never beats again holds up nobody else.
func (f *fleet) watch(now time.Time) {
	var late, overdue, gone []string
	if now.Sub(f.leases.since()) <= f.cfg.Lease {
		return
	}
	f.ledger.view(func(m *machine) {
		for _, n := range m.Nodes {
			switch {
			case n.late(now) && !n.heardLate(now, f.cfg.Lease):
				late = append(late, n.Name)
			case n.awayUntil(f.cfg.RestartTimeout, now):
				overdue = append(overdue, n.Name)
			case n.gone(now, f.cfg.ForgetAfter) && !f.present(n):
				gone = append(gone, n.Name)
			}
		}
	})
	f.decideAll(command{Do: doTimeout}, late)
	f.decideAll(command{Do: doLose, Overdue: true}, overdue)
	f.decideAll(command{Do: doForget, After: f.cfg.ForgetAfter}, gone)
}

// decideAll does c to nodes, as many at a time as one entry of the log should hold. What fails is tried again at the next
// look, here or by the next leader.
func (f *fleet) decideAll(c command, nodes []string) {
	for batch := range slices.Chunk(nodes, reapBatch) {
		c.Nodes = batch
		if _, err := f.do(c); errors.Is(err, errFollows) || errors.Is(err, errDeposed) {
			return
		} else if err != nil {
			f.log.Error("the clock's decision was not written down and is tried again", "event", string(c.Do), "err", err)
		}
	}
}

// late says whether the time of n's decommission is up.
func (n node) late(at time.Time) bool {
	return n.leaving() && !n.Decommission.deadline().IsZero() && !at.Before(n.Decommission.deadline())
}

// heardLate says whether its time was up before it was known here that n leaves, a moment ago: it has had no time to give its account.
func (n node) heardLate(at time.Time, lease time.Duration) bool {
	d := n.Decommission
	return !d.deadline().After(d.StartedAt) && at.Sub(d.StartedAt) <= lease
}

// awayUntil says whether n announced a restart and has been away for longer than that should take.
func (n node) awayUntil(patience time.Duration, at time.Time) bool {
	return n.State == Shutdown && !n.shutOut() && at.Sub(n.Since) > patience
}

// shutOut says whether it is by force that n is away: nobody expects it back.
func (n node) shutOut() bool {
	d := n.Decommission
	return d != nil && d.Outcome == forced && !n.ReturnedAt.After(d.EndedAt)
}

// gone says whether n left so long ago that its name need not be kept.
func (n node) gone(at time.Time, after time.Duration) bool {
	return n.State != Active && n.State != Decommissioning && at.Sub(n.Since) > cmp.Or(after, forgetAfter)
}
