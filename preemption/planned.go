package preemption

import (
	"fmt"
	"time"

	"github.com/lifeboat/lifeboat/systemd"
)

// appoint turns logind's planned shutdown into a notice, if it is news. A plan is heard within loginEvery, because logind
// sends no signal for it and must be asked.
//
// The plan says when logind begins the shutdown. From then on the lock holds it back, like a shutdown that was not
// announced, so the machine has that time too. A plan for the next two minutes or less is no appointment: there is no time
// to wait for it.
func (l *Logind) appoint() (n Notice, news bool) {
	_, down := l.standing()
	known, standing := l.planned, l.planned.Source != ""
	if !l.plans || down { // once the shutdown has begun, its own notice speaks for both
		return Notice{}, false
	}
	if standing && (l.plan.At.IsZero() || kindOf(l.plan.How, known.Kind) != known.Kind) {
		known.Withdrawn, known.Reason = true, "the planned shutdown was called off"
		l.planned = Notice{} // a plan that replaced it comes with the next call
		return known, true
	}
	now := time.Now()
	left := l.plan.At.Sub(now) // by the wall clock, as logind goes by it, even if that is set meanwhile
	if l.plan.At.IsZero() || !standing && left < 0 {
		return Notice{}, false
	}
	deadline := now.Add(left + l.granted())
	if standing && sameInstant(deadline, known.Deadline) {
		return Notice{}, false
	}
	n = Notice{
		Source: SourceLogind, ID: plannedID, Kind: kindOf(l.plan.How, KindShutdown), SeenAt: now, Deadline: deadline, Appointed: left > leastAhead,
		Reason: fmt.Sprintf("the operating system is to go down at %s: %s", l.plan.At.UTC().Format(time.RFC3339), l.plan.How),
	}
	if standing {
		n.SeenAt = known.SeenAt
	}
	l.planned = n
	return n, true
}

// asPlanned is how the host goes down, if it begins to at the time of the plan: a logind before version 255 does not say how
// at that moment. Empty: nothing was planned, or for another time.
func (l *Logind) asPlanned(now time.Time) systemd.How {
	if since := now.Sub(l.plan.At); l.plan.At.IsZero() || since < 0 || since > loginEvery {
		return ""
	}
	return l.plan.How
}
