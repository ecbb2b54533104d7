package registry

import (
	"cmp"
	"time"
)

// Late says whether the time of n's decommission is up.
func (n Node) Late(at time.Time) bool {
	return n.Leaving() && !n.Decommission.Deadline().IsZero() && !at.Before(n.Decommission.Deadline())
}

// HeardLate says whether its time was up before it was known here that n leaves, a moment ago: it has had no time to give its account.
func (n Node) HeardLate(at time.Time, lease time.Duration) bool {
	d := n.Decommission
	return !d.Deadline().After(d.StartedAt) && at.Sub(d.StartedAt) <= lease
}

// AwayUntil says whether n announced a restart and has been away for longer than that should take.
func (n Node) AwayUntil(patience time.Duration, at time.Time) bool {
	return n.State == Shutdown && !n.ShutOut() && at.Sub(n.Since) > patience
}

// ShutOut says whether it is by force that n is away: nobody expects it back.
func (n Node) ShutOut() bool {
	d := n.Decommission
	return d != nil && d.Outcome == Forced && !n.ReturnedAt.After(d.EndedAt)
}

// Outlived says whether n left so long ago that its name need not be kept.
func (n Node) Outlived(at time.Time, after time.Duration) bool {
	return n.State != Active && n.State != Decommissioning && at.Sub(n.Since) > cmp.Or(after, ForgetAfter)
}
