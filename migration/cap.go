package migration

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// Under a cap on the whole drain, lanes take from each other what they send: what one of them may begin does not follow from
// the rate that it has beside the others. So what they have begun is counted together against what the cap lets through
// until the end, and a lane that is alone near the end may begin what it could not carry while it shared.

// capped is whether a lane waits for the cap most of its time, and not for its connection.
type capped struct {
	not    bool // nobody has measured otherwise
	waited time.Duration
}

// measure takes note of the time since the last measurement.
func (c *capped) measure(took time.Duration) {
	c.not = 2*c.waited < took
	c.waited = 0
}

// capLeft is what the cap lets through until the end of sending; false without one.
func (d *Drain) capLeft(now, until time.Time) (bytes float64, is bool) {
	limit := d.limit.Limit()
	return until.Sub(now).Seconds() * float64(limit), limit != rate.Inf && !until.IsZero()
}

// takeShare has the plan hand out blocks that are in time beside what all lanes have begun.
func (l *lane) takeShare(blocks int, affordable int64) (batch []entry, wait time.Duration, err error) {
	l.unpledge()
	left, is := l.d.capLeft(time.Now(), l.until)
	if !is {
		return l.d.plan.takeSome(l.batch[:0], blocks, laneBuffer, l.peer.Node, l.roomLeft(), affordable)
	}
	l.d.pledging.Lock()
	defer l.d.pledging.Unlock()
	most := int64(min(max(left*(1-paceMargin)-float64(l.d.pledged.Load()), -1), math.MaxInt64/2))
	if l.capped.not {
		most = min(most, affordable)
	}
	batch, wait, err = l.d.plan.takeSome(l.batch[:0], blocks, laneBuffer, l.peer.Node, l.roomLeft(), most)
	var n int64
	for _, e := range batch {
		n += e.Bytes()
	}
	l.pledged.Store(n)
	l.d.pledged.Add(n)
	return batch, wait, err
}

// redeem counts bytes as sent that the lane had begun on.
func (l *lane) redeem(n int64) {
	if owed := l.pledged.Load(); owed > 0 && l.pledged.CompareAndSwap(owed, max(owed-n, 0)) {
		l.d.pledged.Add(-min(n, owed))
	}
}

// unpledge says that the lane will not send what is left of what it had begun on.
func (l *lane) unpledge() {
	if owed := l.pledged.Swap(0); owed > 0 {
		l.d.pledged.Add(-owed)
	}
}

// hopeless reports whether a block of which so much is left cannot be at the peer in time.
func (l *lane) hopeless(left int64) bool {
	if !l.pace.hopeless(l.now, l.until, left) {
		return false
	}
	through, is := l.d.capLeft(l.now, l.until)
	return !is || l.capped.not || float64(l.d.pledged.Load()) > through*paceHope
}
