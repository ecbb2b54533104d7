package migration

import (
	"math"
	"time"
)

// takeOne takes the first block that is due at that peer and needs at most room bytes. ok is false when there is none now; wait is
// then how long until one that waits is due (0: nothing waits for the clock).
func takeOne(p *plan, peer string, room int64) (e entry, ok bool, wait time.Duration, err error) {
	return takeInTime(p, peer, room, math.MaxInt64)
}

// takeInTime also leaves alone what is larger than affordable: it would be there too late.
func takeInTime(p *plan, peer string, room, affordable int64) (e entry, ok bool, wait time.Duration, err error) {
	batch, wait, err := p.takeSome(nil, 1, math.MaxInt64, peer, roomOf(room), affordable, nil)
	if len(batch) == 0 {
		return e, false, wait, err
	}
	return batch[0], true, 0, nil
}
