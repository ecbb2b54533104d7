package registry

import (
	"cmp"
	"time"
)

// Late reports whether the time of n's decommission is up.
func (n Node) Late(at time.Time) bool {
	return n.Leaving() && !n.Decommission.Deadline().IsZero() && !at.Before(n.Decommission.Deadline())
}

// HeardLate reports whether the coordinator heard that n leaves only after n's deadline, and at most a lease ago: n has had no time to give
// its account yet.
func (n Node) HeardLate(at time.Time, lease time.Duration) bool {
	d := n.Decommission
	return !d.Deadline().After(d.StartedAt) && at.Sub(d.StartedAt) <= lease
}

// AwayUntil reports whether n announced a restart and has been away for longer than patience.
func (n Node) AwayUntil(patience time.Duration, at time.Time) bool {
	return n.State == Shutdown && !n.ShutOut() && at.Sub(n.Since) > patience
}

// ShutOut reports whether n is away because it was forced out: nobody expects it back.
func (n Node) ShutOut() bool {
	d := n.Decommission
	return d != nil && d.Outcome == Forced && !n.ReturnedAt.After(d.EndedAt)
}

// Outlived reports whether n left so long ago that its record need not be kept.
func (n Node) Outlived(at time.Time, after time.Duration) bool {
	return n.State != Active && n.State != Decommissioning && at.Sub(n.Since) > cmp.Or(after, ForgetAfter)
}
