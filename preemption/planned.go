package preemption

import (
	"fmt"
	"time"

	"github.com/lifeboat/lifeboat/systemd"
)

// appoint makes a notice of what logind has planned, if it is news. It is heard within loginEvery: logind says so to whoever asks, and
// to nobody else.
//
// The plan says when logind begins. From then on the lock holds it, as it does a shutdown that nobody announced, so the machine has that
// time too. Who is told two minutes before or less has no time to wait for anything.
func (l *Logind) appoint() (n Notice, news bool) {
	_, down := l.standing()
	known, standing := l.planned, l.planned.Source != ""
	if !l.plans || down { // once it has begun the other notice speaks for both
		return Notice{}, false
	}
	if standing && (l.plan.At.IsZero() || kindOf(l.plan.How, known.Kind) != known.Kind) {
		known.Withdrawn, known.Reason = true, "the planned shutdown was called off"
		l.planned = Notice{} // what is planned in its place comes next
		return known, true
	}
	now := time.Now()
	left := l.plan.At.Sub(now) // by the wall clock, as logind means it, whatever is done to it meanwhile
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

// asPlanned is how the host goes down where it begins to when that was planned for: a logind before version 255 does not say it
// then. Empty: nothing was planned, or for another time.
func (l *Logind) asPlanned(now time.Time) systemd.How {
	if since := now.Sub(l.plan.At); l.plan.At.IsZero() || since < 0 || since > loginEvery {
		return ""
	}
	return l.plan.How
}
