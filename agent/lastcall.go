package agent

import (
	"context"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
)

// lastCall is what the agent does when it is told to stop. At an upgrade, or when an operator restarts the agent, the node
// stays as it is. But a host that goes down takes the node with it, so its shutdown is a notice like any other: the agent
// stays until the node is empty and the coordinator has the account, or until time is up.
func (c *course) lastCall(ctx context.Context) {
	if c.logind == nil {
		return
	}
	n, down := c.logind.Terminating(ctx)
	if !down {
		return
	}
	c.log.Info("told to stop because the host goes down", "kind", n.Kind, preemption.Left(n.Deadline), "reason", n.Reason)
	if !c.limits.policy().Stance(n.Kind).AtLeast(preemption.StanceDrain) {
		return // a reboot, which logind before version 255 could not tell from the end: the disks come back, the next start goes on
	}
	if _, err := c.say(ctx, n); err != nil {
		return
	}
	for began := time.Now(); ctx.Err() == nil; {
		changed := c.incidents.Changes()
		p, open := c.incidents.Open()
		empty := p.Work.Drained != nil && !p.Work.Again && c.saidSince(p).IsZero()
		if !open || !c.incidents.leaving() || p.Work.Told && empty {
			return
		}
		i := p.Incident.Ahead(began)
		until := i.Deadline()
		if until.IsZero() {
			until = c.limits.againUntil(i, began)
		}
		if empty { // only the goodbye is left to do
			if patience := p.Work.Drained.Finished.Add(goodbyePatience(p.Work.Drained.Total().Blocks)); patience.Before(until) {
				until = patience
			}
		}
		select {
		case <-changed:
		case <-time.After(min(lookAround, time.Until(until))): // wroteSince changes no incident when it has looked, so ask again
			if !time.Now().Before(until) {
				return
			}
		case <-ctx.Done():
		}
	}
}

// goodbyePatience is how long a host that goes down waits for a coordinator to take an account of so many blocks. A
// coordinator that is away holds it up no longer than callTimeout. One that answers takes 300,000 blocks in a second,
// measured; the patience allows for a third of that rate.
func goodbyePatience(blocks int64) time.Duration {
	return callTimeout + time.Duration(blocks)*10*time.Microsecond
}

// waitsForNothing reports whether the node has nothing to do for a shutdown: the policy asks for no copying, and the node
// does not leave for another reason.
func (c *course) waitsForNothing(n preemption.Notice) bool {
	stance, _ := c.incidents.Stance()
	return !stance.AtLeast(preemption.StanceDrain) && !c.limits.policy().Stance(n.Kind).AtLeast(preemption.StancePreCopy)
}

// letGo releases a shutdown for which the node has nothing to do: after a reboot the disks are still there.
func (c *course) letGo(ctx context.Context, n preemption.Notice) {
	if err := c.notices.Release(ctx, n); err != nil {
		c.log.Warn("cannot let the shutdown go on: it waits although there is nothing to carry", "err", err)
	}
}
