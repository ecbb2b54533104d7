package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
)

const (
	// lookAround is how often a waiting node checks what it waits for: a workload announces its changes, the coordinator
	// does not.
	lookAround = time.Second
	// The pause between two passes over the stores, while the node waits, is as long as the pass took, within these bounds:
	// it never spends more than half of its time on looking for new blocks.
	leastPassPause = 2 * time.Second
	mostPassPause  = time.Minute
	// mostPass is how long a pass that is not the last may take: a block that no peer has room for must not keep the next
	// pass from looking for new ones. Cutting a pass short costs the blocks in flight.
	mostPass = 2 * time.Minute
	// leastLastPass is the time kept for the last pass of a drain, or a tenth of the drain's time if that is more: earlier
	// passes have carried all but the newest blocks.
	leastLastPass = 2 * time.Second
)

// waitsFor names, a sentence each, what a leaving node waits for before it sends the rest and says goodbye: awaited
// workloads, and, when only an operator's order makes it leave, apps that ran here and still run elsewhere. While an answer
// is not known yet, the node waits for it.
func (c *course) waitsFor(i preemption.Incident) (all []string) {
	all = c.workloads.awaited(i.ID)
	if !ordered(i) {
		return all
	}
	apps, heard := c.fleet.Apps()
	if !heard {
		return append(all, "the coordinator has not said yet which apps still want this node's blocks")
	}
	for _, app := range apps {
		all = append(all, fmt.Sprintf("app %s (runs elsewhere)", app))
	}
	return all
}

// mostUnfinished is how many of these an account names, and unfinishedBytes bounds each.
const mostUnfinished, unfinishedBytes = 16, 256

// unfinished names what the drain still waits for, for the account of a drain whose time is up. In a rehearsal it is
// nothing, for that leaves everything running.
func (c *course) unfinished() []string {
	i := c.incidents.current()
	if i.Rehearsed() {
		return nil
	}
	all := c.waitsFor(i)
	if more := len(all) - mostUnfinished; more > 0 {
		all = append(all[:mostUnfinished], fmt.Sprintf("%d more", more))
	}
	for n, what := range all {
		all[n] = strings.ToValidUTF8(what[:min(len(what), unfinishedBytes)], "")
	}
	return all
}

// ordered reports whether only an operator's order makes the node leave. A rehearsal beside it does not count.
func ordered(i preemption.Incident) bool {
	leaves := false
	for _, n := range i.InForce() {
		if n.Stance.AtLeast(preemption.StanceDrain) && n.Source != preemption.SourceRehearsal {
			leaves = true
			if n.Source != preemption.SourceOperator {
				return false
			}
		}
	}
	return leaves
}

// waits is what the node waits for, for the status: with the disks that do not answer.
func (c *course) waits() []string {
	p, open := c.incidents.Open()
	if !open || !c.incidents.leaving() || p.Work.Drained != nil {
		return nil
	}
	all := c.waitsFor(p.Incident)
	if d, ahead, ok := c.drains.progress(); ok && !ahead {
		for _, dir := range apiProgress(d).Awaits {
			all = append(all, fmt.Sprintf("disk %s (does not answer)", dir))
		}
	}
	return all
}

// lastPassAt is when the last pass over the stores begins, whatever the node still waits for: late, so that it carries what
// is written until then, but early enough to be over when sending must stop. Zero: no deadline is known.
func (r *rules) lastPassAt(i preemption.Incident) time.Time {
	deadline := i.Deadline()
	if deadline.IsZero() {
		return time.Time{}
	}
	began, until := i.LeftAt(), r.sendUntil(i)
	keep := max(deadline.Sub(began)/10, leastLastPass)
	return until.Add(-min(keep, max(0, until.Sub(began))/2))
}

// sendLimit is when sending must stop. Zero: no limit while the node waits, since no deadline is known.
func (c *course) sendLimit(i preemption.Incident) time.Time {
	if !i.Deadline().IsZero() {
		return c.limits.sendUntil(i)
	}
	if len(c.waitsFor(i)) > 0 {
		return time.Time{}
	}
	began := i.LeftAt()
	if free := c.drains.freedAt(); free.After(began) {
		began = free
	}
	return began.Add(c.limits.Load().Drain.Timeout)
}

// isLast tells whether a pass that begins now is the last.
func (c *course) isLast() bool {
	i := c.incidents.current()
	at := c.limits.lastPassAt(i)
	return len(c.waitsFor(i)) == 0 || !at.IsZero() && !time.Now().Before(at)
}

// untilNextPass waits until the next pass is due: after pause, when the last pass must begin, or when nothing is waited for
// any more.
func (c *course) untilNextPass(ctx context.Context, pause time.Duration) {
	next := time.Now().Add(pause)
	var said []string
	for ctx.Err() == nil {
		changed, stirred := c.incidents.Changes(), c.workloads.attention.stirred.Next()
		i := c.incidents.current()
		why := c.waitsFor(i)
		if len(why) == 0 {
			return
		}
		if !slices.Equal(why, said) {
			said = why
			c.log.Debug("waiting", "incident", i.ID, "for", why, preemption.Left(i.Deadline()))
		}
		due := next
		if last := c.limits.lastPassAt(i); !last.IsZero() && last.Before(due) {
			due = last
		}
		if !time.Now().Before(due) {
			return
		}
		select {
		case <-time.After(min(time.Until(due), lookAround)):
		case <-changed:
		case <-stirred:
		case <-ctx.Done():
		}
	}
}
