package agent

import (
	"context"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
)

// lastCall is what the agent does when it is told to stop. At an upgrade, or when an operator restarts the agent, the node
// stays as it is. But a host that goes down takes the node with it, so its shutdown is a notice like any other: the agent
// stays until the node is empty and the coordinator has the account, or until time is up.
func (a *Agent) lastCall(ctx context.Context) {
	if a.deps.Logind == nil {
		return
	}
	n, down := a.deps.Logind.Terminating(ctx)
	if !down {
		return
	}
	a.log.Info("told to stop because the host goes down", "kind", n.Kind, preemption.Left(n.Deadline), "reason", n.Reason)
	if !a.limits.policy().Stance(n.Kind).AtLeast(preemption.StanceDrain) {
		return // a reboot, which logind before version 255 could not tell from the end: the disks come back, the next start goes on
	}
	if _, err := a.say(ctx, n); err != nil {
		return
	}
	for ctx.Err() == nil {
		changed := a.incidents.Changes()
		p, open := a.incidents.Open()
		empty := p.Work.Drained != nil && !p.Work.Again && a.saidSince(p).IsZero()
		if !open || !a.incidents.leaving() || p.Work.Told && empty {
			return
		}
		until := p.Incident.Deadline()
		if until.IsZero() {
			until = a.limits.sendUntil(p.Incident)
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
func (a *Agent) waitsForNothing(n preemption.Notice) bool {
	stance, _ := a.incidents.Stance()
	return !stance.AtLeast(preemption.StanceDrain) && !a.limits.policy().Stance(n.Kind).AtLeast(preemption.StancePreCopy)
}

// letGo releases a shutdown for which the node has nothing to do: after a reboot the disks are still there.
func (a *Agent) letGo(ctx context.Context, n preemption.Notice) {
	if err := a.notices.Release(ctx, n); err != nil {
		a.log.Warn("cannot let the shutdown go on: it waits although there is nothing to carry", "err", err)
	}
}
