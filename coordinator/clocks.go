package coordinator

import "time"

const (
	// offAfter is by how much a node's clock may be off before an operator should look at it. The coordinator does not depend on that
	// clock, for deadlines cross the wire as the time that remains. The node's logs do, and its reading of the cloud's notices, which
	// name instants.
	offAfter = time.Second
	farAfter = 10 * time.Second
	// wellWithin is below offAfter, so that a clock that is off by just offAfter is not news again and again.
	wellWithin = offAfter / 2
)

// astray is how badly a node's clock is off.
type astray int

const (
	onTime astray = iota
	offTime
	farOff
)

// now is the new judgement on a clock that is ahead by so much and was judged was before.
func (was astray) now(ahead time.Duration) astray {
	switch ahead = ahead.Abs(); {
	case ahead > farAfter:
		return farOff
	case was == farOff && ahead > farAfter/2:
		return farOff
	case ahead > offAfter, was != onTime && ahead > wellWithin:
		return offTime
	}
	return onTime
}
